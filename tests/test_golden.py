"""Files of an earlier version are read as before: bit for bit, and what is computed from them up to rounding."""

import json

import numpy as np
import pytest
from golden_files import (
    RELEASES,
    SEGMENTS,
    STORE_SWEEP,
    content_of,
    copied,
    database_rows,
    digest,
    digests,
    expected,
    served,
    states,
    stream,
    stream_probes,
)
from http_serving import TOKEN, serving
from streams import NO_OFFSET

import pta
from pta.data.features import load_features
from pta.measure.leaderboard import STREAMS, read_board
from pta.measure.result_store import ResultStore
from pta.monitor.reference import ScoreReference
from pta.serve import Client

SCALE = 20.0
LOGITS = {"rtol": 0, "atol": 2e-5 * SCALE}  # what the engines promise in float32
STATE = {"rtol": 1e-5, "atol": 1e-5}


def samples_after_loading():
    return pta.Samples.of(stream()["image_features"][40:100])


def arrays(adapter):
    return {name: tensor.numpy() for name, tensor in adapter.state().items()}


@pytest.fixture
def recovered(tmp_path):
    """What a client sees of a data folder, and what it may do there before the service ends."""

    def recover(folder, work=lambda client: None):
        with serving(copied("features.npz", tmp_path), folder) as server, Client(server.url, TOKEN) as client:
            return served(client), work(client)

    return recover


# -- states and segments ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("release", "method"), states())
def test_a_state_is_loaded_bit_for_bit_and_saved_as_it_was(release, method, tmp_path):
    told, path = expected(release)[method], copied(f"{method}.safetensors", tmp_path, release)
    adapter = pta.load_adapter(path)
    since = {"gate": "none", "label_weight": 1.0, **NO_OFFSET}
    known_then = {name: value for name, value in since.items() if name in adapter.declared} | told["parameters"]
    assert (adapter.position, dict(adapter.parameters)) == (told["position"], known_then)
    assert digests(arrays(adapter)) == told["state"]
    adapter.save(tmp_path / "again.safetensors")
    assert digests(content_of(tmp_path / "again.safetensors")) == told["file"]


@pytest.mark.parametrize(("release", "method"), states())
def test_a_state_goes_on_with_the_same_answers(release, method, tmp_path):
    told, adapter = expected(release)[method], pta.load_adapter(copied(f"{method}.safetensors", tmp_path, release))
    np.testing.assert_allclose(adapter.predict(pta.Samples.of(stream_probes())), told["predict"], **LOGITS)
    np.testing.assert_allclose(adapter.step(samples_after_loading())[-8:], told["step"], **LOGITS)


def test_a_state_is_shown_by_the_command(pta, tmp_path):
    path = copied("pta.safetensors", tmp_path)
    shown = json.loads(pta("state", "show", path, "--json", "-").stdout)
    assert (shown["method"], shown["position"]) == ("pta", 40)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(("name", "parameters"), SEGMENTS.items())
def test_a_segment_is_loaded_bit_for_bit_and_applied(release, name, parameters, tmp_path):
    told, made = expected(release)[name], stream()
    segment = pta.Segment.load(copied(f"{name}.safetensors", tmp_path, release))
    segment.save(tmp_path / "again.safetensors")
    assert digests(content_of(tmp_path / "again.safetensors")) == told["file"]
    classifier = pta.ZeroShotClassifier(made["text_features"], made["classnames"].tolist(), scale=SCALE)
    adapter = pta.create_adapter("pta", classifier, **parameters)
    assert (segment.count, adapter.apply(segment), adapter.position) == (told["count"], told["exact"], told["position"])
    np.testing.assert_allclose(adapter.predict(pta.Samples.of(stream_probes())), told["predict"], **LOGITS)


def test_a_state_and_the_segment_after_it_give_the_state_of_the_stream(tmp_path):
    streamed = pta.load_adapter(copied("pta.safetensors", tmp_path))
    applied = streamed.clone()
    streamed.step(samples_after_loading())
    assert applied.apply(pta.Segment.load(copied("segment.safetensors", tmp_path)))
    for name, array in arrays(streamed).items():
        np.testing.assert_allclose(arrays(applied)[name], array, **STATE, err_msg=name)


# -- the data folder of a service -------------------------------------------------------------------------------------


@pytest.fixture(params=RELEASES, ids=["before 0.1.0", *RELEASES[1:]])
def release(request):
    return request.param


def test_a_journal_of_every_operation_is_whole(pta, tmp_path, release):
    folder = copied("served", tmp_path, release)
    done = pta("journal", "check", "--data", folder, "--json", "-")
    assert (done.returncode, json.loads(done.stdout)["problems"]) == (0, [])
    assert database_rows(folder / "journal.sqlite") == expected(release)["served"]["journal"]


def test_a_service_recovers_its_streams_bit_for_bit_from_snapshots(recovered, tmp_path, release):
    told, folder = expected(release)["served"], copied("served", tmp_path, release)
    seen, _ = recovered(folder)
    assert {name: one["summary"] for name, one in seen.items()} == facts(told, "summary")
    assert {name: one["sources"] for name, one in seen.items()} == facts(told, "sources")
    assert {name: one["labels"] for name, one in seen.items()} == facts(told, "labels")
    assert {name: digests(one["state"]) for name, one in seen.items()} == facts(told, "digests")
    for name, one in seen.items():
        np.testing.assert_allclose(one["logits"], told["streams"][name]["logits"], **LOGITS)
    assert database_rows(folder / "journal.sqlite") == told["journal"]
    kept = sorted(path.relative_to(folder).as_posix() for path in folder.glob("streams/*/snapshots/*"))
    assert kept == told["snapshots"]


@pytest.mark.parametrize("kept", [1, 0], ids=["from older snapshots", "without snapshots"])
def test_a_journal_replays_to_the_same_states(recovered, tmp_path, kept, release):
    told, folder = expected(release)["served"], copied("served", tmp_path, release)
    for snapshots in folder.glob("streams/*/snapshots"):
        for path in sorted(snapshots.iterdir())[kept:]:
            path.unlink()
    seen, _ = recovered(folder)
    assert {name: one["summary"] for name, one in seen.items()} == facts(told, "summary")
    for name, one in seen.items():
        stored = told["streams"][name]["state"]
        assert one["state"].keys() == stored.keys()
        for piece, array in one["state"].items():
            np.testing.assert_allclose(array, np.array(stored[piece], array.dtype), **STATE, err_msg=f"{name} {piece}")


def test_a_recovered_service_knows_the_requests_it_answered_and_learns_on(recovered, tmp_path, release):
    told, folder = expected(release)["served"], copied("served", tmp_path, release)
    rows = stream()["image_features"].astype(np.float32)

    def work(client):
        again = client.infer(rows[43:45], stream="garden", source="kitchen", id="later", learn=True)
        assert {"labels": list(again.labels), "sequence": again.outputs["sequence"].tolist()} == told["repeated"]
        assert client.operate("garden", "undo")["samples"] == 4  # the un-learning of the street
        assert client.infer(rows[50:53], stream="garden", learn=True).learned

    recovered(folder, work)
    seen, _ = recovered(folder)
    before, after = told["streams"]["garden"]["summary"], seen["garden"]["summary"]
    assert after["position"] == before["position"] + 4 + 3
    assert after["sequence"] == before["sequence"] + 1 + 3


def facts(told, name):
    """One fact of every stream."""
    return {stream: one[name] for stream, one in told["streams"].items()}


# -- features and results ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("release", "name"), [("", "features.npz"), ("", "features.safetensors"), ("0.1.0", "features.safetensors")]
)
def test_a_feature_file_is_read_bit_for_bit_and_measured(pta, release, name, tmp_path):
    told, path = expected(release)[name], copied(name, tmp_path, release)
    stored = stream() if name.endswith("npz") else content_of(path)
    assert {array: digest(stored[array]) for array in told["arrays"]} == told["arrays"]
    read = load_features(path)
    np.testing.assert_array_equal(read.labels, stored["labels"])
    rows = stored["image_features"].astype(np.float64)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    np.testing.assert_allclose(read.samples.features, unit, rtol=0, atol=1e-6)
    done = pta("eval", "--features", path, "--method", "clip", "--json", "-")
    record = json.loads(done.stdout)[0]
    since = {"gate": "none", **NO_OFFSET}
    assert {name: record["params"].get(name) for name in since} == since
    record["params"] = {name: record["params"][name] for name in told["record"]["params"]}
    assert {key: record[key] for key in told["record"]} == told["record"]


@pytest.mark.parametrize("release", RELEASES)
def test_results_are_found_and_stay_when_others_are_added(pta, tmp_path, release):
    told, folder = expected(release)["store"], copied("store", tmp_path, release)
    assert database_rows(folder / "results.sqlite") == told["rows"]
    features = copied("features.npz", tmp_path)
    done = pta("sweep", "--features", features, *STORE_SWEEP, "--results", folder, "--json", "-")
    assert [record["accuracy"] for record in json.loads(done.stdout)] == [
        r["accuracy"] for r in told["records"].values()
    ]
    store = ResultStore(folder)
    for key, record in told["records"].items():
        kept = store.get(key)
        assert {name: kept[name] for name in record} == record


# -- what came with 0.1.0 ---------------------------------------------------------------------------------------------


def test_prompts_patches_and_views_of_a_feature_file_are_read(tmp_path):
    path = copied("features.safetensors", tmp_path, "0.1.0")
    stored, read = content_of(path), load_features(path)
    assert read.samples.provides == {"features", "views", "patches"}
    np.testing.assert_array_equal(read.samples.patches.half().numpy(), stored["patch_features"])
    np.testing.assert_allclose(read.classifier.prompt_features, stored["prompt_features"], rtol=0, atol=2e-3)


def test_a_leaderboard_is_read(tmp_path):
    rows = read_board(copied("board.csv", tmp_path, "0.1.0"))
    assert {(row["file"], row["method"]) for row in rows} == {("features", "clip"), ("others", "clip")}
    assert {row["stream"] for row in rows} == {*STREAMS}
    assert all(0 <= float(row["accuracy"]) <= 100 for row in rows)


def test_a_reference_of_a_monitor_is_read(tmp_path):
    path, made = copied("reference.safetensors", tmp_path, "0.1.0"), stream()
    assert digests(content_of(path)) == expected("0.1.0")["reference"]
    classifier = pta.ZeroShotClassifier(made["text_features"], made["classnames"].tolist(), scale=SCALE)
    assert ScoreReference.load(path, classifier).scores.shape == (240, 2)


def test_a_repository_of_the_hub_is_read(tmp_path):
    told = expected("0.1.0")["hub"]
    loaded = pta.Classifier.from_pretrained(copied("hub", tmp_path, "0.1.0"), cache=None)
    assert (list(loaded.classes), loaded.adapter.name, loaded.adapter.position) == (told["classes"], "pta", 12)
    assert digests(arrays(loaded.adapter)) == told["state"]

"""Answers that are marked as rejected, and samples that are answered and not learned."""

import json

import numpy as np
import pytest
from http_serving import features as tensor
from http_serving import process, serving
from serving import DIM, ask, open_service, replayed, same_bits, state_of

from pta.data.features import load_features
from pta.serve.client import Client
from pta.serve.requests import Refused, SampleLabel

HOLDS = 0.9


def column(reply, name):
    return reply.outputs[name].tolist()


@pytest.fixture
def service(tmp_path):
    with open_service(tmp_path, reject_holds=HOLDS) as service:
        yield service


def doubtful(count):
    """Samples near no anchor, of which zero-shot is sure or unsure."""
    return np.random.default_rng(1).standard_normal((count, DIM)).astype(np.float32)


def split(service, count=60):
    """Samples that are learned and samples that are held."""
    rows = doubtful(count)
    held = ask(service, rows, learn="false").outputs["zero_shot_probability"] < HOLDS
    assert 3 < held.sum() < count - 3
    return rows[~held], rows[held]


def mixed(service):
    sure, unsure = split(service)
    return np.stack([unsure[0], sure[0], unsure[1], sure[1], sure[2]])


def test_samples_are_learned_as_if_those_below_the_threshold_had_never_come(tmp_path):
    with open_service(tmp_path / "a", reject_holds=HOLDS) as service, open_service(tmp_path / "b") as plain:
        sure, _ = split(service)
        rows = doubtful(60)
        replies = [ask(service, part) for part in np.split(rows, 12)]
        for part, reply in zip(np.split(rows, 12), replies, strict=True):
            is_held = reply.outputs["sequence"] < 0
            assert is_held.tolist() == (reply.outputs["zero_shot_probability"] < HOLDS).tolist()
            assert (reply.reason is None) == (not is_held.any())
            assert reply.learned == (not is_held.all())
            if not is_held.all():
                ask(plain, part[~is_held])
        learned = [number for reply in replies for number in column(reply, "sequence") if number >= 0]
        assert learned == [*range(1, len(sure) + 1)]
        assert same_bits(state_of(service), state_of(plain))
        assert same_bits(state_of(service), replayed(service._journal))
        assert service.summary("default")["answered"] == 120


def test_answers_keep_the_order_of_the_samples(service):
    rows = mixed(service)
    reply = ask(service, rows, top=2, logits=True)
    assert column(reply, "sequence") == [-1, 1, -1, 2, 3]
    assert reply.reason.startswith("2 of 5 samples not learned")
    alone = [ask(service, row[None], learn="false").outputs["zero_shot_probability"][0] for row in rows]
    np.testing.assert_allclose(reply.outputs["zero_shot_probability"], alone, rtol=1e-5)
    assert [row[0] for row in reply.outputs["top_label"]] == reply.labels
    assert reply.outputs["logits"].shape == (5, 6)


@pytest.mark.parametrize("are_written", [True, False])
def test_a_repeated_id_has_its_first_answers_and_new_ones_for_what_was_held(tmp_path, are_written):
    with open_service(tmp_path, reject_holds=HOLDS) as service:
        rows = mixed(service)
        first = ask(service, rows, id="a")
        for seed in range(20):
            ask(service, seed + 100, count=5)
        state = state_of(service)
    with open_service(tmp_path, reject_holds=0.0) as service:  # another threshold
        if not are_written:
            with service._journal._database.writing, service._journal._database.transaction() as connection:
                connection.execute("UPDATE batches SET answers = NULL")
        again = ask(service, rows, id="a")
        assert (again.learned, again.repeated) == (True, True)
        assert again.reason == "2 of 5 samples were not learned"
        assert column(again, "sequence") == column(first, "sequence")
        for name, values in first.outputs.items():
            assert again.outputs[name][[1, 3, 4]].tolist() == values[[1, 3, 4]].tolist(), name
        now = ask(service, rows[[0, 2]], learn="false")
        assert again.outputs["probability"][[0, 2]].tolist() == column(now, "probability")
        with pytest.raises(Refused, match="another request"):
            ask(service, rows[::-1].copy(), id="a")
        assert same_bits(state_of(service), state)


def test_a_request_of_which_all_samples_are_held_is_not_written(service):
    _, unsure = split(service)
    for _ in range(2):
        reply = ask(service, unsure[:3], id="a", learn="true")
        assert (reply.learned, reply.repeated, column(reply, "sequence")) == (False, False, [-1] * 3)
        assert "below 0.9 (--reject-holds)" in reply.reason
    assert service._journal.last(1)[0] == 0


def test_rows_and_labels_know_the_places_of_samples_in_their_request(service):
    ask(service, mixed(service), id="a")
    ask(service, split(service)[0][:2], id="b")
    assert [row["place"] for row in service.rows("default", 0, 100)["rows"]] == [1, 3, 4, 0, 1]
    with pytest.raises(Refused, match="at places 1, 3, 4, not at 0"):
        service.operate("default", "label", labels=[SampleLabel("class 1", id="a", place=0)])
    service.operate("default", "label", labels=[SampleLabel("class 1", id="a", place=3)])
    assert [row["learned_label"] for row in service.rows("default", 0, 100)["rows"]] == ["", "class 1", "", "", ""]


def test_a_quota_and_a_frozen_stream_count_what_would_be_learned(tmp_path):
    with open_service(tmp_path, reject_holds=HOLDS, quota=3) as service:
        ask(service, mixed(service), learn="true")
        _, unsure = split(service)
        assert not ask(service, unsure[:2], learn="true").learned
        with pytest.raises(Refused, match="3 samples per minute"):
            ask(service, mixed(service), learn="true")
        over = ask(service, mixed(service), learn="try")
        assert column(over, "sequence") == [-1] * 5
        service.operate("default", "freeze")
        with pytest.raises(Refused, match="frozen"):
            ask(service, unsure[:2], learn="true")


def test_rejected_answers_are_marked_and_counted_over_http(pets, tmp_path):
    rows = load_features(pets).samples.features.numpy()[:60]
    with serving(pets, tmp_path / "state", reject_below=0.99, reject_holds=0.9) as server:
        with Client(server.url, server.token) as client:
            first, again = (client.infer(rows, id="a") for _ in range(2))
        assert first.outputs["rejected"].tolist() == (first.outputs["probability"] < 0.99).tolist()
        assert first.outputs["rejected"].any()
        learned = first.outputs["sequence"] >= 0
        assert learned.tolist() == (first.outputs["zero_shot_probability"] >= 0.9).tolist()
        assert again.outputs["rejected"][learned].tolist() == first.outputs["rejected"][learned].tolist()
        count = int(first.outputs["rejected"].sum() + again.outputs["rejected"].sum())
        metrics = server.ask("GET", "/metrics").body.decode()
        assert f"pta_rejected_total {count}.0\n" in metrics
        assert f'pta_samples_total{{outcome="learned"}} {learned.sum()}.0\n' in metrics
        told = json.loads(server.ask("GET", "/v2/models/pta").body)["outputs"]
        assert {"name": "rejected", "datatype": "BOOL", "shape": [-1]} in told
        reply = json.loads(server.infer(tensor(rows), parameters={"learn": False}).body)
        (marks,) = (one["data"] for one in reply["outputs"] if one["name"] == "rejected")
        assert {type(mark) for mark in marks} == {bool}
    with serving(pets, tmp_path / "other") as server:
        assert "rejected" not in server.ask("GET", "/v2/models/pta").body.decode()
        assert "rejected" not in server.infer(tensor(rows)).body.decode()


def test_a_killed_service_has_the_state_of_the_samples_that_were_not_held(pets, tmp_path):
    rows = load_features(pets).samples.features.numpy()
    options = ("--features-only", pets, "--reject-holds", 0.9)
    with process(tmp_path / "state", *options) as server:
        with Client(server.url, server.token) as client:
            first = [client.infer(part, id=str(number)) for number, part in enumerate(np.array_split(rows, 6))]
            state = client.export_state()
        server.process.kill()
    sequences = np.concatenate([reply.outputs["sequence"] for reply in first])
    assert -1 in sequences
    assert sequences.max() > 0
    with process(tmp_path / "state", *options) as server, Client(server.url, server.token) as client:
        assert client.export_state() == state
        for number, part in enumerate(np.array_split(rows, 6)):
            again, before = client.infer(part, id=str(number)), first[number].outputs
            learned = before["sequence"] >= 0
            assert again.outputs["sequence"].tolist() == before["sequence"].tolist()
            assert again.outputs["probability"][learned].tolist() == before["probability"][learned].tolist()
        assert client.export_state() == state

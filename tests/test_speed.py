"""Speed one image at a time: the method that is timed is the one that has seen the stream, and answers as it would."""

import pytest
import torch

from pta.errors import InvalidParameter, InvalidSamples
from pta.evaluation.result_store import ResultStore
from pta.evaluation.stream import Stream
from pta.images import decode_image
from pta.inference.encoding import Views
from pta.reproduction import speed
from pta.reproduction.declaration import parse_experiment
from pta.reproduction.library import Library
from pta.reproduction.measure import measure as measure_plans
from pta.reproduction.plan import place
from pta.reproduction.speed import TIMED, measure_speed
from pta.reproduction.table import CANNOT
from pta.reproduction.world import World

MANY, FEW = "fashion/gaussian_noise/3/125", "fashion/gaussian_noise/3/4"


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PTA_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield Library(tmp_path_factory.mktemp("features"), model="embedded")


@pytest.fixture
def steps(monkeypatch):
    """What every adapter of the measurement was given and answered, a pair a step."""
    seen = []

    def create(*arguments, **options):
        adapter = create_adapter(*arguments, **options)
        step = adapter.step

        def watched(samples):
            seen.append((samples, step(samples)))
            return seen[-1][1]

        adapter.step = watched
        return adapter

    create_adapter = speed.create_adapter
    monkeypatch.setattr(speed, "create_adapter", create)
    return seen


def measure(library, dataset, method, views=None, **parameters):
    images, data = library.images(dataset), library.features(dataset)
    return measure_speed(library.encoder, images, data, method, parameters, views)


def test_the_record_says_what_was_timed_and_is_consistent(library):
    record = measure(library, MANY, "pta", h=3.0)
    assert (record["n"], record["learnt_before"], record["seed"]) == (TIMED, 125 - TIMED, 1)
    assert (record["dataset"], record["method"], record["params"]["h"]) == (library.features(MANY).name, "pta", 3.0)
    assert record["images_per_second"] == pytest.approx(1 / record["seconds"])
    assert record["stream_seconds"] == pytest.approx(125 * record["seconds"])
    assert record["memory_mib"] is None  # there is none to ask for on a CPU
    assert record["accuracy"] is None
    assert record["state_bytes"] > 0


def test_the_share_of_clip_is_of_the_same_images_in_turn(library, monkeypatch):
    timed = []

    def answer_in(encoder, pixels, adapter, *, takes_views):
        timed.append(adapter.name)
        return {"clip": 2.0, "pta": 8.0}[adapter.name]

    monkeypatch.setattr(speed, "_answer_in", answer_in)
    record = measure(library, FEW, "pta")
    assert (record["n"], record["learnt_before"]) == (4, 0)  # where there are few images, all of them are timed
    assert (record["share_of_clip"], record["images_per_second"]) == (25.0, 0.125)
    assert timed == ["pta", "clip", "clip", "pta"] * 2


@pytest.mark.parametrize("method", ["pta", "onzeta"])
def test_the_timed_method_is_given_the_stream_in_order(library, steps, method):
    record = measure(library, MANY, method)
    data = library.features(MANY)
    order = Stream().order(data, 1, 256)
    given = torch.cat([samples.features for samples, _ in steps])
    assert [len(samples) for samples, _ in steps] == [record["learnt_before"], *[1] * TIMED]
    torch.testing.assert_close(given, data.samples.features[order], rtol=0, atol=1e-5)
    timed = list(steps)
    again = speed.create_adapter(method, data.classifier, source=data.samples)
    for samples, logits in timed:  # OnZeta magnifies rounding, so it is asked about the very same features
        torch.testing.assert_close(again.step(samples), logits, rtol=0, atol=1e-3)
    assert record["state_bytes"] == again.state_bytes


def test_a_method_that_takes_views_is_given_those_of_the_image(library, steps):
    record = measure(library, FEW, "mta", Views(8, "crops"))
    assert (record["n"], record["learnt_before"]) == (4, 0)
    images, order = library.images(FEW).samples, Stream().order(library.features(FEW), 1, 256)
    for number, (samples, _) in zip(order, steps, strict=True):
        assert samples.views.shape == (1, 8, library.encoder.dim)
        torch.testing.assert_close(samples.views[:, 0], samples.features)
        picture = decode_image(images[number].read(), "")
        views = Views(8, "crops").of(picture, int(number), library.encoder.preprocess)
        expected = library.encoder.encode(torch.from_numpy(views))
        torch.testing.assert_close(samples.views[0], expected, atol=1e-5, rtol=0)


def test_a_method_that_cannot_be_timed_in_this_way_is_refused(library):
    with pytest.raises(InvalidParameter, match="tca runs the model itself"):
        measure(library, FEW, "tca")
    with pytest.raises(InvalidParameter, match="transclip answers a whole stream at once"):
        measure(library, FEW, "transclip")
    with pytest.raises(InvalidSamples, match="views"):
        measure(library, FEW, "mta")


def test_speed_is_measured_once_and_what_cannot_be_timed_stops_nothing(library, tmp_path, steps):
    text = "title = 'x'\n[usual]\nmetric = 'images_per_second'\n[[columns]]\nlabel = 'it/s'\ndatasets = 'few'\n"
    text += "".join(f"[[rows]]\nlabel = '{one}'\nmethod = '{one}'\n" for one in ("tca", "pta", "mta"))
    plan = place(parse_experiment("mine", text), World(True, {"few": (FEW,)}, {}, (), ()))
    jobs = list(plan.all_jobs)
    first = measure_plans([plan], library, ResultStore(tmp_path))
    assert first[jobs[0].key].missing == CANNOT
    assert "tca runs the model itself" in first[jobs[0].key].why
    (record,) = first[jobs[1].key].records
    assert record["images_per_second"] > 0
    assert record["made"]["key"]
    assert len(steps) == 8  # four images by each of two methods
    assert steps[4][0].views.shape[1] == 64
    assert measure_plans([plan], library, ResultStore(tmp_path)) == first
    assert len(steps) == 8


def test_a_speed_is_measured_again_on_another_machine_or_by_other_code(library, tmp_path, monkeypatch):
    row = 'label = "r", method = "clip", seeds = [2], metric = "images_per_second"'
    text = f'title = "t"\ncolumns = [{{ label = "A", datasets = "a" }}]\nrows = [{{ {row} }}]'
    plan = place(parse_experiment("mine", text), World(False, {"a": (FEW,)}, {}, (), ()))
    store = ResultStore(tmp_path)

    def measured():
        (outcome,) = measure_plans([plan], library, store).values()
        (record,) = outcome.records
        return record["made"]["key"]

    first = measured()
    assert measured() == first
    monkeypatch.setattr("pta.reproduction.measure.hardware", lambda device: "another machine")
    elsewhere = measured()
    monkeypatch.setattr("pta.reproduction.measure.code_version", lambda files: "another version")
    assert len({first, elsewhere, measured()}) == 3
    assert len(store) == 3


def test_images_that_were_left_out_make_speed_unknown(library):
    data = library.features(FEW)
    with pytest.raises(InvalidSamples, match="some pictures could not be read"):
        measure_speed(library.encoder, library.images(MANY), data, "clip", {})

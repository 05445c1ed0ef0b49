"""Speed one image at a time: the methods that are timed have seen the stream, take turns, and answer as they would."""

import pytest
import torch
from photos import decode_image
from refusals import refusal

from pta.measure.reproduce import speed
from pta.measure.reproduce.declaration import parse_experiment
from pta.measure.reproduce.fill import fill
from pta.measure.reproduce.library import Library
from pta.measure.reproduce.outcomes import measure
from pta.measure.reproduce.plan import place
from pta.measure.reproduce.profile import Profile
from pta.measure.reproduce.speed import TimedMethod, measure_speeds
from pta.measure.reproduce.table import CANNOT
from pta.measure.result_store import ResultStore
from pta.measure.stream import Stream
from pta.run.reading import Views

MANY, FEW = "fashion/gaussian_noise/3/14", "fashion/gaussian_noise/3/4"
TABLE = """
title = "t"
columns = [
    { label = "it/s", datasets = "few", metric = "images_per_second" },
    { label = "of CLIP", datasets = "few", metric = "share_of_clip" },
]
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return Library(tmp_path_factory.mktemp("features"), model="embedded")


@pytest.fixture(autouse=True)
def ten_images(monkeypatch):
    monkeypatch.setattr(speed, "TIMED", 10)


@pytest.fixture
def steps(monkeypatch):
    """What every adapter of the measurement was given and answered: method, samples, logits."""
    seen = []

    def create(name, *arguments, **options):
        adapter = create_adapter(name, *arguments, **options)
        step = adapter.step

        def watched(samples):
            seen.append((name, samples, step(samples)))
            return seen[-1][2]

        adapter.step = watched
        return adapter

    create_adapter = speed.create_adapter
    monkeypatch.setattr(speed, "create_adapter", create)
    return seen


@pytest.fixture
def clock(monkeypatch):
    """How long an answer takes, by method and round."""
    takes = {}
    answer = TimedMethod.answer

    def timed(one, pixels):
        answer(one, pixels)
        one.rounds[-1][-1] = takes[one.method][len(one.rounds) - 1]

    monkeypatch.setattr(TimedMethod, "answer", timed)
    return takes


def timed(library, dataset, *methods, views=None, **parameters):
    data = library.features(dataset)
    contenders = [TimedMethod(method, parameters, data, views) for method in methods]
    return measure_speeds(library.encoder, library.images(dataset), contenders)


def plan_of(*methods):
    rows = "".join(f"[[rows]]\nlabel = '{one}'\nmethod = '{one}'\n" for one in methods)
    return place(parse_experiment("mine", TABLE + rows), Profile(True, {"few": (FEW,)}, {}))


def test_the_record_says_what_was_timed_and_is_consistent(library, clock):
    clock |= {"clip": [2.0] * 5, "pta": [8.0] * 5}
    (record,) = timed(library, MANY, "pta", h=3.0)
    assert (record["n"], record["learned_before"], record["accuracy"]) == (10, 4, None)
    assert (record["dataset"], record["method"], record["params"]["h"]) == (library.features(MANY).name, "pta", 3.0)
    speeds = {"seconds": 8.0, "images_per_second": 0.125, "share_of_clip": 25.0, "stream_seconds": 14 * 8.0}
    assert record["rounds"] == [speeds] * 5
    assert record["memory_mib"] is None  # there is none to ask for on a CPU
    assert record["state_bytes"] > 0


def test_every_image_goes_through_zero_shot_and_each_method_in_an_order_that_changes(library, steps):
    clip, _ = timed(library, FEW, "clip", "pta")
    answers = [(name, samples.features) for name, samples, _ in steps]
    turns = [answers[at : at + 2] for at in range(0, 8, 2)]
    assert {tuple(name for name, _ in turn) for turn in turns} == {("clip", "pta"), ("pta", "clip")}
    assert all(torch.equal(*(features for _, features in turn)) for turn in turns)
    assert len(clip["rounds"]) == 4  # where there are few images, all of them are timed
    assert {one["share_of_clip"] for one in clip["rounds"]} == {100.0}  # it is the zero-shot that others are beside


@pytest.mark.parametrize("method", ["pta", "onzeta"])
def test_the_timed_method_is_given_the_stream_in_order(library, steps, method):
    (record,) = timed(library, MANY, method)
    data = library.features(MANY)
    own = [(samples, logits) for name, samples, logits in steps if name == method]
    assert [len(samples) for samples, _ in own] == [record["learned_before"], *[1] * 10]
    given = torch.cat([samples.features for samples, _ in own])
    torch.testing.assert_close(given, data.samples.features[Stream().order(data, 1, 256)], rtol=0, atol=1e-5)
    again = speed.create_adapter(method, data.classifier, source=data.samples)
    for samples, logits in own:  # OnZeta magnifies rounding, so it is asked about the very same features
        torch.testing.assert_close(again.step(samples), logits, rtol=0, atol=1e-3)
    assert record["state_bytes"] == again.state_bytes


def test_a_method_that_takes_views_is_given_those_of_the_image(library, steps):
    (record,) = timed(library, FEW, "mta", views=Views(8, "crops"))
    assert (record["n"], record["learned_before"]) == (4, 0)
    images, order = library.images(FEW).samples, Stream().order(library.features(FEW), 1, 256)
    for number, samples in zip(order, [samples for name, samples, _ in steps if name == "mta"], strict=True):
        picture = decode_image(images[number].read(), "")
        views = Views(8, "crops").of(picture, int(number), library.encoder.preprocess)
        expected = library.encoder.encode(torch.from_numpy(views))
        torch.testing.assert_close(samples.views[0], expected, atol=1e-5, rtol=0)
        torch.testing.assert_close(samples.views[:, 0], samples.features)


def test_a_method_that_tunes_prompts_is_given_the_model(library, steps):
    (record,) = timed(library, FEW, "tpt", views=Views(8, "crops"))
    assert record["n"] == 4
    assert all(torch.isfinite(logits).all() for name, _, logits in steps if name == "tpt")


def test_what_cannot_be_timed_in_this_way_is_refused(library):
    for method, complaint in (
        ("tca", "tca runs the model itself"),
        ("difftpt", "difftpt needs generated pictures"),
        ("transclip", "predicts a whole stream at once"),
        ("mta", "views"),
    ):
        assert complaint in refusal(timed, library, FEW, method)
    other = [TimedMethod("clip", {}, library.features(FEW))]
    assert "some pictures could not be read" in refusal(measure_speeds, library.encoder, library.images(MANY), other)


def test_methods_of_a_table_are_timed_together_once_and_what_cannot_be_stops_nothing(library, tmp_path, steps):
    plan, store = plan_of("tca", "pta", "mta"), ResultStore(tmp_path)
    of_tca, _, of_pta, _, of_mta, _ = plan.all_jobs
    first = measure([plan], library, store)
    assert first[of_tca.key].missing == CANNOT
    assert "tca runs the model itself" in first[of_tca.key].why
    assert [record["seed"] for record in first[of_pta.key].records] == [1, 2, 3, 4]  # the rounds
    keys = {record["made"]["key"] for job in (of_pta, of_mta) for record in first[job.key].records}
    assert len(keys) == len(store) == 1  # measured in turn, so one result
    assert {name: samples.views is not None for name, samples, _ in steps} == {"clip": 0, "pta": 0, "mta": 1}
    count = len(steps)
    assert measure([plan], library, store) == first
    assert len(steps) == count == 4 * 3  # four images by each of the two, and by zero-shot


def test_speeds_are_measured_again_beside_others_on_another_machine_or_by_other_code(library, tmp_path, monkeypatch):
    store = ResultStore(tmp_path)
    for count, methods in enumerate((["clip"], ["clip"], ["clip", "pta"])):
        measure([plan_of(*methods)], library, store)
        assert len(store) == (1, 1, 2)[count]
    for count, changed in enumerate(("hardware", "code_version"), 3):
        monkeypatch.setattr(f"pta.measure.reproduce.outcomes.{changed}", lambda given: "another")
        measure([plan_of("clip")], library, store)
        assert len(store) == count


def test_a_speed_is_the_median_of_its_rounds_and_shows_the_least_and_the_most(library, tmp_path, clock):
    clock |= {"clip": [1.0, 1.0, 1.0, 1.0], "pta": [2.0, 1.25, 4.0, 1.6]}
    plan = plan_of("clip", "pta")
    table = fill(plan, measure([plan], library, ResultStore(tmp_path)), {})
    shown = [[cell.texts for cell in line.cells] for line in table.lines]
    assert shown == [[["1.00"], ["100.00"]], [["0.56 [0.25 to 0.80]"], ["56.25 [25.00 to 80.00]"]]]
    assert any("medians of rounds" in note for note in table.remarks)


def test_the_memory_of_a_method_is_that_of_the_model_and_of_its_own_state(library, monkeypatch):
    mib, model, own, peak, made = 2**20, 50, 100, 7, []
    monkeypatch.setattr(TimedMethod, "_is_cuda", property(lambda one: True))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: mib * (model + own * len(made)))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: mib * (model + own * len(made) + peak))
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: None)
    create = speed.create_adapter
    monkeypatch.setattr(speed, "create_adapter", lambda *given, **more: made.append(given) or create(*given, **more))
    for record in timed(library, FEW, "tda", "pta"):  # which are there at once, beside zero-shot
        assert record["memory_mib"] == model + own + peak

"""`pta demo`: its numbers, its report, and what it refuses."""

import io
import json
import os
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from pages import FAULTS, PHONE, Balance, assert_loads_nothing, looking, needs_browser
from refusals import refusal

import pta
from pta.cli import demo as command
from pta.data.fashion import load_fashion_test
from pta.data.shifts.images import apply_shift
from pta.measure.demo.report import render_report
from pta.measure.demo.run_demo import run_cloud_demo, run_demo, with_median_time
from pta.measure.difference import Difference
from pta.models import EMBEDDED_TEMPLATES, EmbeddedEncoder

LIMIT = 250


@pytest.fixture(scope="module")
def result():
    return run_demo("blur", severity=3, seed=5, limit=LIMIT)


@pytest.fixture(scope="module")
def page(result):
    return render_report(result)


@pytest.fixture
def losing(result):
    """The methods' answers exchanged: what was gained is lost."""
    before, after = result.zero_shot.predictions, result.pta.predictions
    return replace(
        result,
        zero_shot=replace(result.zero_shot, predictions=after),
        pta=replace(result.pta, predictions=before),
    )


def untimed(result):
    """The same result as if every method took no time."""
    runs = {"zero_shot": result.zero_shot, "pta": result.pta}
    still = {name: replace(run, seconds=0.0) for name, run in runs.items()}
    others = tuple(replace(run, seconds=0.0) for run in result.others)
    return replace(result, **still, others=others, encoder_microseconds=0.0)


def visible_text(page):
    """What a reader sees: no styles, scripts or tags, and every run of white space as one blank."""
    body = re.sub(r"<(style|script)>.*?</\1>", "", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]*>", " ", body).split()).replace("\N{NO-BREAK SPACE}", " ")


# -- the numbers ----------------------------------------------------------------------------------------------------


def test_the_numbers_equal_an_independent_recount(result):
    test, encoder = load_fashion_test(), EmbeddedEncoder.load()
    images = apply_shift(test.images[:LIMIT], "blur", 3, 5)
    features = encoder.encode(encoder.preprocess(images))
    anchors = sum(encoder.encode_texts([t.format(name) for name in test.class_names]) for t in EMBEDDED_TEMPLATES)
    adapter = pta.PTA(pta.ZeroShotClassifier(anchors, test.class_names, encoder.scale))
    per_class = np.zeros((10, 5), int)  # images, right before and after, fixed, broken
    both = []
    order = np.random.default_rng(5).permutation(LIMIT).tolist()
    for i in order:
        label = test.labels[i]
        before = int((features[i] @ anchors.T / anchors.norm(dim=1)).argmax()) == label
        after = int(adapter.step(features[i : i + 1]).argmax()) == label
        per_class[label] += (1, before, after, after and not before, before and not after)
        both.append((before, after))

    told = result.summary()
    _, before, after, fixed, broken = per_class.sum(axis=0).tolist()
    accuracies = [100 * before / LIMIT, 100 * after / LIMIT]
    assert [method["accuracy"] for method in told["methods"][:2]] == accuracies
    assert result.zero_shot.order.tolist() == result.pta.order.tolist() == order
    ends = [0, 63, 126, 188, LIMIT]  # 250 images in four parts, the longer ones first
    quarters = [100 * np.mean(both[start:end], axis=0) for start, end in pairwise(ends)]
    assert np.array([(q["zero_shot"], q["pta"]) for q in told["quarters"]]) == pytest.approx(np.array(quarters))
    assert (told["fixed"], told["broken"]) == (fixed, broken)
    assert told["methods"][1]["gain_points"] == 100 * (fixed - broken) / LIMIT
    classes = {c["name"]: (c["n"], c["zero_shot"], c["pta"]) for c in told["classes"]}
    for name, (n, before, after, *_) in zip(test.class_names, per_class.tolist(), strict=True):
        assert classes.pop(name) == pytest.approx((n, 100 * before / n, 100 * after / n))
    assert classes == {}


def test_the_interval_of_the_gain_is_that_of_the_mean_over_five_orders(result):
    gains, (low, high) = result.summary()["orders"]["gains_points"], result.mean_difference.interval
    assert len(gains) == 5
    assert gains[0] == pytest.approx(result.difference.difference)
    assert np.mean(gains) == pytest.approx(result.mean_difference.difference)
    assert low < np.mean(gains) < high
    zero_shot, right = result.zero_shot, np.zeros((5, LIMIT))
    again = [run for run in result.reordered if run.method == "pta"]
    for row, run in zip(right, (result.pta, *again), strict=True):
        row[run.order] = run.predictions == result.labels[run.order]
    before = np.empty(LIMIT)
    before[zero_shot.order] = zero_shot.predictions == result.labels[zero_shot.order]
    drawn = np.random.default_rng(7).integers(LIMIT, size=(4000, LIMIT))
    means = 100 * (right.mean(axis=0) - before)[drawn].mean(axis=1)
    assert (low, high) == pytest.approx(tuple(np.quantile(means, [0.025, 0.975])), abs=0.3)


def test_the_time_of_a_sample_is_the_median_over_the_orders_and_stands_beside_the_encoders(
    result, pta, tmp_path, monkeypatch
):
    times = {"clip": iter((5, 1, 2, 9)), "pta": iter((30, 10, 20, 90))}
    reordered = [replace(run, seconds=next(times[run.method])) for run in result.reordered]
    median = [
        with_median_time(replace(run, seconds=seconds), reordered).seconds
        for run, seconds in ((result.zero_shot, 3), (result.pta, 40))
    ]
    assert median == [3, 30]
    timed = replace(untimed(result), pta=replace(result.pta, seconds=30), encoder_microseconds=1234.5)
    assert timed.summary()["methods"][1]["microseconds_per_sample"] == pytest.approx(30e6 / LIMIT)
    monkeypatch.setattr(command, "run_demo", lambda *args, **kwargs: timed)
    printed = pta("demo", "--report", tmp_path / "r.html").stdout
    assert "µs per sample" in printed
    assert "120,000 " in printed
    assert "The encoder takes 1,234 µs per image" in printed
    assert {"120,000", "1,234"} <= set(visible_text(render_report(timed)).split())


def test_progress_is_told_up_to_the_last_image():
    told = []
    run_demo("contrast", severity=1, limit=150, on_encoded=lambda done, total: told.append((done, total)))
    assert told == [(100, 150), (150, 150)]


@pytest.mark.parametrize("run", [run_demo, run_cloud_demo])
def test_torch_computes_on_one_thread_and_then_on_as_many_as_before(run):
    before, used = torch.get_num_threads(), []
    try:
        torch.set_num_threads(before + 1)
        run(limit=2, on_encoded=lambda *_: used.append(torch.get_num_threads()))
        assert (used, torch.get_num_threads()) == ([1], before + 1)
    finally:
        torch.set_num_threads(before)


def test_a_gain_a_loss_and_no_difference_are_said_to_be_such(result):
    def verdict(before, after):
        runs = [replace(result.pta, predictions=predictions) for predictions in (before, after)]
        shown = replace(result, zero_shot=runs[0], pta=runs[1]).verdict
        assert shown == Difference.between(*([run] for run in runs)).sentence("PTA")
        return shown

    answers, labels = result.pta.predictions, result.pta.labels
    assert verdict(answers, labels).startswith("PTA gained")
    assert verdict(labels, answers).startswith("PTA lost")
    assert verdict(answers, answers).startswith("No difference found")


# -- the report -----------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_report_byte_for_byte(result):
    again = run_demo("blur", severity=3, seed=5, limit=LIMIT)
    assert render_report(untimed(again)) == render_report(untimed(result))


def test_the_report_says_the_true_numbers_whether_they_are_gains_or_losses(result, losing):
    for one in (result, losing):
        text = visible_text(render_report(one))
        accuracies = (f"{method['accuracy']:.2f} %" for method in one.summary()["methods"])
        changes = (f"Fixed: {one.difference.fixed:.0f}", f"Broken: {one.difference.broken:.0f}")
        for said in (*accuracies, *changes, one.verdict, one.over_orders, one.model_fingerprint):
            assert said in text
        assert f"pta {pta.__version__}" in text


def test_the_report_names_the_call_that_gives_it_again(result, page):
    assert "run_demo(&#34;blur&#34;, severity=3, seed=5, limit=250)" in page
    assert replace(result, limit=None).call == "pta demo --shift blur --severity 3 --seed 5"


def test_the_report_needs_nothing_from_outside_and_its_tags_are_balanced(page, losing):
    assert_loads_nothing(page)
    assert "url(" not in page
    for text in (page, render_report(losing)):
        at_once = {tag for tag, _ in Balance(text).closed_at_once}
        assert at_once <= {"line", "polyline", "polygon"}  # only SVG closes its elements at once


def test_names_are_escaped(result):
    names = ['<script>alert("x")</script>', *result.data.classifier.class_names[1:]]
    classifier = pta.ZeroShotClassifier(result.data.classifier.anchors, names)
    hostile = replace(result, shift="<b>&", data=replace(result.data, classifier=classifier))
    page = render_report(hostile)
    assert page.count("<script>") == 1  # its own
    assert "<b>&" not in page
    assert 'alert("x")' not in page


@pytest.mark.parametrize("limit", [1, 2, 30])
def test_a_short_stream_has_a_report_too(limit):
    result = run_demo("pixelate", 1, limit=limit)
    assert result.verdict in visible_text(render_report(result))


@needs_browser
def test_a_browser_opens_the_report_and_runs_its_script(page, tmp_path):
    point_at_the_end = """() => {
        const drawing = document.querySelector(".drawing"), box = drawing.getBoundingClientRect();
        drawing.dispatchEvent(new PointerEvent("pointermove", {clientX: box.right, clientY: box.top}));
        const is_shown = [...document.images].every((one) => one.complete && one.naturalWidth === 28);
        return [is_shown, document.documentElement.scrollWidth <= innerWidth, document.body.textContent];
    }"""
    (tmp_path / "report.html").write_text(page, encoding="utf-8")
    with looking(600) as look:
        is_shown, fits, text = look((tmp_path / "report.html").as_uri(), point_at_the_end)
    assert (is_shown, fits) == (True, True)
    assert re.search(rf"after {LIMIT} images: [+−]\d+\.\d\d points", text)


@needs_browser
def test_a_phone_shows_every_column_of_the_report(result, tmp_path):
    names = ["ankle boot with laces", *result.data.classifier.class_names[1:]]
    classifier = pta.ZeroShotClassifier(result.data.classifier.anchors, names)
    page = render_report(replace(result, data=replace(result.data, classifier=classifier)))
    (tmp_path / "report.html").write_text(page, encoding="utf-8")
    with looking(PHONE) as look:
        assert look((tmp_path / "report.html").as_uri(), FAULTS) == []


# -- the command ----------------------------------------------------------------------------------------------------


def test_the_command_prints_a_plain_table_and_writes_report_and_json(pta, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "run_demo", lambda *args, **kwargs: run_demo(*args, limit=200, **kwargs))
    done = pta("demo", "--shift", "rotate", "--report", tmp_path / "r.html", "--json", tmp_path / "r.json")
    expected = run_demo("rotate", limit=200)
    assert done.returncode == 0, done.stderr
    assert expected.verdict in done.stdout
    assert expected.over_orders in done.stdout
    assert not {"\x1b", "\r"} & set(done.stdout + done.stderr)
    assert expected.verdict in visible_text((tmp_path / "r.html").read_text(encoding="utf-8"))
    told, numbers = json.loads((tmp_path / "r.json").read_text()), expected.summary()
    for measured in (*told["methods"], *numbers["methods"]):
        assert measured.pop("microseconds_per_sample") > 0
    for measured in (told, numbers):
        assert measured.pop("encoder_microseconds_per_sample") > 0
    assert told == numbers | {"report": str(tmp_path / "r.html")}
    monkeypatch.setattr(command, "run_demo", lambda *args, **kwargs: expected)
    printed = pta("demo", "--report", tmp_path / "r.html", "--replace", "--json", "-").stdout
    assert json.loads(printed)["fixed"] == numbers["fixed"]  # and nothing else is printed


def test_a_terminal_sees_both_accuracies_moving(result, monkeypatch):
    monkeypatch.setattr(command, "_SECONDS", 0)
    screen = io.StringIO()
    command._replay(command.Console(file=screen, force_terminal=True, width=100, color_system=None), result)
    frames = re.findall(r"(\d+) of 250 images.*?PTA is at ([+-]\d+\.\d\d) points", screen.getvalue())
    assert len(set(frames)) > 50
    assert frames[-1] == ("250", f"{result.difference.difference:+.2f}")


@pytest.mark.parametrize(
    ("call", "wrong", "message"),
    [
        (command.demo, {"shift": "gausian_noise"}, "did you mean 'gaussian_noise'"),
        (command.demo, {"severity": 6}, "from 1 to 5"),
        (command.demo, {"severity": 0}, "from 1 to 5"),
        (command.demo, {"seed": -1}, "from 0"),
        (run_demo, {"limit": 0}, "from 1 to 2000"),
        (run_demo, {"limit": 2001}, "from 1 to 2000"),
        *((command.demo, {"report": Path(place)}, "cannot write") for place in ("missing/r.html", ".", "pipe")),
        pytest.param(
            *(command.demo, {"report": Path("closed/r.html")}, "permission denied"),
            marks=pytest.mark.skipif(os.geteuid() == 0, reason="this user may write everywhere"),
        ),
    ],
)
def test_what_cannot_be_done_is_refused_before_the_work(call, wrong, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(EmbeddedEncoder, "load", lambda: pytest.fail("the work had begun"))
    os.mkfifo("pipe")
    Path("closed").mkdir(0o500)
    assert message in refusal(call, **wrong)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["closed", "pipe"]


def test_a_report_of_someone_else_is_not_overwritten(pta, tmp_path):
    (tmp_path / "mine.html").write_text("mine")
    done = pta("demo", "--report", tmp_path / "mine.html")
    assert (done.returncode, (tmp_path / "mine.html").read_text()) == (2, "mine")
    assert "exists; --replace overwrites it" in done.stderr

"""`pta demo --modality points`: its numbers, its report, and what it refuses."""

import json
import re

import numpy as np
import pytest
import torch
from pages import Balance, assert_loads_nothing, looking, needs_browser
from refusals import refusal

import pta
from pta.data.packaged_clouds import load_furniture_test
from pta.data.point_shapes import corrupted
from pta.data.prompts import build_classifier
from pta.measure.demo.report import render_report
from pta.measure.demo.run_demo import run_cloud_demo
from pta.measure.report.pictures import still_cloud, turning_cloud
from pta.models import load_encoder
from pta.models.packaged.embedded_points import POINT_TEMPLATES

LIMIT = 40


@pytest.fixture(scope="module")
def result():
    return run_cloud_demo("furniture", "jitter", severity=3, seed=5, limit=LIMIT)


@pytest.fixture(scope="module")
def page(result):
    return render_report(result)


def test_the_numbers_equal_an_independent_recount(result):
    test, encoder = load_furniture_test(), load_encoder("embedded-points")
    clouds = torch.from_numpy(np.stack(corrupted(test.clouds[:LIMIT], ("jitter", 3), 5))).float()
    samples = pta.Samples.of(encoder.encode(clouds), patches=encoder.encode_tokens(clouds))[
        torch.from_numpy(result.pta.order)
    ]
    classifier = build_classifier(encoder, test.class_names, POINT_TEMPLATES)
    assert [name for name, _ in result.runs][:3] == ["zero-shot", "PTA", "point-cache"]
    for _, run in result.runs:
        parameters = {"h": 50.0} if run.method == "pta" else {}
        if run.method != "onzeta":  # which magnifies rounding
            adapter = pta.create_adapter(run.method, classifier, **parameters)
            answers = adapter.step(samples).argmax(dim=1).numpy()
            assert (answers == run.predictions).mean() >= 0.97  # some classes may be closer than rounding
        assert run.accuracy == pytest.approx(100 * (run.predictions == test.labels[result.pta.order]).mean())


def test_the_report_says_the_numbers_of_all_methods_and_needs_nothing_from_outside(result, page):
    text = re.sub(r"<[^>]*>", " ", page).replace("\N{NO-BREAK SPACE}", " ")
    for name, run in result.runs:
        assert f"{name} <b>{run.accuracy:.2f}\N{NO-BREAK SPACE}%</b>" in page  # in the legend
    assert 'run_cloud_demo("furniture", "jitter", severity=3, seed=5, limit=40)' in page.replace("&#34;", '"')
    assert "Fashion" not in text
    assert "images" not in text
    assert_loads_nothing(page)
    assert Balance(page)


def test_a_difference_that_can_be_chance_is_not_called_a_gain(result, page):
    low, high = result.difference.interval
    assert low <= 0 <= high
    assert result.verdict.startswith("No difference found")
    assert result.verdict.replace(" %", "\N{NO-BREAK SPACE}%") in page


def test_pictures_show_every_side_and_a_cloud_that_turns_is_another_from_the_side():
    slab = np.random.default_rng(1).uniform(-1, 1, (500, 3)) * (0.6, 0.6, 0.02)
    assert still_cloud(slab, "a <slab>").count("&lt;slab&gt;") == 2
    assert turning_cloud(slab, "slab") != turning_cloud(slab[:, [2, 1, 0]], "slab")


@needs_browser
def test_a_browser_turns_the_clouds(page, tmp_path):
    turning = """() => {
        const one = document.querySelector(".turning img"), pictures = one.naturalWidth / one.naturalHeight;
        const shown = Math.round(one.clientWidth / one.parentElement.clientWidth);
        return [pictures, getComputedStyle(one).animationName, shown];
    }"""
    (tmp_path / "report.html").write_text(page, encoding="utf-8")
    with looking(800) as look:
        assert look((tmp_path / "report.html").as_uri(), turning) == [24, "turn", 24]


@pytest.mark.extensive
def test_the_command_writes_report_and_json(pta, tmp_path):
    report = tmp_path / "report.html"
    done = pta(
        "demo", "--modality", "points", "--shift", "rotate", "--severity", "0", "--report", report, "--json", "-"
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["data"], told["n"]) == ("point_shapes/furniture/rotate/0", len(load_furniture_test()))
    assert [one["method"] for one in told["methods"]][:3] == ["clip", "pta", "point-cache"]
    assert "point-cache" in report.read_text()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"source": "furnitur"}, "did you mean 'furniture'"),
        ({"shift": "blur"}, "unknown corruption 'blur'"),
        ({"severity": 5}, "0 to 4"),
        ({"severity": True}, "0 to 4"),
        ({"limit": 0}, "limit"),
        ({"limit": 10**6}, "limit"),
        ({"seed": -1}, "seed"),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_refused_before_the_work(wrong, message):
    assert message in refusal(run_cloud_demo, **wrong)


@pytest.mark.parametrize("given", [("--source", "furniture"), ("--shift", "jitter")], ids=str)
def test_what_is_for_clouds_is_refused_of_images(pta, tmp_path, given):
    done = pta("demo", *given, "--report", tmp_path / "report.html")
    assert done.returncode == 2
    assert "--modality points" in done.stderr
    assert not (tmp_path / "report.html").exists()

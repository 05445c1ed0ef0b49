"""What other benchmarks print: every number of the facts stands once in an experiment, and no other number does."""

import json
from collections import Counter
from pathlib import Path

import pytest

from pta.measure.reproduce.declaration import GROUPS, load_experiment, load_experiments
from pta.measure.reproduce.plan import _place_columns, _printed
from pta.measure.reproduce.profile import load_profile

FACTS = json.loads((Path(__file__).parent / "golden" / "rival_benchmarks.json").read_text(encoding="utf-8"))
PAPER = load_profile("paper")
SETS = ["ImageNet", "Flowers102", "DTD", "OxfordPets", "StanfordCars", "UCF101", "Caltech101", "Food101", "SUN397"]
SETS += ["Aircraft", "EuroSAT"]
OOD = ["ImageNet-A", "ImageNet-V2", "ImageNet-R", "ImageNet-Sketch"]
COLUMNS = {
    "ttabc-shifts": ["ImageNet", *OOD, "natural_avg", "corruption_avg"],
    "ttabc-averages": ["natural_avg", "fine_grained_avg", "corruption_avg"],
    "ttabc-cost": ["memory", "time per sample", "correlation with batch accuracy"],
    "ttabc-dmn": [*SETS, "mean"],
    "ttabc-dmn-rn50": [*SETS, "mean"],
    "ttabc-dmn-shifts": ["ImageNet", *OOD, "average", "ood_average"],
    "ttabc-dmn-logs": [*SETS, *OOD],
    "ttabc-ecalp": SETS,
}
"""What the facts call the columns."""

EXPERIMENTS = {
    ("natural and corruption shifts", "ViT-B/16"): "ttabc-shifts",
    ("averages per shift", "ViT-B/16"): "ttabc-averages",
    ("DMN paper Table 3, 11 sets", "ViT-B/16"): "ttabc-dmn",
    ("DMN paper Table 3, 11 sets", "RN50"): "ttabc-dmn-rn50",
    ("README table, distribution shift", "RN50"): "ttabc-dmn-shifts",
    ("run log, 11 sets, zero-shot", "ViT-B/16"): "ttabc-dmn-logs",
    ("run log, distribution shift", "ViT-B/16"): "ttabc-dmn-logs",
}
LOGS = {
    "DMN: text classifier, view 0 (CLIP with CuPL text)": "text alone",
    "DMN: memory prediction alone": "memory alone",
    "DMN: text + w*memory, w best on test labels": "text and memory",
    "DMN: winning w": "weight of the memory",
}


def facts():
    """Experiment, row and column of each printed number, with the number."""
    for fact in FACTS["results"]:
        setting, method, own = fact["setting"], fact["method"], fact["values"]
        if fact["unit" if "unit" in fact else "method"] == "names":
            continue  # the winners, without numbers
        for name, value in own.items():
            if setting in COLUMNS["ttabc-cost"]:
                yield "ttabc-cost", name, setting, value
            elif setting.startswith("training-free few-shot"):
                shots = setting.split(", ")[1]
                yield "ttabc-ecalp", f"{method}: {'1 shot' if shots == '1 shots' else shots}", name, value
            else:
                yield EXPERIMENTS[setting, fact["backbone"]], LOGS.get(method, method), name, value


def declared():
    """The same of the experiments."""
    for experiment in load_experiments(["ttabc"]):
        columns = _place_columns(experiment, PAPER)
        assert len(columns) == len(COLUMNS[experiment.id])
        for row in experiment.rows:
            found = _printed(row, columns)
            for column, name in zip(columns, COLUMNS[experiment.id], strict=True):
                if column.label in found:
                    yield experiment.id, row.name, name, found[column.label]


def test_every_printed_number_stands_once_and_none_is_invented():
    wanted, there = Counter(facts()), Counter(declared())
    assert wanted - there == Counter()
    assert there - wanted == Counter()
    assert max(there.values()) == 1
    assert sum(there.values()) == 662


def test_means_that_do_not_recompute_are_errata_and_there_are_no_others():
    known = {
        (backbone, row, float(mean), float(printed))
        for backbone, row, mean, printed in FACTS["printed_means_that_do_not_recompute"]
    }
    errata = {
        (one.backbone, erratum.row, erratum.instead, erratum.printed)
        for one in load_experiments(["ttabc"])
        for erratum in one.errata
    }
    assert {(*one[:2], round(one[2], 2), one[3]) for one in known} == errata


def test_what_needs_gradients_in_the_image_tower_is_named_with_the_reason():
    rows = {row.label: row for id in GROUPS["ttabc"][:2] for row in load_experiment(id).rows}
    for name in ("SAR", "DeYO", "BATCLIP"):
        assert "gradients in the image tower" in rows[name].absent


def test_the_name_stands_for_all_of_its_experiments(pta, tmp_path):
    done = pta("reproduce", "ttabc", "--list", "--json", "list.json")
    assert done.returncode == 0, done.stderr
    listed = [one["id"] for one in json.loads((tmp_path / "list.json").read_text())]
    assert set(GROUPS["ttabc"]) < set(listed)
    assert [one.id for one in load_experiments(["ttabc", "ttabc-dmn"])] == list(GROUPS["ttabc"])


def test_a_row_without_a_method_has_a_reason_and_its_printed_numbers(pta, tmp_path):
    own = tmp_path / "own.toml"
    rows = '{ label = "CLIP", method = "clip" }, { label = "SAR", absent = "no gradients", printed = [50.0] }'
    own.write_text(f'title = "t"\nbaseline = "CLIP"\ncolumns = [{{ each = "imagenet" }}]\nrows = [{rows}]\n')
    done = pta("reproduce", own, "--data", tmp_path, "--model", "embedded", "--json", "-", "--out", "out")
    assert done.returncode == 0, done.stderr
    (table,) = json.loads(done.stdout)
    cell = table["rows"][1]["cells"]["ImageNet"]
    assert (cell["ours"], cell["paper"], cell["missing"]) == (None, 50.0, "cannot run")
    assert table["absent"]["SAR"] == "no gradients"


@pytest.mark.parametrize("row", ['{ label = "x" }', '{ label = "x", method = "clip", absent = "why" }'])
def test_a_row_has_either_a_method_or_a_reason(pta, tmp_path, row):
    own = tmp_path / "own.toml"
    own.write_text(f'title = "t"\ncolumns = [{{ each = "imagenet" }}]\nrows = [{row}]\n')
    done = pta("reproduce", own, "--offline")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "x needs either a method or, in absent, the reason why it has none" in done.stderr

"""Tables from outcomes that were made by hand, compared with means that are taken here in another way."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from tables import record

from pta.measure.reproduce.declaration import parse_experiment
from pta.measure.reproduce.fill import fill
from pta.measure.reproduce.outcomes import Outcome
from pta.measure.reproduce.plan import place
from pta.measure.reproduce.profile import Profile
from pta.measure.reproduce.table import CANNOT, NO_DATA

TITLES = {"cat": "Cat", "dog": "Dog", "cow": "Cow", "sea": "Sea"}
PROFILE = Profile(True, {"one": ("sea",), "three": ("cat", "dog", "cow")}, TITLES)
OFFLINE = Profile(False, {"one": ("lake",), "three": ("ant", "bee")}, {"one": "Water"})

EXPERIMENT = """
title = "A table"
digits = 1
baseline = "CLIP"
columns = [{ each = "three" }, { label = "Water", datasets = "one" }, { label = "Mean", mean_of = "all" }]
rows = [
    { label = "CLIP", method = "clip", printed = [40, 50, 60, 70, 55] },
    { label = "PTA", method = "pta", printed = [44, 58, 66, 76, 61] },
    { label = "spread", method = "pta", statistic = "deviation" },
    { label = "Later", method = "tda", printed = [41, 51, 61, 71, 56] },
]
errata = [{ row = "PTA", column = "Dog", printed = 58, instead = 55, why = "so it says elsewhere" }]
"""
THREE = """
title = "A table"
baseline = "CLIP"
columns = [
    { label = "Three", datasets = "three" },
    { label = "Water", datasets = "one" },
    { label = "Mean", mean_of = "all" },
]
rows = [
    { label = "CLIP", method = "clip", printed = [50, 70, 60] },
    { label = "PTA", method = "pta", printed = [56, 76, 66] },
]
"""
NO_MEAN = re.sub(r', { label = "Mean".*?}|, \d+(?=] })', "", EXPERIMENT)
UNKNOWN = EXPERIMENT.replace("instead = 55, ", "")
NO_DOGS = Outcome(missing=NO_DATA, why="dog: no folder of images")


def filled(text, found, profile=PROFILE):
    """The table, and cells and gain by row; `found` gives the accuracies of a method on a dataset, or an outcome."""
    plan = place(parse_experiment("mine", text), profile, PROFILE)
    outcomes = {}
    for job in plan.all_jobs:
        came = Outcome(missing="later") if job.method == "tda" else found(job.method, job.dataset)
        if not isinstance(came, Outcome):
            came = Outcome(tuple(record(job.dataset, job.method, seed, one) for seed, one in enumerate(came, 1)))
        outcomes[job.key] = came
    table, lines = fill(plan, outcomes, {}), {}
    for line in table.lines:
        cells = [cell for cell in line.cells if not cell.is_gain]
        gain = next((cell for cell in line.cells if cell.is_gain and cell.metric), None)
        lines[line.row.label] = SimpleNamespace(cells=cells, gain=gain)
    return table, lines


@pytest.fixture(scope="module")
def accuracies():
    rng = np.random.default_rng(5)
    datasets = ("cat", "dog", "cow", "sea", "ant", "bee", "lake")
    found = {(method, dataset): rng.uniform(20, 90, 3) for method in ("clip", "pta") for dataset in datasets}
    return lambda method, dataset: found[method, dataset]


# -- means -------------------------------------------------------------------------------------------------------------


def test_means_are_over_seeds_then_datasets_then_columns(accuracies):
    table, lines = filled(EXPERIMENT, accuracies)
    assert table.headings == ("Cat", "Dog", "Cow", "Water", "Mean", "gain over CLIP")
    for label, method in (("CLIP", "clip"), ("PTA", "pta")):
        singles = [np.sum(accuracies(method, dataset)) / 3 for dataset in ("cat", "dog", "cow", "sea")]
        assert [cell.ours for cell in lines[label].cells] == pytest.approx([*singles, np.sum(singles) / 4], abs=1e-12)
        assert {(cell.partial, cell.missing, cell.digits) for cell in lines[label].cells} == {("", "", 1)}


def test_a_column_of_a_group_is_the_mean_of_its_datasets_however_many_seeds_each_has(accuracies):
    text = EXPERIMENT.replace('label = "Water", datasets = "one"', 'label = "Three", datasets = "three"')
    _, lines = filled(text, lambda method, dataset: [10.0] if dataset == "cow" else accuracies(method, dataset))
    expected = (np.mean(accuracies("pta", "cat")) + np.mean(accuracies("pta", "dog")) + 10) / 3
    assert lines["PTA"].cells[3].ours == pytest.approx(expected)
    assert [source.dataset for source in lines["PTA"].cells[3].sources] == ["Cat", "Dog", "Cow"]


def test_deviation_is_that_of_a_sample_and_one_seed_has_none(accuracies):
    _, lines = filled(EXPERIMENT, lambda method, dataset: [50.0] if dataset == "cow" else accuracies(method, dataset))
    cells = lines["spread"].cells
    expected = [np.std(accuracies("pta", dataset), ddof=1) for dataset in ("cat", "dog", "sea")]
    assert [cells[0].ours, cells[1].ours, cells[3].ours] == pytest.approx(expected)
    assert (cells[2].ours, cells[2].missing) == (None, "one seed")
    assert (cells[4].ours, cells[4].partial) == (pytest.approx(np.mean(expected)), "3 of 4")
    assert lines["spread"].gain is None


@pytest.mark.parametrize(
    ("metric", "ours", "missing"),
    [
        ("worst_class", 51.0, ""),  # 49 + seed, in tables.py
        ("memory_mib", None, "not measured"),
        ("images_per_second", None, "not measured"),
    ],
)
def test_other_metrics_are_read_from_the_same_records_and_have_no_gain(accuracies, metric, ours, missing):
    text = EXPERIMENT.replace('datasets = "one"', f'datasets = "one", metric = "{metric}"')
    _, lines = filled(text, accuracies)
    cell = lines["PTA"].cells[3]
    assert (cell.ours, cell.missing, cell.metric) == (ours, missing, metric)
    assert all(line.gain is None for line in lines.values())


# -- the paper's numbers -----------------------------------------------------------------------------------------------


def test_the_paper_is_compared_with_and_its_errata_are_used_for_differences():
    _, lines = filled(EXPERIMENT, lambda method, dataset: [60.0, 62.0])
    dog = lines["PTA"].cells[1]
    assert (dog.printed, dog.paper, dog.difference) == (58, 55, pytest.approx(6.0))
    assert dog.erratum.why == "so it says elsewhere"
    assert lines["PTA"].cells[0].difference == pytest.approx(17.0)
    assert lines["CLIP"].cells[1].erratum is None


def without(*gone, **accuracy):
    """60 everywhere, PTA as said by dataset, and nothing on these datasets or of these methods on datasets."""

    def found(method, dataset):
        if dataset in gone or (method, dataset) in gone:
            return Outcome(missing=CANNOT, why="it cannot")
        return [accuracy.get(dataset, 60.0) if method == "pta" else 60.0]

    return found


@pytest.mark.parametrize(
    ("text", "profile", "found", "column", "expected"),
    [
        # a mean of some columns is compared with the paper's mean of the same
        (EXPERIMENT, PROFILE, without("dog"), 4, (60.0, "3 of 4", (44 + 66 + 76) / 3)),
        # one that lacks part of a part with nothing
        (THREE, PROFILE, without("dog"), 0, (60.0, "2 of 3", None)),
        (THREE, PROFILE, without("dog"), 1, (60.0, "", 76)),
        (THREE, PROFILE, without("dog"), 2, (60.0, "in part", None)),
        (THREE, PROFILE, without("dog"), "gain", (0.0, "3 of 4", None)),
        # what cannot be right is in no mean and no gain of the paper's
        (UNKNOWN, PROFILE, without("sea"), 4, (60.0, "3 of 4", None)),
        (UNKNOWN, PROFILE, without("sea"), "gain", (0.0, "3 of 4", None)),
        # that of a whole row is of the means it printed, or of all columns where it has none
        (EXPERIMENT, PROFILE, without(cat=70.0), "gain", (2.5, "", 61 - 55)),
        (EXPERIMENT, OFFLINE, without(ant=63.0), "gain", (1.0, "", 61 - 55)),
        (NO_MEAN, OFFLINE, without(ant=63.0), "gain", (1.0, "", ((44 - 40) + (55 - 50) + (66 - 60) + (76 - 70)) / 4)),
        # a gain is over the columns, and in a column of a group over the datasets, that both have
        (
            EXPERIMENT,
            PROFILE,
            without(("pta", "cow"), ("clip", "dog"), cat=70.0, sea=64.0),
            "gain",
            (7.0, "2 of 4", 5.0),
        ),
        (THREE, PROFILE, without(("pta", "cat"), ("clip", "dog"), "sea", dog=1, cow=63), "gain", (3.0, "1 of 4", None)),
        # on other data, the paper has no gain over the same columns
        (EXPERIMENT, OFFLINE, without(("pta", "ant"), bee=62.0), "gain", (1.0, "2 of 3", None)),
    ],
)
def test_what_is_there_of_a_mean_or_gain_is_compared_with_the_same_of_the_papers(
    text, profile, found, column, expected
):
    line = filled(text, found, profile)[1]["PTA"]
    cell = line.gain if column == "gain" else line.cells[column]
    assert (cell.ours, cell.partial, cell.paper) == pytest.approx(expected)


def test_a_row_that_is_not_there_yet_still_has_the_papers_gain_and_the_baseline_has_none(accuracies):
    for found in (accuracies, lambda method, dataset: NO_DOGS if dataset == "dog" else [60.0]):
        lines = filled(EXPERIMENT, found)[1]
        gain = lines["Later"].gain
        assert (gain.ours, gain.paper, gain.missing) == (None, pytest.approx(1), "later")
        assert lines["CLIP"].gain is None


def test_on_other_data_the_paper_has_no_numbers_beside_ours(accuracies):
    table, lines = filled(EXPERIMENT, accuracies, OFFLINE)
    assert not table.comparable
    assert table.headings == ("ant", "bee", "Water", "Mean", "gain over CLIP")
    assert [cell.printed for cell in lines["PTA"].cells[:2]] == [None, None]


def test_a_gain_rests_on_the_errata_of_its_own_row(accuracies):
    _, lines = filled(NO_MEAN, accuracies, OFFLINE)
    assert lines["PTA"].gain.rests_on_errata  # its Dog
    assert not lines["Later"].gain.rests_on_errata


# -- what is missing ---------------------------------------------------------------------------------------------------


def test_what_is_not_there_is_listed_with_its_reason_and_the_rest_is_filled(accuracies):
    def found(method, dataset):
        if (method, dataset) == ("pta", "sea"):
            return Outcome(missing=CANNOT, why="pta cannot swim")
        return NO_DOGS if dataset == "dog" else accuracies(method, dataset)

    table, lines = filled(EXPERIMENT, found)
    no_swimmer = dict.fromkeys(("PTA on sea", "spread on sea"), "pta cannot swim")
    assert table.absent == {"dog": "dog: no folder of images", **no_swimmer}
    assert [cell.missing for cell in lines["PTA"].cells] == ["", NO_DATA, "", CANNOT, ""]
    assert [cell.missing for cell in lines["CLIP"].cells] == ["", NO_DATA, "", "", ""]
    assert [cell.missing for cell in lines["Later"].cells] == ["later"] * 5
    assert [cell.paper for cell in lines["Later"].cells] == [41, 51, 61, 71, 56]

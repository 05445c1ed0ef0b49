"""The paper's tables and figures as data: whole, true to each other, and naming nothing that does not exist."""

from functools import cache
from importlib import resources

import pytest

from pta import list_adapters
from pta.datasets.catalogue import find_entry
from pta.prompts import load_templates
from pta.reproduction.declaration import PACKAGED, load_experiment
from pta.reproduction.plan import place
from pta.reproduction.world import load_world

PAPER, OFFLINE = load_world("paper"), load_world("offline")
EXPERIMENTS = [load_experiment(id) for id in PACKAGED]
TEN = [PAPER.title(id) for id in PAPER.members("cross-domain")]
ELEVEN = ["ImageNet", *TEN]

each_experiment = pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda one: one.id)


@cache
def plan_of(id):
    """The experiment in the paper's world; whatever it names and does not exist is refused, see test_declaration.py."""
    return place(load_experiment(id), PAPER)


def printed(id):
    """The paper's numbers, by row and column."""
    return plan_of(id).printed


def numbers(id, row, columns):
    return [printed(id)[row][column] for column in columns]


# -- whole -------------------------------------------------------------------------------------------------------------


def test_every_file_is_listed():
    files = resources.files("pta") / "data" / "experiments"
    assert sorted(PACKAGED) == sorted(file.name.removesuffix(".toml") for file in files.iterdir())


@each_experiment
def test_it_is_sound_in_both_worlds_and_its_points_are_told_apart(experiment):
    for plan in (plan_of(experiment.id), place(experiment, OFFLINE)):
        assert len({column.label for column in plan.columns}) == len(plan.columns)
    if experiment.figure and experiment.figure.kind == "lines":
        points = [(row.series, row.x) for row in experiment.rows]
        assert all(series and x is not None for series, x in points)
        assert len(set(points)) == len(points)


# -- naming nothing that does not exist --------------------------------------------------------------------------------


def test_what_is_awaited_is_not_there_yet():
    for world in (PAPER, OFFLINE):
        assert not set(world.awaited_methods) & set(list_adapters())


@each_experiment
def test_every_dataset_has_its_prompts_or_is_awaited_and_a_method_that_takes_views_is_given_some(experiment):
    for job in plan_of(experiment.id).all_jobs:
        if job.dataset.split("/")[0] not in PAPER.awaited_datasets:
            assert load_templates(job.templates, find_entry(job.dataset).prompts)
        if not job.awaits and not job.speed and "views" in job.needs:
            assert job.views, (job.method, job.dataset)


def test_nothing_is_made_to_find_out_what_methods_need(monkeypatch):
    monkeypatch.setattr("pta.adapters.adapter.Adapter.__init__", None)
    for id in ("table1", "orthogonality"):
        needs = {job.method: job.needs for job in place(load_experiment(id), OFFLINE).all_jobs if not job.awaits}
        assert {"features", "views"} == needs["mta"] > needs.get("pta", frozenset())


def test_every_single_dataset_of_the_paper_has_a_title():
    for group in ("imagenet", "cross-domain", "ood", "online", "corruptions", "clouds"):
        assert set(PAPER.members(group)) <= set(PAPER.titles)


# -- true to themselves ------------------------------------------------------------------------------------------------


def corrected(experiment, row):
    """A row's printed numbers with its errata put right; None where the right number is not known."""
    wrong = {erratum.column: erratum.instead for erratum in experiment.errata if erratum.row == row.name}
    return printed(experiment.id)[row.name] | wrong


def means_of(experiment):
    """The columns that are means of others, each with the labels of those."""
    columns = plan_of(experiment.id).columns
    single = {column.datasets[0]: column.label for column in columns if len(column.datasets) == 1}
    for column in columns:
        if column.parts:
            yield column.label, [columns[number].label for number in column.parts]
        elif len(column.datasets) > 1 and set(column.datasets) <= set(single):
            yield column.label, [single[id] for id in column.datasets]


def recomputed_means(experiment):
    """Row, column, and what the mean of the entries is, wherever all of them are known."""
    for row in experiment.rows:
        known = corrected(experiment, row)
        for label, parts in means_of(experiment):
            entries = [known.get(part) for part in parts]
            if entries and None not in entries:
                yield row, label, sum(entries) / len(entries)


def rounding(experiment):
    """How far a printed mean may be from that of printed entries: half a unit of the last digit for each of them."""
    return 10**-experiment.digits * (1 + 1e-9)


@each_experiment
def test_every_printed_mean_is_that_of_its_entries_or_an_erratum_says_otherwise_of_more_than_rounding(experiment):
    wrong = {(erratum.row, erratum.column): erratum.printed for erratum in experiment.errata}
    for row, column, mean in recomputed_means(experiment):
        assert corrected(experiment, row)[column] == pytest.approx(mean, abs=rounding(experiment)), (row.name, column)
        if (row.name, column) in wrong:
            assert abs(wrong[row.name, column] - mean) > rounding(experiment)


def test_the_speeds_in_percent_are_those_in_images_a_second():
    rows = printed("table4")
    for row in rows.values():
        share = 100 * row["images/s"] / rows["CLIP"]["images/s"]
        assert row["of CLIP, %"] == pytest.approx(share, abs=0.6)  # half a percent, and what rounding of speeds adds


def test_the_rows_on_three_orders_are_summed_up_by_mean_and_sample_deviation():
    for column in ELEVEN:
        *orders, mean, deviation = [row[column] for row in printed("ordering").values()]
        own = sum(orders) / 3
        assert mean == pytest.approx(own, abs=0.01 + 1e-9)
        spread = (sum((value - own) ** 2 for value in orders) / 2) ** 0.5
        assert deviation == pytest.approx(spread, abs=0.005 + 0.005 * 1.5**0.5)  # rounding moves the orders apart


# -- true to each other ------------------------------------------------------------------------------------------------

FREE, BASED = "Backpropagation-free", "Backpropagation-based"


def test_pta_has_the_same_numbers_wherever_they_are_printed():
    ten, everywhere = numbers("table1", f"{FREE}: PTA", TEN), numbers("ordering", "Avg.", ELEVEN)
    assert everywhere == [printed("table2")[f"{FREE}: PTA"]["ImageNet"], *ten]
    assert numbers("beta", "β", ELEVEN) == everywhere
    assert numbers("templates", "CLIP's prompts: PTA", TEN) == ten
    means = [everywhere[0], printed("table1")[f"{FREE}: PTA"]["Average"]]
    assert numbers("table5", "w = 0.01", ["ImageNet", "Cross-Domain"]) == means
    assert numbers("figure5", "h = 20", ["ImageNet", "Cross-Domain"]) == means
    assert numbers("poisoning", "normal order", ["ImageNet", "Cross-Domain"]) == [round(mean, 1) for mean in means]


@pytest.mark.parametrize(
    ("row", "other"),
    [("CLIP", "CLIP's prompts: CLIP")]
    + [(f"{BASED}: {name}", f"One prompt: {name}") for name in ("TPT", "DiffTPT")]
    + [(f"{BASED}: DPE", "Descriptions: DPE")]
    + [(f"{FREE}: {name}", f"CLIP's prompts: {name}") for name in ("BoostAdapter", "TDA", "SCA", "PTA")],
)
def test_the_table_of_templates_repeats_table_1(row, other):
    assert printed("table1")[row] == printed("templates")[other]


@pytest.mark.parametrize(("method", "section"), [("GS-Bias", BASED), ("MTA", FREE), ("TDA", FREE)])
def test_the_table_of_joined_methods_repeats_tables_1_and_2(method, section):
    alone = numbers("orthogonality", f"{method}: alone", ELEVEN)
    row = f"{section}: {method}"
    assert alone == [printed("table2")[row]["ImageNet"], *numbers("table1", row, TEN)]


def test_the_figure_of_severities_shows_the_means_of_the_tables():
    for severity, id in enumerate(("table12", "table13", "table3", "table14", "table15")):
        for row, values in printed(id).items():
            benchmark, method = row.rsplit(": ", 1)
            assert printed("figure4")[f"Severity {severity}: {method}"][benchmark] == values["Average"]


def test_speeds_and_times_are_one_measurement():
    for method in ("TDA", "PTA"):
        speed = 50_000 / printed("latency")[method]["ImageNet"]
        assert printed("figure1")[method]["images/s"] == round(speed, 2)
        assert printed("table4")[f"{FREE}: {method}"]["images/s"] == round(speed, 1)
    for row, name in (("CLIP", "CLIP"), *((method, f"{FREE}: {method}") for method in ("TDA", "ADAPT", "PTA"))):
        (speed, share), table = printed("figure1")[row].values(), printed("table4")[name]
        assert (round(speed, 1), share) == (table["images/s"], table["of CLIP, %"])


def test_the_counts_of_the_paper_are_those_of_the_catalogue():
    for group in ("imagenet", "cross-domain"):
        for id in PAPER.members(group):
            entry, rows = find_entry(id), printed("latency")
            assert rows["#Classes"][PAPER.title(id)] == entry.classes
            assert rows["#Samples"][PAPER.title(id)] == entry.count

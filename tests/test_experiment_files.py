"""The paper's tables and figures as data: whole, true to each other, and naming nothing that does not exist."""

from functools import cache
from importlib import resources
from itertools import product

import pytest

from pta.data.catalogue import find_entry
from pta.data.packaged_clouds import load_furniture_test
from pta.data.prompts import load_templates
from pta.measure.reproduce.declaration import PACKAGED, load_experiment
from pta.measure.reproduce.plan import place
from pta.measure.reproduce.profile import kind_of, load_profile

PAPER, OFFLINE = load_profile("paper"), load_profile("offline")
EXPERIMENTS = [load_experiment(id) for id in PACKAGED]
TEN = [PAPER.title(id) for id in PAPER.members("cross-domain")]
ELEVEN = ["ImageNet", *TEN]

each_experiment = pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda one: one.id)


@cache
def plan_of(id):
    """The experiment in the paper's profile; an unknown name is refused, see test_declaration.py."""
    return place(load_experiment(id), PAPER)


def printed(id):
    """The paper's numbers, by row and column."""
    return plan_of(id).printed


def numbers(id, row, columns):
    return [printed(id)[row][column] for column in columns]


# -- whole -------------------------------------------------------------------------------------------------------------


def test_every_file_is_listed():
    files = resources.files("pta") / "assets" / "experiments"
    assert sorted(PACKAGED) == sorted(file.name.removesuffix(".toml") for file in files.iterdir())


@each_experiment
def test_it_is_sound_in_both_profiles_and_its_points_are_told_apart(experiment):
    for plan in (plan_of(experiment.id), place(experiment, OFFLINE)):
        assert len({column.label for column in plan.columns}) == len(plan.columns)
    if experiment.figure and experiment.figure.kind == "lines":
        points = [(row.series, row.x) for row in experiment.rows]
        assert all(series and x is not None for series, x in points)
        assert len(set(points)) == len(points)


# -- naming nothing that does not exist --------------------------------------------------------------------------------


def test_every_single_dataset_of_the_paper_has_a_title():
    for group in ("imagenet", "cross-domain", "ood", "online", "corruptions", "clouds"):
        assert set(PAPER.members(group)) <= set(PAPER.titles)


@each_experiment
def test_every_dataset_has_its_prompts_and_a_method_that_takes_views_is_given_some(experiment):
    for job in plan_of(experiment.id).all_jobs:
        assert load_templates(job.templates, find_entry(job.dataset).prompts)
        if not job.speed and "views" in job.needs:
            assert job.views, (job.method, job.dataset)


def test_nothing_is_made_to_find_out_what_methods_need(monkeypatch):
    monkeypatch.setattr("pta.methods.adapter.Adapter.__init__", None)
    for id in ("table1", "orthogonality"):
        needs = {job.method: job.needs for job in place(load_experiment(id), OFFLINE).all_jobs}
        assert {"features", "views"} == needs["mta"] > needs.get("pta", frozenset())


@pytest.mark.parametrize("id", ["table3", "table12", "table13", "table14", "table15", "figure4"])
def test_only_offline_there_is_furniture_and_the_paper_has_its_own_clouds(id):
    papers, ours = (
        {kind_of(job.dataset) for job in place(load_experiment(id), profile).all_jobs} for profile in (PAPER, OFFLINE)
    )
    assert papers == {"modelnet_c", "sonn_c"}
    assert ours == {"point_shapes"}


def test_offline_headings_say_how_many_clouds_there_are():
    shapes = OFFLINE.stand_in("modelnet_c/rotate/2").rpartition("/")[2]
    for text in (OFFLINE.titles["modelnet-c"], OFFLINE.titles["ModelNet-C"], OFFLINE.data["point_shapes"]):
        assert f"{shapes} " in text
    for text in (OFFLINE.titles["Furniture (ours)"], OFFLINE.data["point_shapes"]):
        assert f"{len(load_furniture_test())} models" in text


@each_experiment
def test_our_own_rule_and_prior_are_marked_ours_and_stand_beside_no_number_of_the_paper(experiment):
    for row in experiment.rows:
        if row.method == "wpta" or "prior" in row.params:
            assert "(ours)" in row.name
            assert not row.printed


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


@each_experiment
def test_every_printed_mean_is_that_of_its_entries_or_an_erratum_says_otherwise_of_more_than_rounding(experiment):
    wrong = {(erratum.row, erratum.column): erratum.printed for erratum in experiment.errata}
    rounding = 10**-experiment.digits * (1 + 1e-9)  # half a unit of the last digit for the mean and for its entries
    for row, (label, parts) in product(plan_of(experiment.id).experiment.rows, means_of(experiment)):
        known = corrected(experiment, row)
        entries = [known.get(part) for part in parts]
        if None not in entries:
            mean = sum(entries) / len(entries)
            assert known[label] == pytest.approx(mean, abs=rounding), (row.name, label)
            assert (row.name, label) not in wrong or abs(wrong[row.name, label] - mean) > rounding


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


ON_TEMPLATES = {"CLIP": "CLIP's prompts: CLIP", f"{BASED}: DPE": "Descriptions: DPE"}
ON_TEMPLATES |= {f"{BASED}: {name}": f"One prompt: {name}" for name in ("TPT", "DiffTPT")}
ON_TEMPLATES |= {f"{FREE}: {name}": f"CLIP's prompts: {name}" for name in ("BoostAdapter", "TDA", "SCA", "PTA")}


def test_the_tables_of_templates_and_of_joined_methods_repeat_tables_1_and_2():
    for row, other in ON_TEMPLATES.items():
        assert printed("table1")[row] == printed("templates")[other]
    for method, section in (("GS-Bias", BASED), ("MTA", FREE), ("TDA", FREE)):
        row = f"{section}: {method}"
        alone = [printed("table2")[row]["ImageNet"], *numbers("table1", row, TEN)]
        assert numbers("orthogonality", f"{method}: alone", ELEVEN) == alone


def test_the_figure_of_severities_shows_the_means_of_the_tables():
    for severity, id in enumerate(("table12", "table13", "table3", "table14", "table15")):
        for row, values in printed(id).items():
            benchmark, method = row.rsplit(": ", 1)
            in_figure = printed("figure4")[f"Severity {severity}: {method}"]
            assert in_figure.get(benchmark) == values.get("Average")


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
            entry, title = find_entry(id), PAPER.title(id)
            assert printed("latency")["#Classes"][title] == entry.classes
            assert printed("latency")["#Samples"][title] == entry.count

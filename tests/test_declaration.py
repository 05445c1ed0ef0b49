"""What is wrong with an experiment's file is one clear line that names it, before anything is run."""

import re

import pytest
from refusals import refusal

from pta.errors import InvalidParameter, UnreadableFile
from pta.measure.reproduce.declaration import load_experiment, parse_experiment
from pta.measure.reproduce.plan import place
from pta.measure.reproduce.profile import Profile, load_profile
from pta.measure.stream import Stream

PAPER = load_profile("paper")

WHOLE = """
title = "A table"
baseline = "CLIP"
[usual]
seeds = 2
[[columns]]
each = "ood"
[[columns]]
label = "Mean"
mean_of = "all"
[[rows]]
label = "CLIP"
method = "clip"
[[rows]]
label = "PTA"
method = "pta"
params = { h = 3 }
stream = { kind = "dirichlet", gamma = 0.5 }
seeds = [4, 7]
printed = [1, 2.5, "", 4, 3]
[[errata]]
row = "PTA"
column = "Mean"
printed = 3.0
why = "the mean is another"
[figure]
kind = "bars"
columns = "Mean"
"""


def plan_of(text, profile=PAPER):
    return place(parse_experiment("mine", text), profile)


def changed(old, new, text=WHOLE):
    assert text.count(old) == 1
    return text.replace(old, new)


def complaint_about(text, profile=PAPER):
    """What a file is refused with, in a line that names it."""
    named, _, complaint = refusal(plan_of, text, profile).partition(": ")
    assert named == "experiment mine"
    return complaint


def test_a_whole_file_is_read_as_it_is_written():
    experiment = plan_of(WHOLE).experiment
    clip, pta = experiment.rows
    assert (clip.seeds, pta.seeds) == ((1, 2), (4, 7))
    assert pta.stream == Stream("dirichlet", gamma=0.5)
    assert pta.printed == (1, 2.5, None, 4, 3)
    assert experiment.columns[1].mean_of == ("all",)
    assert experiment.figure.columns == ("Mean",)
    assert experiment.baseline_of(pta) is clip
    assert parse_experiment("mine", WHOLE.replace("seeds = 2", "")).rows[0].seeds == (1, 2, 3)  # as in the paper


def test_a_file_is_like_a_packaged_one_but_for_what_it_says():
    text = """
        like = "table12"
        title = "Mine"
        fill = { severity = 3 }
        printed = { "ModelNet-C: PTA" = [1, ""] }
    """
    mine, theirs = parse_experiment("mine", text), load_experiment("table12")
    assert (mine.id, mine.title, mine.place, mine.columns) == ("mine", "Mine", theirs.place, theirs.columns)
    assert [row.name for row in mine.rows] == [row.name for row in theirs.rows]
    assert {row.fill["severity"] for row in mine.rows} == {3}
    assert {row.name: row.printed for row in mine.rows if row.printed} == {"ModelNet-C: PTA": (1, None)}
    assert "no experiment is called 'tabel1'; did you mean" in complaint_about('like = "tabel1"')
    assert "no experiment is called 'ttabc'; did you mean 'ttabc-" in complaint_about('like = "ttabc"')


def test_a_file_with_rows_of_its_own_takes_over_nothing_that_is_said_of_other_rows():
    rows = 'rows = [{ label = "PTA", section = "ModelNet-C", method = "pta", printed = [50] }]\n'
    mine = parse_experiment("mine", f'like = "table12"\ntitle = "Mine"\n{rows}')
    assert [(row.name, row.printed) for row in mine.rows] == [("ModelNet-C: PTA", (50,))]
    assert (mine.baseline, mine.errata, mine.figure) == ("", (), None)
    both = parse_experiment("mine", f'like = "table12"\ntitle = "Mine"\n{rows}[printed]\n"ModelNet-C: PTA" = [40]')
    assert both.rows[0].printed == (50,)


def test_rows_that_are_usual_are_those_of_each_section():
    text = changed("seeds = 2", 'rows = [{ label = "a", method = "clip" }, { label = "b", method = "pta" }]')
    start = text.index("[[rows]]")
    text = text[:start].replace("CLIP", "a") + '[[rows]]\nsection = "x"\n[[rows]]\nsection = "y"\nseeds = 1\n'
    rows = plan_of(text).experiment.rows
    assert [(row.name, len(row.seeds)) for row in rows] == [("x: a", 3), ("x: b", 3), ("y: a", 1), ("y: b", 1)]


ALONE = 'method = "pta"\nparams = { h = 3 }'
ON_TDA = 'method = "combined"\nparams = { base = "tda"'
MISTAKES = [
    (WHOLE, "title = ", "not TOML"),
    (WHOLE, "title = 'x'\n[[columns]]\neach = 'ood'\n", "there must be [[rows]] and [[columns]]"),
    (WHOLE, "title = 'x'\n[[rows]]\nlabel = 'a'\nmethod = 'clip'\n", "there must be [[rows]] and [[columns]]"),
    # an unknown key, with the nearest known
    ("title =", "titel = 'x'\ntitle =", "an experiment has no 'titel'; did you mean 'title'?"),
    ("params = {", "parms = {", "a row has no 'parms'; did you mean 'params'?"),
    ("mean_of =", "meanof =", "a column has no 'meanof'; did you mean 'mean_of'?"),
    ("gamma", "gama", "a stream has no 'gama'; did you mean 'gamma'?"),
    ("why =", "because =", "an erratum has no 'because'"),
    ('kind = "bars"', 'kind = "bars"\nz = "w"', "a figure has no 'z'"),
    # an unknown value
    ('kind = "dirichlet"', 'kind = "drichlet"', "no stream is called 'drichlet'; did you mean 'dirichlet'?"),
    ('kind = "bars"', 'kind = "pie"', "no kind of figure is called 'pie'"),
    ('method = "pta"', 'method = "pta"\nmetric = "acuracy"', "did you mean 'accuracy'?"),
    ('method = "pta"', 'method = "pta"\nstatistic = "median"', "no statistic is called 'median'"),
    ('method = "pta"', 'method = "pta"\nviews = { ood = "crop" }', "no mode of views is called 'crop'"),
    ('each = "ood"', 'each = "ood"\nmetric = "speed"', "no metric is called 'speed'"),
    ('baseline = "CLIP"', 'baseline = "TDA"', "the baseline 'TDA' is not a row"),
    ('row = "PTA"', 'row = "PTAA"', "no row of an erratum is called 'PTAA'; did you mean 'PTA'?"),
    ("[usual]", "[printed]\nPTAA = [1]\n[usual]", "no row with printed numbers is called 'PTAA'; did you mean 'PTA'?"),
    ("[usual]", "[printed]\nCLIP = 1\n[usual]", "printed of a row must be a list, each a number, not 1"),
    ("[usual]", "[printed]\nCLIP = [nan]\n[usual]", "printed of a row must be a list, each a number, not [nan]"),
    (
        "[usual]",
        f"[printed]\nCLIP = [1{400 * '0'}]\n[usual]",
        "printed of a row must be a list, each a number, not [1000",
    ),
    # a value of another kind, with what it must be
    ('title = "A table"', "title = 3", "title of an experiment must be a text, not 3"),
    ("params = { h = 3 }", "params = 3", "params of a row must be a table, not 3"),
    ("seeds = [4, 7]", "seeds = 'four'", "seeds of a row must be a list, each a whole number"),
    ("seeds = [4, 7]", "seeds = true", "seeds of a row must be a list, each a whole number"),
    ("seeds = [4, 7]", "seeds = 0", "PTA: seeds are how many"),
    ("printed = [1, 2.5, ", "printed = [1, 'x', ", "printed of a row must be a list, each a number"),
    ("gamma = 0.5", "gamma = 'half'", "gamma of a stream must be a number, not 'half'"),
    ('stream = { kind = "dirichlet", gamma = 0.5 }', 'stream = "iid"', "stream must be a table, not 'iid'"),
    ("[[errata]]", "[errata]", "errata must be tables, each under [[errata]], or a list of tables"),
    ("[figure]", "[[figure]]", "figure must be a table"),
    ("why =", "# why =", "an erratum must have 'why'"),
    ('label = "PTA"', "", "a row must have 'label'"),
    # a column is of one kind, and has a label unless it stands for each of a group
    ('each = "ood"', 'each = "ood"\ndatasets = "ood"', "exactly one of"),
    ('mean_of = "all"', "", "exactly one of"),
    ('each = "ood"', 'label = "A"\nmean_of = "all"', "the column 'A' is a mean of all before it, and there are none"),
    ('each = "ood"', 'datasets = "ood"', "has a label, unless"),
    ('each = "ood"', 'each = "ood"\nlabel = "Four"', "has a label, unless"),
    # rows and columns are told apart
    ('label = "PTA"', 'label = "CLIP"', "two rows are called 'CLIP'"),
    ('label = "Mean"', 'each = "ood"\n[[columns]]\nlabel = "Mean"', "two columns are called 'ImageNet-A'"),
    # in the paper's profile: groups, columns, printed numbers, methods, parameters, presets
    ('"ood"', '"odd"', "no group of datasets is called 'odd'; did you mean 'ood'?"),
    ('method = "pta"', 'method = "pta"\nviews = { oood = "crops" }', "no group of datasets is called 'oood'"),
    ('"all"', '"Imagenet-A"', "no earlier column is called 'Imagenet-A'"),
    ('columns = "Mean"', 'columns = "Means"', "no column is called 'Means'; did you mean 'Mean'?"),
    ('column = "Mean"', 'column = "Means"', "no column is called 'Means'"),
    (', "", 4, 3]', ", 4, 3]", "PTA has 4 printed numbers for 5 columns"),
    (', "", 4, 3]', ', "", 4, 3, 1]', "PTA has 6 printed numbers for 5 columns"),
    ('method = "pta"', 'method = "ptaa"', "PTA: no method is called 'ptaa'"),
    ("{ h = 3 }", "{ hh = 3 }", "PTA: pta has no parameter 'hh'; did you mean 'h'?"),
    ("{ h = 3 }", '{ h = 3 }\npreset = "papr"', "no preset is called 'papr'"),
    (ALONE, ON_TDA.replace("tda", "tdaa") + " }", "did you mean 'tda'?"),
    (ALONE, f"{ON_TDA}, base_parameters = {{ h = 3 }} }}", "PTA: tda has no parameter 'h'"),
    (ALONE, 'method = "combined"\nparams = { base_parameters = { h = 3 } }', "PTA: tda has no parameter 'h'"),
    # what would fail or mislead later
    ("h = 3", "h = -3.0", "PTA: h must be"),
    ("seeds = [4, 7]", 'seeds = [4, 7]\ntemplates = "klip"', "PTA: no templates are called 'klip'"),
    ("seeds = [4, 7]", "seeds = [4, 4]", "seeds are how many"),
    ("seeds = [4, 7]", "seeds = [-1]", "seeds are how many"),
    ('title = "A table"', 'title = "A table"\ndigits = -1', "digits must be from 0 to 6"),
    ('title = "A table"', 'title = "A table"\nid = "other"', "leave out id"),
    ("printed = 3.0", "printed = 4.0", "an erratum has 4.0 for PTA, Mean, where 3 is printed"),
    ('kind = "bars"', 'kind = "lines"', "a figure of lines needs rows with an x"),
]


@pytest.mark.parametrize(("old", "new", "complaint"), MISTAKES)
def test_a_mistake_is_named_with_what_it_should_be(old, new, complaint):
    assert complaint in complaint_about(changed(old, new))


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [(WHOLE, "=", UnreadableFile), ("h = 3", "hh = 3", InvalidParameter), ('"pta"', '"ptaa"', InvalidParameter)],
)
def test_a_mistake_is_of_its_kind(old, new, kind):
    with pytest.raises(kind):
        plan_of(changed(old, new))


def test_rows_of_one_label_are_told_apart_by_their_sections():
    sections = changed('label = "PTA"', 'label = "CLIP"\nsection = "other"')
    assert plan_of(changed('row = "PTA"', 'row = "other: CLIP"', sections))


def test_rows_within_a_row_share_what_it_says():
    within = 'rows = [{ label = "PTA" }, { label = "other", method = "tda", rows = [{ label = "TDA", params = {} }] }]'
    text = changed('label = "PTA"\nmethod = "pta"', f'method = "pta"\nsection = "s"\n{within}')
    _, pta, tda = plan_of(changed('row = "PTA"', 'row = "s: PTA"', text)).experiment.rows
    assert (pta.name, pta.method, pta.seeds, pta.params) == ("s: PTA", "pta", (4, 7), {"h": 3})
    assert (tda.name, tda.method, tda.seeds, tda.params) == ("s: TDA", "tda", (4, 7), {})


# -- in a profile ------------------------------------------------------------------------------------------------------


def test_what_an_id_leaves_open_must_be_filled_in_by_the_row():
    text = changed('each = "ood"', 'each = "clouds"').replace('printed = [1, 2.5, "", 4, 3]', "")
    assert "CLIP: the dataset {set}/add_global/{severity} needs a value for 'set' in fill" in complaint_about(text)


@pytest.mark.parametrize("name", ["a{b", "a{}", "{0}"])
def test_a_name_with_stray_braces_is_refused_in_words(name):
    assert re.match("CLIP: the name .* holds braces", complaint_about(WHOLE, Profile(True, {"ood": (name,)}, {})))


def test_an_unknown_experiment_is_answered_with_the_nearest():
    assert "no experiment is called 'tabel1'; did you mean 'table1'?" in refusal(load_experiment, "tabel1")
    assert re.match(r"no such experiment file: .*mine\.toml", refusal(load_experiment, "nowhere/mine.toml"))


ON_CALTECH = "title = 't'\ncolumns = [{ each = 'online' }]\n[[rows]]\nlabel = 'r'\npreset = 'paper'\n"


@pytest.mark.parametrize(
    ("row", "params"),
    [
        ('method = "pta"', {"h": 50.0}),
        ('method = "pta"\nparams = { h = 7.0 }', {"h": 7.0}),  # the row comes before its preset
        ('method = "pta"\nparams = { w = 0.5 }', {"h": 50.0, "w": 0.5}),
        (
            'method = "combined"\nparams = { base = "tda" }',  # PTA on top of a method has the values of both
            {"h": 50.0, "base": "tda", "base_parameters": {"positive_alpha": 5.0, "positive_beta": 5.0}},
        ),
        ('method = "combined"', {"h": 50.0, "base_parameters": {"positive_alpha": 5.0, "positive_beta": 5.0}}),
    ],
)
def test_parameters_are_those_of_the_row_and_of_its_preset_for_the_dataset(row, params):
    jobs = list(plan_of(ON_CALTECH + row).all_jobs)
    assert {job.dataset: job.params for job in jobs}["caltech101"] == params
    assert len({job.key for job in jobs}) == len(jobs) == 4


def test_views_are_those_of_the_rows_groups_alone():
    columns, rows = "{ each = 'imagenet' }, { each = 'ood' }", "label = 'r', method = 'pta', views = { ood = 'augmix' }"
    plan = plan_of(f"title = 't'\ncolumns = [{columns}]\nrows = [{{ {rows} }}]")
    views = {job.dataset: job.views for job in plan.all_jobs}
    assert views["imagenet"] is None
    assert views["imagenet_a"] == views["imagenet_sketch"] == "augmix"


def test_a_mean_of_all_is_of_datasets_and_not_of_other_means():
    text = changed('mean_of = "all"', 'mean_of = "all"\n[[columns]]\nlabel = "Again"\nmean_of = "all"')
    columns = plan_of(changed('"", 4, 3]', '"", 4, 3, 3]', text)).columns
    assert columns[-1].parts == columns[-2].parts == (0, 1, 2, 3)

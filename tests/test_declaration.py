"""What is wrong with an experiment's file is one clear line that names it, before anything is run."""

import pytest

from pta.errors import InvalidParameter, PtaError, UnknownAdapter, UnreadableFile
from pta.evaluation.stream import Stream
from pta.reproduction.columns import place_columns
from pta.reproduction.declaration import load_experiment, packaged_experiments, parse_experiment
from pta.reproduction.job import jobs_of
from pta.reproduction.reproduce import require_sound
from pta.reproduction.world import World, load_world

PAPER = load_world("paper")

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


def refusal(text, kind=PtaError):
    """The one line that a file is refused with."""
    with pytest.raises(kind) as caught:
        require_sound(parse_experiment("mine", text), PAPER)
    message = str(caught.value)
    assert message.startswith("experiment mine: ")
    assert "\n" not in message
    return message


def changed(old, new):
    assert WHOLE.count(old) == 1
    return WHOLE.replace(old, new)


def test_a_whole_file_is_read_as_it_is_written():
    experiment = parse_experiment("mine", WHOLE)
    require_sound(experiment, PAPER)
    clip, pta = experiment.rows
    assert (clip.seeds, pta.seeds) == ((1, 2), (4, 7))
    assert pta.stream == Stream("dirichlet", gamma=0.5)
    assert pta.printed == (1, 2.5, None, 4, 3)
    assert experiment.columns[1].mean_of == ("all",)
    assert experiment.figure.columns == ("Mean",)
    assert experiment.baseline_of(pta) is clip


def test_a_row_without_seeds_of_its_own_has_the_papers_three():
    assert parse_experiment("mine", WHOLE.replace("seeds = 2", "")).rows[0].seeds == (1, 2, 3)


UNKNOWN_KEYS = [
    ("title =", "titel = 'x'\ntitle =", "an experiment has no 'titel'; did you mean 'title'?"),
    ("params = {", "parms = {", "a row has no 'parms'; did you mean 'params'?"),
    ("mean_of =", "meanof =", "a column has no 'meanof'; did you mean 'mean_of'?"),
    ("gamma", "gama", "a stream has no 'gama'; did you mean 'gamma'?"),
    ("why =", "because =", "an erratum has no 'because'"),
    ('kind = "bars"', 'kind = "bars"\nz = "w"', "a figure has no 'z'"),
]


@pytest.mark.parametrize(("old", "new", "complaint"), UNKNOWN_KEYS)
def test_an_unknown_key_is_named_with_the_nearest_known(old, new, complaint):
    assert complaint in refusal(changed(old, new))


UNKNOWN_VALUES = [
    ('kind = "dirichlet"', 'kind = "drichlet"', "no stream is called 'drichlet'; did you mean 'dirichlet'?"),
    ('kind = "bars"', 'kind = "pie"', "no kind of figure is called 'pie'"),
    ('method = "pta"', 'method = "pta"\nmetric = "acuracy"', "did you mean 'accuracy'?"),
    ('method = "pta"', 'method = "pta"\nstatistic = "median"', "no statistic is called 'median'"),
    ('method = "pta"', 'method = "pta"\nviews = { ood = "crop" }', "no mode of views is called 'crop'"),
    ('each = "ood"', 'each = "ood"\nmetric = "speed"', "no metric is called 'speed'"),
    ('baseline = "CLIP"', 'baseline = "TDA"', "the baseline 'TDA' is no row"),
    ('row = "PTA"', 'row = "PTAA"', "no row of an erratum is called 'PTAA'; did you mean 'PTA'?"),
]


@pytest.mark.parametrize(("old", "new", "complaint"), UNKNOWN_VALUES)
def test_an_unknown_value_is_named(old, new, complaint):
    assert complaint in refusal(changed(old, new))


WRONG_KINDS = [
    ('title = "A table"', "title = 3", "title of an experiment must be a text, not 3"),
    ("params = { h = 3 }", "params = 3", "params of a row must be a table, not 3"),
    ("seeds = [4, 7]", "seeds = 'four'", "seeds of a row must be a list, each a whole number"),
    ("seeds = [4, 7]", "seeds = true", "seeds of a row must be a list, each a whole number"),
    ("seeds = [4, 7]", "seeds = 0", "PTA: seeds are how many"),
    ("printed = [1, 2.5, ", "printed = [1, 'x', ", "printed of a row must be a list, each a number"),
    ("gamma = 0.5", "gamma = 'half'", "gamma of a stream must be a number, not 'half'"),
    ('stream = { kind = "dirichlet", gamma = 0.5 }', 'stream = "iid"', "stream must be a table, not 'iid'"),
    ("[[errata]]", "[errata]", "errata must be tables, each under [[errata]]"),
    ("[figure]", "[[figure]]", "figure must be a table"),
    ("why =", "# why =", "an erratum must have 'why'"),
    ('label = "PTA"', "", "a row must have 'label'"),
]


@pytest.mark.parametrize(("old", "new", "complaint"), WRONG_KINDS)
def test_a_value_of_another_kind_is_named_with_what_it_must_be(old, new, complaint):
    assert complaint in refusal(changed(old, new))


def test_what_is_not_toml_is_unreadable():
    assert "not TOML" in refusal("title = ", UnreadableFile)


def test_rows_and_columns_must_be_there():
    assert "there must be [[rows]] and [[columns]]" in refusal("title = 'x'\n[[columns]]\neach = 'ood'\n")
    assert "there must be [[rows]] and [[columns]]" in refusal("title = 'x'\n[[rows]]\nlabel = 'a'\nmethod = 'clip'\n")


def test_a_column_is_of_one_kind_and_has_a_label_unless_it_stands_for_each_of_a_group():
    assert "exactly one of" in refusal(changed('each = "ood"', 'each = "ood"\ndatasets = "ood"'))
    assert "exactly one of" in refusal(changed('mean_of = "all"', ""))
    assert "has a label, unless" in refusal(changed('each = "ood"', 'datasets = "ood"'))
    assert "has a label, unless" in refusal(changed('each = "ood"', 'each = "ood"\nlabel = "Four"'))


def test_rows_are_told_apart_by_section_and_label():
    assert "two rows are called 'CLIP'" in refusal(changed('label = "PTA"', 'label = "CLIP"'))
    sections = changed('label = "PTA"', 'label = "CLIP"\nsection = "other"').replace(
        'row = "PTA"', 'row = "other: CLIP"'
    )
    require_sound(parse_experiment("mine", sections), PAPER)


def test_columns_are_told_apart_by_their_headings():
    twice = changed('label = "Mean"', 'each = "ood"\nmetric = "worst_class"\n[[columns]]\nlabel = "Mean"')
    assert "two columns are called 'ImageNet-A'" in refusal(twice)


# -- in a world --------------------------------------------------------------------------------------------------------


def test_an_unknown_group_is_named():
    assert "no group of datasets is called 'odd'; did you mean 'ood'?" in refusal(changed('"ood"', '"odd"'))
    views = changed('method = "pta"', 'method = "pta"\nviews = { ood = "crops", cros-domain = "crops" }')
    assert "no group of datasets is called 'cros-domain'" in refusal(views)


def test_an_unknown_column_is_named():
    assert "no earlier column is called 'Imagenet-A'" in refusal(changed('"all"', '"Imagenet-A"'))
    assert "no column is called 'Means'; did you mean 'Mean'?" in refusal(
        changed('columns = "Mean"', 'columns = "Means"')
    )
    assert "no column is called 'Means'" in refusal(changed('column = "Mean"', 'column = "Means"'))


def test_a_row_with_too_few_or_too_many_printed_numbers_is_named():
    assert "PTA has 4 printed numbers for 5 columns" in refusal(changed(', "", 4, 3]', ", 4, 3]"))
    assert "PTA has 6 printed numbers for 5 columns" in refusal(changed(', "", 4, 3]', ', "", 4, 3, 1]'))


def test_an_unknown_method_parameter_or_preset_is_named_with_its_row():
    assert "PTA: no method is called 'ptaa'" in refusal(changed('method = "pta"', 'method = "ptaa"'), UnknownAdapter)
    assert "PTA: pta has no parameter 'hh'; did you mean 'h'?" in refusal(changed("{ h = 3 }", "{ hh = 3 }"))
    on_top = changed('method = "pta"\nparams = { h = 3 }', 'method = "combined"\nparams = { base = "tdaa" }')
    assert "PTA: no method is called 'tdaa'; did you mean 'tda'?" in refusal(on_top)
    assert "no preset is called 'papr'" in refusal(changed("{ h = 3 }", '{ h = 3 }\npreset = "papr"'))


def test_what_an_id_leaves_open_must_be_filled_in_by_the_row():
    text = changed('each = "ood"', 'each = "clouds"').replace('printed = [1, 2.5, "", 4, 3]', "")
    assert "CLIP: the dataset {set}/add_global/{severity} wants a value for 'set' in fill" in refusal(text)


def test_a_name_with_stray_braces_is_refused_in_words():
    experiment = parse_experiment("mine", WHOLE)
    for name in ("a{b", "a{}", "{0}"):
        world = World(True, {"ood": (name,)}, {}, (), ())
        with pytest.raises(InvalidParameter, match=r"experiment mine: CLIP: the name .* holds braces"):
            list(jobs_of(experiment, world))


def test_values_of_a_preset_are_those_of_the_dataset_and_the_row_comes_before_them():
    text = changed('each = "ood"', 'each = "online"').replace(
        "params = { h = 3 }", 'params = { w = 0.5 }\npreset = "paper"'
    )
    jobs = [job for job in jobs_of(parse_experiment("mine", text), PAPER) if job.method == "pta"]
    assert {job.dataset: job.params for job in jobs}["caltech101"] == {"h": 50.0, "w": 0.5}
    assert len({job.key for job in jobs}) == len(jobs) == 4


def test_a_method_that_must_know_the_streams_length_can_be_asked_what_it_needs():
    text = changed('method = "pta"\nparams = { h = 3 }', 'method = "onzeta"')
    job = next(job for job in jobs_of(parse_experiment("mine", text), PAPER) if job.method == "onzeta")
    assert job.needs == {"features"}


@pytest.mark.parametrize("id", packaged_experiments())
def test_the_packaged_experiments_are_sound_in_both_worlds(id):
    experiment = load_experiment(id)
    for world in (PAPER, load_world("offline")):
        require_sound(experiment, world)
        assert place_columns(experiment, world)


def test_an_unknown_experiment_is_answered_with_the_nearest():
    with pytest.raises(InvalidParameter, match=r"no experiment is called 'tabel1'; did you mean 'table1'\?"):
        load_experiment("tabel1")
    with pytest.raises(UnreadableFile, match=r"no such experiment file: .*mine\.toml"):
        load_experiment("nowhere/mine.toml")


def jobs(text, world=PAPER):
    return list(jobs_of(parse_experiment("mine", text), world))


ON_CALTECH = """
title = "t"
[[columns]]
each = "online"
[[rows]]
label = "r"
preset = "paper"
"""


def test_a_rows_own_parameters_come_before_its_presets():
    (job,) = [one for one in jobs(ON_CALTECH + 'method = "pta"\nparams = { h = 7.0 }') if one.dataset == "caltech101"]
    assert job.params == {"h": 7.0}
    (job,) = [one for one in jobs(ON_CALTECH + 'method = "pta"') if one.dataset == "caltech101"]
    assert job.params == {"h": 50.0}


def test_pta_on_top_of_a_method_has_the_values_of_both():
    text = ON_CALTECH + 'method = "combined"\nparams = { base = "tda" }'
    (job,) = [one for one in jobs(text) if one.dataset == "caltech101"]
    assert job.params == {
        "h": 50.0,
        "base": "tda",
        "base_parameters": {"positive_alpha": 5.0, "positive_beta": 5.0},
    }


def test_views_are_those_of_the_rows_groups_alone():
    text = (
        'title = "t"\n[[columns]]\neach = "imagenet"\n[[columns]]\neach = "ood"\n[[rows]]\nlabel = "r"\nmethod = "pta"'
    )
    views = {job.dataset: job.views for job in jobs(text + '\nviews = { ood = "augmix" }')}
    assert views["imagenet"] is None
    assert views["imagenet_a"] == views["imagenet_sketch"] == "augmix"


def test_a_mean_of_all_is_of_datasets_and_not_of_other_means():
    again = 'mean_of = "all"\n[[columns]]\nlabel = "Again"\nmean_of = "all"'
    columns = place_columns(parse_experiment("mine", changed('mean_of = "all"', again)), PAPER)
    assert columns[-1].parts == columns[-2].parts == (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("h = 3", "h = -3.0", "PTA: h must be"),
        ("seeds = [4, 7]", 'seeds = [4, 7]\ntemplates = "klip"', "no templates are called 'klip'"),
        ("seeds = [4, 7]", "seeds = [4, 4]", "seeds are how many"),
        ("seeds = [4, 7]", "seeds = [-1]", "seeds are how many"),
        ('title = "A table"', 'title = "A table"\ndigits = -1', "digits must be from 0 to 6"),
        ('title = "A table"', 'title = "A table"\nid = "other"', "leave out id"),
        ("printed = 3.0", "printed = 4.0", "an erratum has 4.0 for PTA, Mean, where 3 is printed"),
        ('kind = "bars"', 'kind = "lines"', "a figure of lines needs rows with an x"),
    ],
)
def test_what_would_fail_or_mislead_later_is_refused_now(old, new, complaint):
    assert complaint in refusal(changed(old, new))

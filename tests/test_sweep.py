"""A grid of parameters: measured once, the same as single runs."""

import csv
import json
import sys
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pta.cli.sweep import read_grid, split_values
from pta.data.features import load_features
from pta.errors import InvalidParameter
from pta.measure.evaluate import evaluate
from pta.measure.result_store import ResultStore
from pta.measure.stream import Stream
from pta.measure.sweep import Grid


def records_of(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def lasting(record):
    """What does not depend on when and where it was measured."""
    return {key: value for key, value in record.items() if key not in ("seconds", "made")}


def test_every_point_is_what_a_run_of_its_own_gives(pta, pets):
    done = pta(
        *("sweep", "--features", pets, "--set", "pta.h=2,50", "--set", "pta.w=0.001,0.1", "--seed", 2, "--seed", 1),
        *("--stream", "dirichlet", "--gamma", 0.5, "--batch", 64, "--json", "-"),
    )
    expected, how = [], {"stream": Stream("dirichlet", 0.5), "batch": 64}
    for h, w in product((2, 50), (0.001, 0.1)):
        runs = evaluate(load_features(pets), {"pta": {"h": h, "w": w}}, [2, 1], **how)
        expected += [lasting(run.record()) for run in runs]
    assert list(map(lasting, records_of(done))) == expected


def test_nothing_is_measured_twice_and_a_new_value_is_all_that_is_added(pta, pets, tmp_path):
    options = ("sweep", "--features", pets, "--json", "-", "--seed", 1, "--seed", 2, "--results", tmp_path / "kept")
    first = records_of(pta(*options, "--set", "pta.h=2,50"))
    store = ResultStore(tmp_path / "kept")
    assert len(store) == len(first) == 4
    assert records_of(pta(*options, "--set", "pta.h=2,50")) == first  # to the time of making
    more = records_of(pta(*options, "--set", "pta.h=50,7"))
    assert len(store) == 6
    assert more[:2] == first[2:]
    assert {one["made"]["key"] for one in more[2:]}.isdisjoint(one["made"]["key"] for one in first)


@pytest.mark.parametrize("parameters", [1, 2, 3])
def test_table_and_csv_hold_every_point_and_mark_the_highest(parameters, pta, pets, tmp_path):
    sets = ["pta.h=2,50", "pta.w=0.001,0.1", "pta.min_probability=0.1,0.2"]
    given = [word for one in sets[:parameters] for word in ("--set", one)]
    done = pta("sweep", "--features", pets, *given, "--seed", 1, "--seed", 2, "--csv", "points.csv")
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader((tmp_path / "points.csv").read_text().splitlines()))
    assert len(rows) == 2**parameters
    zero_shot = load_features(pets).zero_shot_accuracy
    highest = max(float(row["accuracy"]) for row in rows)
    for row in rows:
        accuracy, deviation, gain = (float(row[name]) for name in ("accuracy", "deviation", "gain"))
        assert (float(row["zero_shot"]), gain) == pytest.approx((zero_shot, accuracy - zero_shot), abs=1e-5)
        cell = f"{accuracy:.2f} ± {deviation:.2f} ({gain:+.2f})"
        assert cell in done.stdout
        assert (f"* {cell}" in done.stdout) == (accuracy == highest)
    assert f"zero-shot ({zero_shot:.2f})" in done.stdout
    assert "report the chosen value on other data" in done.stdout


def test_equal_results_give_equal_figures(pta, pets, tmp_path):
    sets = ("--set", "pta.h=2,100", "--set", "pta.w=0.001,0.1")
    for ending in ("svg", "png", "pdf"):
        one, two = (tmp_path / f"{name}.{ending}" for name in ("one", "two"))
        for file in (one, two):
            records_of(pta("sweep", "--features", pets, *sets, "--plot", file, "--json", "-"))
        assert one.read_bytes() == two.read_bytes()


def test_a_figure_of_words_has_them_on_its_axis(pta, pets, tmp_path):
    done = pta("sweep", "--features", pets, "--set", "pta.renormalise=true,false", "--plot", "words.svg", "--json", "-")
    assert done.returncode == 0, done.stderr
    assert all(f"<!-- {word} -->" in (tmp_path / "words.svg").read_text() for word in ("true", "false", "zero-shot"))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--set", "pta.hh=1,2"], "pets: pta has no parameter 'hh'; did you mean 'h'?"),
        (["--set", "pta.h=1,-2"], "pets: h must be"),
        (["--set", "pta.h=1,,2"], "--set pta.h=: expected METHOD.NAME=VALUE"),
        (["--set", "pta.h="], "--set pta.h=: expected METHOD.NAME=VALUE"),
        (["--set", "pta.h"], "expected METHOD.NAME=VALUE"),
        (["--set", "pta.h=1", "--set", "tda.positive_beta=3"], "takes one method, not pta and tda"),
        (["--set", "ptaa.h=1"], "no method is called 'ptaa'"),
        (["--set", "pta.h=1,2,1.0"], "given twice"),
        (["--set", "pta.h=1", "--set", "pta.h=2"], "given twice"),
        (["--set", "tca.tokens=1,2"], "tca needs a model, which a sweep does not load"),
        (["--set", "mta.lambda_y=1,2"], "pets: mta"),
        (["--set", "pta.h=1", "--plot", "a.gif"], "--plot a.gif: a figure ends in .svg, .png, .pdf"),
        (["--set", "pta.h=1", "--csv", "nowhere/a.csv"], "the folder nowhere does not exist"),
        (["--set", "pta.h=1", "--stream", "sorted"], "no stream is called 'sorted'"),
        (["--set", "pta.h=1", "--gamma", "0.1"], "gamma is a parameter of the stream dirichlet"),
        (["--set", "pta.h=1", "--features", "wild.npz"], "wild has no labels, so there is no accuracy to sweep"),
        (["--set", "pta.h=1", "--results", "wild.npz"], "cannot make the folder"),
        (["--set", "pta.h=1", "--plot", "a.svg"], "figures need matplotlib; run pip install 'pta-vlm[figures]'"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_written(arguments, complaint, pta, pets, tmp_path, monkeypatch):
    for module in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, module, None)
    with np.load(pets) as arrays:
        np.savez(tmp_path / "wild.npz", **{key: value for key, value in arrays.items() if key != "labels"})
    done = pta("sweep", "--features", pets, *arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert complaint in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["wild.npz"]


def test_a_grid_too_large_is_refused_before_it_is_made():
    with pytest.raises(InvalidParameter, match=r"the grid has 1,000,000 points; at most 10,000 are swept"):
        Grid("pta", {"h": range(1000), "w": range(1000)})


def test_values_are_json_or_words():
    grid = read_grid(["pta.h=1, 2.5", "pta.x=a,True,null", 'pta.y=[1,2],{"a":"b,]"},"c,d"'])
    assert grid.values == {"h": [1, 2.5], "x": ["a", True, None], "y": [[1, 2], {"a": "b,]"}, "c,d"]}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.lists(json_values, min_size=1, max_size=5))
def test_a_list_of_json_comes_apart_into_what_it_was_made_of(values):
    written = [json.dumps(value) for value in values]
    assert split_values(",".join(written)) == written

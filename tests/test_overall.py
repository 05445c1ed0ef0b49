"""Comparisons over several sets: the bootstrap against a slow twin, Holm against closed testing, and the command."""

import json
import math
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
import tables
from hypothesis import given
from hypothesis import strategies as st

from pta.errors import InvalidParameter
from pta.measure.compare import Paired, compare
from pta.measure.contenders import Choice, Contender, against
from pta.measure.difference import Resampling, holm
from pta.measure.overall import _resampled, by_labels, compare_overall
from pta.measure.record import write_bits

QUICK = Resampling(resamples=1000)


def contender(dataset, right, method="pta", seen=None, **params):
    """One with these right answers by seed."""
    right = {seed: np.array(bits, int) for seed, bits in right.items()}
    seen = {seed: np.array((seen or {}).get(seed, np.ones_like(bits)), int) for seed, bits in right.items()}
    right = {seed: np.minimum(bits, seen[seed]) for seed, bits in right.items()}
    return Contender(dataset, method, params, {"kind": "iid"}, len(next(iter(right.values()))), seen, right)


def overall(*pairs, resampling=QUICK):
    (found,) = compare_overall(by_labels(pairs), resampling)
    return found


def chance(rng, n, seeds, better=0.0, dataset="pets"):
    """A and B, who is right more often by so much."""
    a = {seed: rng.random(n) < 0.6 for seed in range(seeds)}
    b = {seed: np.where(rng.random(n) < 0.2, rng.random(n) < 0.6 + 5 * better, bits) for seed, bits in a.items()}
    return contender(dataset, a, "clip"), contender(dataset, b)


# -- the bootstrap -----------------------------------------------------------------------------------------------------


def slow_resample(sets, rng):
    """One resample, sample by sample: sets, in each its orders, in each its samples; all answers are counted."""
    means = []
    for _ in sets:
        before, after, times, _ = sets[rng.integers(len(sets))]
        orders = rng.integers(len(times), size=len(times))
        changed = came = 0
        for sample in rng.integers(times.shape[1], size=times.shape[1]):
            for order in orders:
                changed += after[order, sample] - before[order, sample]
                came += times[order, sample]
        means.append(changed / came if came else 0.0)
    return sum(means) / len(means)


@pytest.mark.parametrize("sizes", [[(12, 1)], [(9, 3)], [(15, 2), (5, 1), (8, 3)]])
def test_the_fast_bootstrap_has_the_distribution_of_a_slow_one(sizes):
    rng, sets = np.random.default_rng(4), []
    for n, seeds in sizes:
        times = rng.integers(1, 4, size=(seeds, n))
        times[0, 0] = 0
        sets.append(Paired(rng.integers(times + 1), rng.integers(times + 1), times, ""))
    slow = np.array([slow_resample(sets, rng) for _ in range(3000)]).round(12)
    fast = _resampled(sets, Resampling(resamples=20_000), 1).round(12)
    at = np.union1d(slow, fast)
    shares = [np.searchsorted(np.sort(means), at, side="right") / len(means) for means in (slow, fast)]
    assert np.abs(shares[0] - shares[1]).max() < 1.95 * math.sqrt(1 / 3000 + 1 / 20_000)  # one in a thousand


def test_sets_that_are_sure_by_themselves_are_still_resampled():
    pairs = [
        (contender(name, {1: [0] * 9}, "clip"), contender(name, {1: [gain] * 9})) for name, gain in (("a", 0), ("b", 1))
    ]
    means = Counter(_resampled([Paired(*one) for one in _parts(pairs)], Resampling(), 1).tolist())
    for value, share in ((0.0, 0.25), (0.5, 0.5), (1.0, 0.25)):
        assert means[value] / 20_000 == pytest.approx(share, abs=0.02)
    assert overall(*pairs).interval == (0, 100)


def _parts(pairs):
    for a, b in pairs:
        yield np.array([a.right[1]]), np.array([b.right[1]]), np.array([a.seen[1]]), ""


def test_orders_that_differ_widen_the_interval_and_orders_that_agree_do_not():
    rng = np.random.default_rng(2)
    a, b = rng.integers(2, size=(2, 400))
    same = overall((contender("a", {1: a, 2: a, 3: a}, "clip"), contender("a", {1: b, 2: b, 3: b})))
    once = overall((contender("a", {1: a}, "clip"), contender("a", {1: b})))
    other = overall((contender("a", {1: a, 2: a, 3: a}, "clip"), contender("a", {1: b, 2: np.zeros(400), 3: b})))

    def width(one):
        return one.interval[1] - one.interval[0]

    assert width(same) == pytest.approx(width(once), rel=0.1)
    assert width(other) > 3 * width(once)


@given(st.data())
def test_exchanging_a_and_b_changes_the_sign_and_nothing_else(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    shapes = data.draw(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 3)), min_size=1, max_size=4))
    pairs = [chance(rng, n, seeds, dataset=f"set {at}") for at, (n, seeds) in enumerate(shapes)]
    one, other = overall(*pairs), overall(*((b, a) for a, b in pairs))
    assert other.difference == pytest.approx(-one.difference, abs=1e-9)
    assert (other.wins, other.ties, other.losses) == (one.losses, one.ties, one.wins)
    assert one.wins + one.ties + one.losses == len(shapes)
    if abs(one.difference) > 1e-9:
        assert other.interval == pytest.approx((-one.interval[1], -one.interval[0]))
        assert other.p_value == one.p_value
    assert one.difference == pytest.approx(np.mean([compare(*pair, QUICK).difference for pair in pairs]))


def test_the_interval_covers_the_truth_nearly_as_often_as_it_says():
    rng, covered, runs = np.random.default_rng(5), 0, 150
    for _ in range(runs):
        gains = rng.normal(0.03, 0.03, size=8)
        found = overall(*(chance(rng, 200, 2, gain, f"set {at}") for at, gain in enumerate(gains)))
        covered += found.interval[0] <= 3 <= found.interval[1]
    assert 0.85 <= covered / runs <= 0.99  # a bootstrap over eight sets is a little too narrow


# -- many methods ------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1), min_size=1, max_size=7))
def test_holm_is_closed_testing_with_bonferroni(p_values):
    numbers = range(len(p_values))
    families = [set(chosen) for size in numbers for chosen in combinations(numbers, size + 1)]
    slow = [
        max(min(1, len(one) * min(p_values[at] for at in one)) for one in families if own in one) for own in numbers
    ]
    assert holm(p_values) == pytest.approx(slow)


def test_of_methods_that_do_not_differ_one_is_rarely_called_better():
    rng, wrong, runs = np.random.default_rng(6), 0, 60
    for _ in range(runs):
        base = {1: rng.random(300) < 0.6}
        others = [np.where(rng.random(300) < 0.2, rng.random(300) < 0.6, base[1]) for _ in range(8)]
        a = contender("a", base, "clip")
        found = compare_overall(by_labels((a, contender("a", {1: one}, h=at)) for at, one in enumerate(others)), QUICK)
        assert [one.corrected for one in found] == holm([one.p_value for one in found])
        wrong += any(one.better for one in found)
    assert wrong <= 8  # 5 % of 60 are 3; without a correction there would be 20


def test_five_changed_samples_say_nothing_however_many_sets_there_are():
    def pair(name, changed):
        return contender(name, {1: [0] * 50}, "clip"), contender(name, {1: [1] * changed + [0] * (50 - changed)})

    few, enough = overall(pair("a", 2), pair("b", 3)), overall(pair("a", 3), pair("b", 3))
    assert (few.p_value, few.better) == (1.0, None)
    assert enough.p_value < 0.05
    assert enough.answer == "B is better on these 2 sets"
    assert overall(pair("a", 20)).answer == "B is better on this set"


def test_settings_of_one_method_are_rows_of_their_own_and_each_set_counts_once():
    rows = [contender(name, {1: [0, 1]}, h=h) for name in ("a", "b") for h in (5, 20)]
    clip = [contender(name, {1: [0, 0]}, "clip") for name in ("a", "b", "c")]
    groups = by_labels(against([*clip[:2], *rows], Choice("clip")))
    assert {labels: len(pairs) for labels, pairs in groups.items()} == {
        ("clip", "pta:h=5"): 2,
        ("clip", "pta:h=20"): 2,
    }
    with pytest.raises(InvalidParameter, match="there is nothing but clip to compare"):
        against(clip, Choice("clip"))


# -- the command -------------------------------------------------------------------------------------------------------


def record(right, method, dataset, seed=1):
    right = np.array(right, bool)
    bits = {"seen": write_bits(np.ones_like(right)), "right": write_bits(right)}
    return tables.record(dataset, method, seed, 100 * right.mean()) | bits | {"n": len(right), "samples": len(right)}


@pytest.fixture
def results(tmp_path):
    rng, records = np.random.default_rng(3), []
    for dataset in ("pets [red]", "cars", "food"):
        for seed in (1, 2):
            base = rng.random(300) < 0.5
            better = base | (rng.random(300) < 0.2)
            records += [
                record(bits, method, dataset, seed)
                for method, bits in (("clip", base), ("pta", better), ("tda", rng.permutation(base)))
            ]
    path = tmp_path / "results.json"
    path.write_text(json.dumps(records))
    return path


def test_one_row_per_method_says_who_is_better_over_all_sets(pta, results, tmp_path):
    done = pta("compare", results, "--overall", "--a", "clip", "--plot", "overall.svg", "--json", "overall.json")
    assert done.returncode == 0, done.stderr
    found = {one["b"]: one for one in json.loads((tmp_path / "overall.json").read_text())}
    assert set(found) == {"pta", "tda"}
    best = found["pta"]
    assert (best["a"], best["sets"], best["wins"], best["better"]) == ("clip", 3, 3, "B")
    assert best["interval"][0] > 0
    assert best["corrected"] == pytest.approx(2 * best["p_value"])
    assert [one["dataset"] for one in best["by_set"]] == ["pets [red]", "cars", "food"]
    assert best["difference"] == pytest.approx(np.mean([one["difference"] for one in best["by_set"]]))
    for words in ("B is better on these 3 sets", "Fewer than 6 sets", "Samples, orders and sets were resampled."):
        assert words in done.stdout
    drawn = (tmp_path / "overall.svg").read_text()
    assert "<svg" in drawn
    assert pta("compare", results, "--overall", "--a", "clip", "--plot", "again.svg").returncode == 0
    assert (tmp_path / "again.svg").read_text() == drawn
    (only,) = json.loads(pta("compare", results, "--overall", "--a", "clip", "--b", "pta", "--json", "-").stdout)
    assert only["difference"] == best["difference"]
    assert only["corrected"] == only["p_value"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ["--overall"],
            "choose two results of this one with --a and --b; --overall --a compares one result with all others",
        ),
        (["--overall", "--b", "pta"], "--overall --a compares one result with all others"),
        (["--a", "clip"], "give a second file, or choose two results of this one with --a and --b"),
        (["--overall", "--a", "dota"], "A has no such result on pets [red]; choose one with --a: clip, pta, tda"),
        (["--a", "clip", "--b", "pta", "--plot", "x.svg"], "--plot draws what --overall shows; add --overall"),
        (["--a", "clip", "--b", "pta", "--json", "results.json"], "would overwrite the records that are compared"),
        (["--overall", "--a", "clip", "--plot", "x.gif"], "a figure ends in .svg, .png, .pdf"),
        (["--overall", "--a", "clip", "--plot", "nowhere/x.svg"], "does not exist"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments, complaint, pta, results, tmp_path):
    before = sorted(tmp_path.iterdir())
    done = pta("compare", results, *arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert complaint in done.stderr
    assert sorted(tmp_path.iterdir()) == before

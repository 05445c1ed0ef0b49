"""Better or noise: the bootstrap against closed forms and a slow twin, and the command on real record files."""

import json
import math
import re
from dataclasses import replace
from fractions import Fraction
from itertools import product
from statistics import NormalDist

import numpy as np
import pytest
import tables
import torch
from fill_tables import rows
from hypothesis import given
from hypothesis import strategies as st

from pta.data.features import load_features
from pta.errors import InvalidParameter, InvalidSamples, PtaError, UnreadableFile
from pta.measure.compare import compare
from pta.measure.contenders import Choice, Contender, names, pair, read_contenders
from pta.measure.difference import Resampling, bootstrap_means
from pta.measure.evaluate import evaluate
from pta.measure.record import read_right, write_bits

IID = {"kind": "iid", "batch": 256}
QUICK = Resampling(resamples=1000)  # for laws that hold however few there are


def contender(right, method="pta", seen=None, **params):
    """One with these right answers by seed; all samples are seen unless said otherwise."""
    right = {seed: np.array(bits, bool) for seed, bits in right.items()}
    seen = {seed: np.array((seen or right)[seed], bool) | (seen is None) for seed in right}
    right = {seed: bits & seen[seed] for seed, bits in right.items()}
    return Contender("pets", method, params, IID, len(next(iter(right.values()))), seen, right)


def two_sided(n, right, fixed, broken):
    """A is right on the first `right` of n samples; B breaks some of these and fixes some others."""
    a = np.arange(n) < right
    b = a.copy()
    b[:broken], b[right : right + fixed] = False, True
    return contender({1: a}), contender({1: b})


# -- the statistic -----------------------------------------------------------------------------------------------------


@given(st.integers(20, 200), st.data())
def test_if_nothing_is_broken_the_interval_is_that_of_a_binomial(n, data):
    fixed = data.draw(st.integers(1, n - 1))
    a, b = two_sided(n, right=0, fixed=fixed, broken=0)
    found = compare(a, b)
    chances = [math.comb(n, k) * fixed**k * (n - fixed) ** (n - k) for k in range(n + 1)]  # times nⁿ, exactly
    for tail, bound in zip((Fraction(25, 1000), Fraction(975, 1000)), found.interval, strict=True):
        below, k = chances[0], 0
        while below < tail * n**n:
            k += 1
            below += chances[k]
        assert abs(bound / 100 * n - k) < 1.5  # 20,000 resamples may be one step off


def test_counts_of_values_are_resampled_as_samples_one_by_one_would_be():
    rng = np.random.default_rng(2)
    d, slow_draws, draws = rng.choice([-1.0, 0.0, 0.5, 1.0], size=40), 4000, 20_000
    slow = [sum(d[rng.integers(len(d))] for _ in range(len(d))) / len(d) for _ in range(slow_draws)]
    fast = bootstrap_means(d, draws, seed=1)
    at = np.union1d(slow, fast)
    apart = [np.searchsorted(np.sort(means), at, side="right") / len(means) for means in (slow, fast)]
    largest = 1.95 * math.sqrt((slow_draws + draws) / (slow_draws * draws))  # Kolmogorov-Smirnov, one in a thousand
    assert np.abs(apart[0] - apart[1]).max() < largest


def test_the_interval_covers_the_truth_as_often_as_it_says():
    rng, covered, pairs = np.random.default_rng(3), 0, 400
    for _ in range(pairs):
        d = rng.choice([-1.0, 0.0, 1.0], p=[0.08, 0.8, 0.12], size=300)
        low, high = QUICK.test(d).interval
        covered += low <= 0.04 <= high
    assert 0.92 <= covered / pairs <= 0.98


@st.composite
def sides(draw):
    """The right answers of A and B by seed."""
    n = draw(st.integers(1, 30))
    bits = st.lists(st.booleans(), min_size=n, max_size=n)
    return [draw(st.dictionaries(st.integers(0, 3), bits, min_size=1, max_size=3)) for _ in "ab"]


@given(sides(), st.randoms(use_true_random=False))
def test_a_comparison_is_consistent_and_knows_no_order_of_samples_or_sides(both, random):
    a, b = map(contender, both)
    found = compare(a, b, QUICK)
    assert found.difference == pytest.approx(found.accuracies[1] - found.accuracies[0], abs=1e-9)
    assert found.difference == pytest.approx(100 * (found.fixed - found.broken) / found.n, abs=1e-9)

    other = compare(b, a, QUICK)  # exchanged, only the sign changes
    assert (other.difference, other.accuracies) == (-found.difference, found.accuracies[::-1])
    assert (other.fixed, other.broken, other.standard_error) == (found.broken, found.fixed, found.standard_error)
    if found.difference:
        assert other.interval == (-found.interval[1], -found.interval[0])
        assert other.samples_needed == found.samples_needed

    order = random.sample(range(a.samples), a.samples)
    mixed = compare(*(contender({seed: bits[order] for seed, bits in one.right.items()}) for one in (a, b)), QUICK)
    for name in ("difference", "interval", "fixed", "broken"):
        assert getattr(mixed, name) == getattr(found, name)
    assert (*mixed.accuracies, mixed.standard_error) == pytest.approx((*found.accuracies, found.standard_error))

    same = compare(a, a, QUICK)
    assert (same.difference, same.interval, same.standard_error, same.fixed) == (0.0, (0.0, 0.0), 0.0, 0)
    assert same.verdict.startswith(f"{same.answer}: ")
    assert same.answer == "no difference"


@given(st.data(), st.sampled_from([(1, 2, 7), (3, 4)]))
def test_seeds_that_both_have_or_all_are_compared_on_the_samples_that_both_have_seen(data, other_seeds):
    n, every = data.draw(st.integers(2, 12)), ((1, 2, 5), other_seeds)
    bits = st.lists(st.booleans(), min_size=n, max_size=n)
    right, seen = ([{seed: data.draw(bits) for seed in own} for own in every] for _ in range(2))
    for side, own in zip(seen, every, strict=True):
        side[own[0]][0] = True
    found = compare(contender(right[0], seen=seen[0]), contender(right[1], seen=seen[1]), QUICK)

    pairs = [(1, 1), (2, 2)] if 1 in other_seeds else list(product(*every))  # a slow twin in fractions
    by_sample = [
        [right[1][t][at] - right[0][s][at] for s, t in pairs if seen[0][s][at] and seen[1][t][at]] for at in range(n)
    ]
    answers = [change for changes in by_sample for change in changes]
    assert found.n == sum(map(bool, by_sample))
    assert found.difference == pytest.approx(float(100 * Fraction(sum(answers), len(answers))), abs=1e-9)
    assert found.fixed == answers.count(1) / len(pairs)
    assert found.note.startswith("only seeds that both have: 1, 2" if 1 in other_seeds else "no seed is in both")


def counted(times, right):
    """A contender that saw each sample so many times, and was right so often."""
    return Contender("pets", "pta", {}, IID, len(times), {1: np.array(times)}, {1: np.array(right)})


@given(st.data())
def test_every_answer_counts_once_also_if_a_sample_comes_again(data):
    times = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=12).filter(any))
    a, b = ([data.draw(st.integers(0, most)) for most in times] for _ in "ab")
    found = compare(counted(times, a), counted(times, b), QUICK)
    assert found.n == sum(map(bool, times))
    assert found.accuracies == pytest.approx([100 * sum(right) / sum(times) for right in (a, b)])
    assert found.difference == pytest.approx(100 * (sum(b) - sum(a)) / sum(times), abs=1e-9)
    assert found.fixed - found.broken == sum(b) - sum(a)


def test_a_sample_that_comes_again_is_resampled_as_one():
    rng, often = np.random.default_rng(5), 20
    a, b = rng.integers(2, size=(2, 60))
    once = compare(counted(np.ones(60, int), a), counted(np.ones(60, int), b))
    again = compare(counted(np.full(60, often), often * a), counted(np.full(60, often), often * b))
    assert (again.interval, again.difference) == (once.interval, once.difference)  # no narrower
    assert again.standard_error == pytest.approx(once.standard_error)


def test_samples_are_resampled_with_all_their_answers():
    rng = np.random.default_rng(6)
    times = rng.integers(1, 30, size=40)
    changes = rng.integers(-times, times + 1)
    rows = rng.integers(40, size=(20_000, 40))
    slow = changes[rows].sum(axis=1) / times[rows].sum(axis=1)
    fast = bootstrap_means(changes.astype(float), 20_000, 1, times)
    quantiles = [0.01, 0.025, 0.25, 0.5, 0.75, 0.975, 0.99]
    assert np.quantile(fast, quantiles) == pytest.approx(np.quantile(slow, quantiles), abs=0.1 * slow.std())
    found = compare(counted(times, np.zeros(40, int)), counted(times, changes.clip(min=0)))
    assert found.standard_error > 0


def test_streams_in_which_samples_came_unequally_often_are_compared_as_often_as_both_have_them():
    found = compare(counted([4, 0, 1], [2, 0, 1]), counted([2, 5, 1], [2, 5, 0]))
    assert (found.n, found.accuracies) == (2, pytest.approx((100 * 2 / 3, 100 * 2 / 3)))
    assert (found.fixed, found.broken) == (1, 1)


# -- the verdict -------------------------------------------------------------------------------------------------------


def test_half_a_point_over_two_thousand_images_is_noise():
    found = compare(*two_sided(2000, right=1400, fixed=60, broken=50))
    z, variance = NormalDist().inv_cdf(0.975), 110 / 2000 - 0.005**2
    needed = math.ceil(2000 * (z * math.sqrt(variance / 2000) / 0.005) ** 2)
    assert (found.better, found.fixed, found.broken, found.samples_needed) == (None, 60, 50, needed)
    low, high = (f"{bound:.2f}".replace("-", "−") for bound in found.interval)
    assert found.verdict == (
        f"cannot tell: the difference of 0.50 points is within the noise of 2,000 samples (95 %: {low} to {high}); "
        f"a significant difference of this size would need about {needed:,} samples"
    )
    for share, better in ((0.8, None), (1.2, "B")):  # about as many are needed as was said
        counts = (round(share * needed * one / 2000) for one in (2000, 1400, 60, 50))
        assert compare(*two_sided(*counts)).better == better


def test_the_better_one_is_named_with_a_positive_interval():
    a, b = two_sided(2000, right=1400, fixed=90, broken=30)
    low, high = compare(a, b).interval
    for name, found in (("B", compare(a, b)), ("A", compare(b, a))):
        assert found.verdict == f"{name} is better by 3.00 points (95 %: {low:.2f} to {high:.2f})"
    everything = compare(contender({1: [False] * 9}), contender({1: [True] * 9}))
    assert (everything.better, everything.interval, everything.samples_needed) == ("B", (100, 100), None)


def test_no_difference_in_number_is_not_no_difference():
    found = compare(*two_sided(100, right=50, fixed=10, broken=10))
    assert (found.difference, found.answer, found.samples_needed) == (0, "cannot tell", None)
    assert "the difference of 0.00 points is within the noise of 100 samples (95 %" in found.verdict


def test_the_verdicts_in_the_document_have_the_words_of_the_program():
    def words(verdict):
        return re.sub(r"−?\d[\d,.]*", "", verdict)

    said = {words(compare(*two_sided(2000, 1000, fixed, 20)).verdict) for fixed in (30, 80)}
    assert {words(row["verdict"]) for row in rows("compare")} == said


@pytest.mark.parametrize(("name", "wrong"), [("level", 0.4), ("resamples", 10), ("seed", -1)])
def test_limits_are_checked_before_the_work(name, wrong):
    with pytest.raises(InvalidParameter, match=name):
        Resampling(**{name: wrong})


def test_other_data_is_refused():
    with pytest.raises(InvalidSamples, match="pets has 2 samples in A and 3 in B: other data"):
        compare(contender({1: [True, False]}), contender({1: [True, False, True]}))
    first, last = contender({1: [1, 1]}, seen={1: [1, 0]}), contender({1: [1, 1]}, seen={1: [0, 1]})
    with pytest.raises(InvalidSamples, match="have no sample in common"):
        compare(first, last)


# -- record files ------------------------------------------------------------------------------------------------------


def record(right, method="pta", seed=1, dataset="pets", **params):
    right = np.array(right, bool)
    bits = {"seen": write_bits(np.ones_like(right)), "right": write_bits(right)}
    plain = tables.record(dataset, method, seed, 100 * right.mean(), **params)
    return plain | bits | {"n": len(right), "samples": len(right)}


BITS = [True, False, True, True, False, False, True, True, True, False]


@pytest.fixture
def written(tmp_path):
    def write(name, *records):
        path = tmp_path / name
        path.write_text(json.dumps(records))
        return path

    return write


def test_seeds_of_one_setting_are_one_contender(written):
    path = written(
        "a.json", record(BITS, h=5), record(BITS, h=20), record(BITS[::-1], seed=2, h=5), record(BITS, "clip")
    )
    found = read_contenders(path)
    assert names(found) == ["pta:h=5", "pta:h=20", "clip"]
    assert {seed: bits.tolist() for seed, bits in found[0].right.items()} == {1: BITS, 2: BITS[::-1]}


def test_namesakes_are_compared_by_settings_or_else_by_method():
    clip, low, high = contender({1: BITS}, "clip"), contender({1: BITS}, h=5), contender({1: BITS}, h=20)
    assert pair([clip, low], [low, clip]) == [(clip, clip), (low, low)]
    assert pair([clip, low], [high, clip]) == [(clip, clip), (low, high)]
    assert pair([clip], [low]) == [(clip, low)]
    assert pair([low, high], [high, low]) == [(low, low), (high, high)]
    with pytest.raises(InvalidParameter, match="A has several on pets; choose one with --a: clip, pta"):
        pair([clip, low], [low])


def test_a_choice_is_a_method_and_settings_and_those_of_the_stream():
    low, high = contender({1: BITS}, h=5.0, w=0.1), contender({1: BITS}, h=20.0, w=0.1)
    assert pair([low, high], [low, high], Choice("pta", {"h": 20}), Choice("pta", {"h": 5})) == [(high, low)]
    assert Choice("pta", {"stream.kind": "iid"}).fits(low)
    assert not Choice("pta", {"stream.kind": "separate"}).fits(low)
    for choice, complaint in (
        (Choice("pta", {"w": 0.1}), "B has several on pets; choose one with --b: pta:h=5, pta:h=20"),
        (Choice("tda"), "B has no such result on pets; choose one with --b: pta:h=5, pta:h=20"),
    ):
        with pytest.raises(InvalidParameter, match=complaint):
            pair([low], [low, high], None, choice)


def repeated_record(order, right, samples):
    """The record of a stream in which samples come again."""
    seen = np.isin(np.arange(samples), order)
    bits = {"seen": write_bits(seen), "order": order, "right": write_bits(np.array(right, bool))}
    accuracy = 100 * np.mean(right) if right else 0.0
    return tables.record("pets", "pta", 1, accuracy) | bits | {"n": len(order), "samples": samples}


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=40))
def test_of_samples_that_come_again_every_answer_is_counted(answers):
    order, right = (list(one) for one in zip(*answers, strict=True))
    seen, good = read_right(repeated_record(order, right, 7))
    assert seen.tolist() == [order.count(number) for number in range(7)]
    assert good.tolist() == [answers.count((number, True)) for number in range(7)]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"order": [0, 7, 0]}, "an order of 7 samples has numbers from 0 to 6"),
        ({"order": [0, -1, 0]}, "an order of 7 samples has numbers from 0 to 6"),
        ({"order": [0, 1]}, "bits beyond its 2 samples"),
        ({"order": "AAAA"}, "whole number"),
        ({"order": [0.5, 1.0, 2.0]}, "whole number"),
        ({"order": [10**400, 1, 2]}, "whole number"),
        ({"order": [0, 1, 0] * 5}, "8 bits where there are 15 samples"),
        ({"samples": 10**12}, "bits where there are"),
        ({"n": 4}, "contradict each other"),
    ],
)
def test_a_damaged_order_is_refused_in_one_line(change, complaint, written):
    path = written("a.json", repeated_record([0, 1, 0], [True, False, True], 7) | change)
    with pytest.raises(PtaError, match=complaint) as refused:
        read_contenders(path)
    assert str(refused.value).startswith(f"{path}, record 1: ")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda one: one.pop("right"), "make it again with pta eval --json"),
        (lambda one: one.update(accuracy=None), "pets has no labels"),
        (lambda one: one.update(accuracy=12.0), "contradict each other"),
        (lambda one: one.update(n=9), "contradict each other"),
        (lambda one: one.update(seen=write_bits(np.zeros(10, bool))), "contradict each other"),
        (lambda one: one.update(right="kA"), "not base64"),
        (lambda one: one.update(right=7), "not base64"),
        (lambda one: one.update(right="kA=="), "8 bits where there are 10 samples"),
        (lambda one: one.update(samples=0), "samples is missing or damaged"),
        (lambda one: one.update(samples=10**30), "bits where there are"),
        (lambda one: one.pop("params"), "params is missing or damaged"),
        (lambda one: one.update(seed=True), "seed is missing or damaged"),
        (lambda one: one.clear(), "dataset is missing or damaged"),
        (lambda one: one.update(seed=2), "seed 2 of pta on pets is there twice"),
        (lambda one: one.update(record(BITS[:9])), "pets has other samples here than before"),
        (lambda one: one.update(experiment="table1"), "this is a table of pta reproduce"),
    ],
)
def test_a_damaged_record_is_refused_with_its_number(damage, complaint, written):
    one = record(BITS)
    damage(one)
    path = written("a.json", record(BITS, seed=2), one)
    with pytest.raises((UnreadableFile, InvalidSamples), match=complaint) as refused:
        read_contenders(path)
    assert str(refused.value).startswith(f"{path}, record 2: ")
    assert "\n" not in str(refused.value)


# -- the command -------------------------------------------------------------------------------------------------------


def test_what_eval_writes_can_be_compared(pta, pets, tmp_path):
    out, odd = tmp_path / "eval.json", tmp_path / "cars [red].npz"
    odd.write_bytes(pets.read_bytes())
    done = pta("eval", "--features", odd, "--seed", 1, "--seed", 2, "--json", out)
    assert "cars [red]" in done.stdout  # names are shown as they are
    records = {(one["method"], one["seed"]): one for one in json.loads(out.read_text())}
    done = pta("compare", out, "--a", "clip", "--b", "pta", "--json", "-")
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)
    for counted in ("fixed", "broken"):
        assert found[counted] == (records["pta", 1][counted] + records["pta", 2][counted]) / 2
    for side, method in (("a", "clip"), ("b", "pta")):
        both = (records[method, 1]["accuracy"] + records[method, 2]["accuracy"]) / 2
        assert found[side]["accuracy"] == pytest.approx(both)
    assert found["interval"][0] <= found["difference"] <= found["interval"][1]


def test_the_table_says_who_what_and_what_the_interval_leaves_out(pta, written):
    rng = np.random.default_rng(5)
    a = written("a.json", *(record(rng.random(900) < 0.5, dataset=name, h=5) for name in ("pets [red]", "cars")))
    b = written("b.json", *(record(rng.random(900) < 0.9, dataset=name, h=20) for name in ("pets [red]", "dtd")))
    done = pta("compare", a, b)
    assert done.returncode == 0, done.stderr
    for words in (
        "pets [red]",
        "pta:h=5",
        "pta:h=20",
        "B is better by",
        "It does not cover other stream orders or other data.",
    ):
        assert words in done.stdout
    assert done.stderr == "pta: left out, because only one file has them: cars, dtd\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["a.json"], "give a second file, or choose two results of this one with --a and --b"),
        (["a.json", "none.json"], "no such record file"),
        (["a.json", "damaged.json"], "is not JSON (truncated or damaged?)"),
        (["a.json", "object.json"], "is not a list of records"),
        (["a.json", "cars.json"], "no dataset is in both: A has pets, B has cars"),
        (["a.json", "a.json", "--a", "pta:h"], "--a pta:h: expected METHOD or METHOD:NAME=VALUE"),
        (["a.json", "a.json", "--level", "95"], "level must be a number from 0.5 to 0.999"),
        (["a.json", "a.json", "--resamples", "99999999"], "resamples must be a whole number from 1000 to 10000000"),
        (["a.json", "a.json", "--json", "nowhere/out.json"], "does not exist"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments, complaint, pta, written, tmp_path):
    written("a.json", record(BITS))
    written("cars.json", record(BITS, dataset="cars"))
    (tmp_path / "damaged.json").write_text('[{"dataset": "pe')
    (tmp_path / "object.json").write_text("{}")
    done = pta("compare", *arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert complaint in done.stderr


def test_the_same_samples_in_another_order_are_refused(pets, written):
    data = load_features(pets)
    turned = replace(data, samples=data.samples[torch.arange(299, -1, -1)], labels=data.labels[::-1])
    runs = [next(iter(evaluate(one, {"pta": {}}, [1]))).record() for one in (data, turned)]
    with pytest.raises(InvalidSamples, match="pets has other labels in A than in B"):
        compare(*(read_contenders(written("one.json", run))[0] for run in runs))

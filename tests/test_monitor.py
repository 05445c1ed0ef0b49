"""Monitors: the same for every batch size, alarms with the stated error, reactions that change what is learned next."""

import json
import subprocess
import sys
from itertools import pairwise
from math import comb
from pathlib import Path

import numpy as np
import pytest
import torch

import pta
from pta.core.labels import UNKNOWN
from pta.core.samples import Samples
from pta.engines.local_prior import LocalPrior, agreement
from pta.errors import InvalidParameter, PtaError
from pta.methods.state_file import read_monitor
from pta.monitor import Monitor, ScoreReference, StreamGuard, parse_reactions, takes_order
from pta.monitor.detector import ALARM_AT, LIFTS, advance, share_bound
from pta.monitor.reference import RANKS
from pta.monitor.scores import exactly_scored
from pta.monitor.stepping import watched_steps
from pta.reference.foreign_input import foreign_input_evidence

CLASSES, DIM = 12, 48


def unit(rows: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.normalize(rows, dim=1)


@pytest.fixture(scope="module")
def classifier() -> pta.ZeroShotClassifier:
    anchors = unit(torch.randn(CLASSES, DIM, generator=torch.Generator().manual_seed(0)))
    return pta.ZeroShotClassifier(anchors, [f"class {number}" for number in range(CLASSES)], scale=20.0)


def genuine(classifier: pta.ZeroShotClassifier, count: int, seed: int = 1, *, is_sorted: bool = False) -> torch.Tensor:
    """Features around the anchors."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    noise = torch.randn(count, DIM, generator=generator) / DIM**0.5
    return unit(classifier.anchors[labels.sort().values if is_sorted else labels] + 1.2 * noise)


def foreign(count: int, seed: int = 2) -> torch.Tensor:
    return unit(torch.randn(count, DIM, generator=torch.Generator().manual_seed(seed)))


def watch(
    guard: StreamGuard, adapter: pta.Adapter, features: torch.Tensor, batch: int, sources: list[str] | None = None
) -> tuple[list, np.ndarray]:
    alarms, learned = [], []
    for start in range(0, len(features), batch):
        rows = slice(start, start + batch)
        samples = Samples.of(features[rows])
        unknown = np.full(len(samples), UNKNOWN, np.int64)
        for piece in watched_steps(adapter, guard, samples, unknown, (sources or [])[rows]):
            alarms += [(alarm.kind, alarm.position, alarm.raised) for alarm in piece.alarms]
            learned.append(piece.learned)
    return alarms, np.concatenate(learned)


def watched(
    classifier: pta.ZeroShotClassifier,
    features: torch.Tensor,
    batch: int = 256,
    on: tuple[str, ...] = (),
    sources: list[str] | None = None,
    method: str = "pta",
) -> tuple[list, np.ndarray, Monitor, pta.Adapter]:
    adapter = pta.create_adapter(method, classifier)
    guard = StreamGuard(Monitor(classifier, takes_order=takes_order(adapter)), parse_reactions(on))
    alarms, learned = watch(guard, adapter, features, batch, sources)
    return alarms, learned, guard.monitor, adapter


# -- the detector -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("k", "n"), [(1, 200), (4, 200), (50, 500), (499, 500), (500, 500)])
def test_the_bound_is_the_quantile_of_a_beta_distribution(k: int, n: int) -> None:
    x, level = share_bound(k, n, 0.995), 0.995
    at_least = sum(comb(n, i) * x**i * (1 - x) ** (n - i) for i in range(k, n + 1))  # P(Beta(k, n + 1 − k) ≤ x)
    assert at_least == pytest.approx(level, abs=1e-9)


def test_blocks_of_sums_equal_the_loop() -> None:
    rng = np.random.default_rng(3)
    reference, scores = rng.normal(size=(300, 2)), rng.normal(-0.3, 1, size=(320, 2))
    held = ScoreReference(reference, (0.0, 0.0))
    sums, path = np.zeros((12, len(LIFTS))), []
    for block in np.split(scores, 5):
        path.append(advance(sums, held.below(block), held.bounds).mean(axis=1))
    loop = foreign_input_evidence(reference, held.bounds.reshape(6, 2), scores)
    assert np.allclose(np.concatenate(path), loop, rtol=1e-9)
    assert sums.mean() == pytest.approx(loop[-1], rel=1e-9)


def test_the_expectation_of_the_sums_is_at_most_the_number_of_samples() -> None:
    rng, bounds, runs, t = np.random.default_rng(4), np.array([0.05, 0.3]), 20_000, 64
    total = 0.0
    for _ in range(runs):
        sums = np.zeros((2, len(LIFTS)))
        advance(sums, rng.random((t, 2)) < bounds, bounds)
        total += sums[:, 0].mean()  # the small lift, whose mean a simulation can find
    assert total / runs == pytest.approx(t, rel=0.15)


def test_most_windows_like_the_reference_are_within_its_bands(classifier: pta.ZeroShotClassifier) -> None:
    inside = []
    for seed in range(100):
        features = genuine(classifier, 500 + 256, seed)
        low, high = np.array(ScoreReference.of(classifier, features[:500]).bands(256)).T
        mean = exactly_scored(classifier, features[500:]).shown.mean(axis=0)
        inside.append((low <= mean) & (mean <= high))
    assert (np.abs(np.mean(inside, axis=0) - 0.95) <= 0.05).all()


def test_a_reference_of_few_samples_is_refused(classifier: pta.ZeroShotClassifier) -> None:
    with pytest.raises(InvalidParameter, match="200"):
        ScoreReference.of(classifier, genuine(classifier, 199))


def test_a_reference_belongs_to_its_classifier(classifier: pta.ZeroShotClassifier, tmp_path: Path) -> None:
    made = ScoreReference.of(classifier, genuine(classifier, 300))
    made.save(tmp_path / "ref.safetensors", classifier)
    assert np.array_equal(ScoreReference.load(tmp_path / "ref.safetensors", classifier).scores, made.scores)
    other = pta.ZeroShotClassifier(classifier.anchors.flip(0), classifier.class_names, scale=20.0)
    with pytest.raises(PtaError, match="another model"):
        ScoreReference.load(tmp_path / "ref.safetensors", other)


# -- batches, saving --------------------------------------------------------------------------------------------------


def attacked(classifier: pta.ZeroShotClassifier) -> tuple[torch.Tensor, list[str]]:
    """Genuine samples, then many foreign ones and a flood of one picture, then genuine ones again."""
    features = genuine(classifier, 2600)
    features[800:1200:2] = foreign(200)
    features[1300:1600:2] = unit(classifier.anchors[3:4] + 0.05)
    sources = [f"camera {number % 2}" for number in range(len(features))]
    for number in range(1300, 1600, 2):
        sources[number] = "attacker"
    return features, sources


REACTIONS = ("foreign-input=hold", "one-source=cap", "changed-more=zero-shot")


@pytest.mark.parametrize("method", ["pta", "wpta", "tda"])
def test_batches_of_any_size_give_the_same_alarms_reactions_and_state(
    classifier: pta.ZeroShotClassifier, method: str
) -> None:
    features, sources = attacked(classifier)
    alarms, learned, monitor, adapter = watched(classifier, features, 256, REACTIONS, sources, method)
    assert {"foreign-input", "one-source"} <= {kind for kind, _, _ in alarms}
    assert not learned.all()
    for batch in (1, 7, 64):
        again, theirs, other, twin = watched(classifier, features, batch, REACTIONS, sources, method)
        assert again == alarms
        assert np.array_equal(theirs, learned)
        for name, one in vars(monitor.memory).items():
            if isinstance(one, np.ndarray):
                assert np.allclose(one, getattr(other.memory, name), rtol=1e-4, atol=1e-5), name
        assert twin.position == adapter.position == learned.sum()
        assert torch.allclose(twin.predict(features[:50]), adapter.predict(features[:50]), atol=1e-3)


def test_names_that_come_once_hide_no_source_and_batches_agree(classifier: pta.ZeroShotClassifier) -> None:
    """31 sources have learned more than the flooding one, which a new name every 96 samples competes with."""
    features = genuine(classifier, 64 * 60)
    features[64 * 52 :: 2] = genuine(classifier, 1)[0]
    sources = [f"camera {number % 31}" for number in range(len(features))]
    sources[64 * 52 :: 2] = ["attacker"] * len(sources[64 * 52 :: 2])
    for number in range(64 * 54 + 20, len(sources), 96):
        sources[number] = f"new {number}"
    alarms, learned, monitor, _ = watched(classifier, features, 256, ("one-source=cap",), sources)
    assert [kind for kind, _, _ in alarms if kind == "one-source"] == ["one-source"]
    assert "attacker" in monitor.memory.sources
    again, theirs, *_ = watched(classifier, features, 1, ("one-source=cap",), sources)
    assert again == alarms
    assert np.array_equal(theirs, learned)


def test_a_picture_of_the_reference_is_never_below_its_own_score() -> None:
    """Float32 logits of one sample differ in the last bits between batches; what is compared is exact."""
    generator = torch.Generator().manual_seed(7)
    anchors = unit(torch.randn(100, 512, generator=generator))
    wide = pta.ZeroShotClassifier(anchors, [str(number) for number in range(100)])
    noise = torch.randn(500, 512, generator=generator) / 512**0.5
    features = unit(anchors[torch.randint(100, (500,), generator=generator)] + noise)
    reference = ScoreReference.of(wide, features)
    ranks = [int(share * 500) - 1 for share in RANKS]
    for score in range(2):
        copies = features[np.argsort(reference.scores[:, score])[ranks]].repeat(43, 1)[:256]
        for batch in (1, 5, 64, 256):
            monitor = Monitor(wide, reference=reference)
            adapter, unknown = pta.create_adapter("clip", wide), np.full(batch, UNKNOWN, np.int64)
            for part in copies.split(batch):
                list(
                    watched_steps(adapter, StreamGuard(monitor, {}), Samples.unchecked(part), unknown[: len(part)], ())
                )
            exact = reference.below(exactly_scored(wide, copies).ranked).sum(axis=0)
            assert np.array_equal(monitor.memory.ring_sums[:, 3:].sum(axis=0), exact)


def test_a_monitor_that_was_saved_within_a_block_goes_on_as_if_it_was_not(
    classifier: pta.ZeroShotClassifier, tmp_path: Path
) -> None:
    features, sources = attacked(classifier)
    alarms, _, whole, _ = watched(classifier, features, 100, REACTIONS, sources)
    adapter = pta.create_adapter("pta", classifier)
    guard = StreamGuard(Monitor(classifier), parse_reactions(REACTIONS))
    first, _ = watch(guard, adapter, features[:900], 100, sources)
    path = tmp_path / "state.safetensors"
    adapter.save(path, monitor=guard.monitor.pack())
    kept = read_monitor(path)
    assert kept is not None
    again = Monitor(classifier)
    again.unpack(*kept, path)
    second, _ = watch(
        StreamGuard(again, parse_reactions(REACTIONS)),
        pta.load_adapter(path, classifier),
        features[900:],
        100,
        sources[900:],
    )
    assert first + second == alarms
    for name, one in vars(whole.memory).items():
        if isinstance(one, np.ndarray):
            assert np.array_equal(one, getattr(again.memory, name)), name


def test_a_state_without_a_monitor_starts_an_empty_one(classifier: pta.ZeroShotClassifier, tmp_path: Path) -> None:
    adapter = pta.create_adapter("pta", classifier)
    adapter.step(genuine(classifier, 10))
    adapter.save(tmp_path / "state.safetensors")
    assert read_monitor(tmp_path / "state.safetensors") is None


class Seen:
    """What a monitor is given of a stream: the same numbers for every split of it."""

    def __init__(self, classifier: pta.ZeroShotClassifier, features: torch.Tensor, sources: list[str]) -> None:
        adapter, self.sources = pta.create_adapter("pta", classifier), sources
        logits = torch.cat([adapter.step(part) for part in features.split(64)])
        answers = adapter.probabilities(logits).numpy(), logits.argmax(dim=1).numpy()
        self.learned = np.random.default_rng(5).random(len(features)) < 0.9
        self.columns = features.numpy(), classifier.logits(features).numpy(), *answers

    def told(self, monitor: Monitor, rows: slice) -> tuple[list, list]:
        alarms = monitor.add_arrays(
            [column[rows] for column in self.columns], self.learned[rows], self.sources[rows], None
        )
        return [alarm.as_dict() for alarm in alarms], monitor.series


def told_in_all(seen: Seen, classifier: pta.ZeroShotClassifier, ends: list[int], *, is_packed: bool) -> tuple:
    monitor, alarms, series = Monitor(classifier), [], []
    for start, end in pairwise([0, *ends, len(seen.sources)]):
        for told, more in zip((alarms, series), seen.told(monitor, slice(start, end)), strict=True):
            told += more
        if is_packed:
            packed, monitor = monitor.pack(), Monitor(classifier)
            monitor.unpack(*packed, "memory")
    return alarms, series, monitor.numbers(), monitor.classes(), monitor.sources(), monitor.since_block().tolist()


@pytest.mark.parametrize("seed", range(4))
def test_a_stream_that_is_packed_anywhere_gives_the_same_bits(classifier: pta.ZeroShotClassifier, seed: int) -> None:
    features, sources = attacked(classifier)
    sources[2000::7] = [f"new {number}" for number in range(len(sources[2000::7]))]
    seen, rng = Seen(classifier, features[:2590], sources[:2590]), np.random.default_rng(seed)
    whole = told_in_all(seen, classifier, [], is_packed=False)
    assert {"foreign-input", "one-source"} <= {alarm["kind"] for alarm in whole[0]}
    ends = sorted(rng.choice(2590, size=(3, 40, 300, 2000)[seed], replace=False).tolist())
    assert told_in_all(seen, classifier, ends, is_packed=False) == whole
    assert told_in_all(seen, classifier, ends, is_packed=True) == whole


def test_samples_that_are_counted_late_give_the_same(classifier: pta.ZeroShotClassifier) -> None:
    features, sources = attacked(classifier)
    adapter, late, at_once = pta.create_adapter("pta", classifier), Monitor(classifier), Monitor(classifier)
    found: list[list] = [[], []]
    for start in range(0, len(features), 100):
        logits = adapter.step(part := features[start : start + 100])
        given = part, classifier.logits(part), adapter.probabilities(logits), logits.argmax(dim=1)
        named = np.ones(len(part), np.bool_), sources[start : start + 100], adapter
        found[0] += late.add(*given, *named, late=True)
        found[1] += at_once.add_arrays([column.numpy() for column in given], *named)
        assert late.position == at_once.position
    assert found[0] + late.flush() == found[1] != []
    assert late.numbers() == at_once.numbers()


def test_what_is_packed_is_small() -> None:
    generator = torch.Generator().manual_seed(8)
    anchors = unit(torch.randn(1000, 512, generator=generator))
    wide = pta.ZeroShotClassifier(anchors, [str(number) for number in range(1000)])
    near = anchors[torch.randint(1000, (1087,), generator=generator)]
    seen = Seen(wide, unit(0.35 * near + torch.randn(1087, 512, generator=generator) / 512**0.5), ["door"] * 1087)
    monitor, done = Monitor(wide), 0
    for end, most in ((20, 50_000), (63, 150_000), (1087, 200_000)):  # 63 and 63 more than 16 blocks
        seen.told(monitor, slice(done, end))
        tensors, about = monitor.pack()
        assert sum(one.nbytes for one in tensors.values()) + len(json.dumps(about)) <= most
        done = end
    assert monitor.has_own_reference
    assert sum(one.nbytes for one in vars(monitor.memory).values() if isinstance(one, np.ndarray)) <= 250_000


def test_the_order_statistic_is_that_of_the_local_prior(classifier: pta.ZeroShotClassifier) -> None:
    features, prior = genuine(classifier, 1280, is_sorted=True), LocalPrior.fresh(classifier)
    prior.learn(classifier.logits(features).double().softmax(dim=1))
    monitor = watched(classifier, features)[2]
    assert monitor.order == pytest.approx(agreement(prior.found, prior.by_chance).item(), rel=1e-5)
    assert monitor.order > 1.5


FORMER = Path(__file__).parent / "golden" / "monitored.safetensors"


def test_a_monitor_of_the_former_form_goes_on_within_its_block(classifier: pta.ZeroShotClassifier) -> None:
    """Its file has the state after 900 samples, as version 0.1.0 wrote it."""
    features, sources = attacked(classifier)
    alarms, _, whole, _ = watched(classifier, features, 100, REACTIONS, sources)
    former, kept = Monitor(classifier), read_monitor(FORMER)
    assert kept is not None
    former.unpack(*kept, FORMER)
    assert former.position == 900
    assert former.standing == ("foreign-input",)
    guard = StreamGuard(former, parse_reactions(REACTIONS))
    again, _ = watch(guard, pta.load_adapter(FORMER, classifier), features[900:], 100, sources[900:])
    assert again == [alarm for alarm in alarms if alarm[1] > 900]
    for name, one in vars(whole.memory).items():
        if isinstance(one, np.ndarray):
            assert np.allclose(one, getattr(former.memory, name), rtol=1e-4, atol=1e-5), name
    assert former.memory.sources == whole.memory.sources


@pytest.mark.parametrize("damage", ["shape", "dtype", "nan", "index", "source", "json", "missing", "window"])
def test_a_damaged_monitor_of_the_former_form_is_refused(classifier: pta.ZeroShotClassifier, damage: str) -> None:
    kept = read_monitor(FORMER)
    assert kept is not None
    tensors, about, said = dict(kept[0]), kept[1], "damaged"
    if damage == "shape":
        tensors["pending_zero_shot"] = tensors["pending_zero_shot"][:, :-1]
    elif damage == "dtype":
        tensors["recent"] = tensors["recent"].bfloat16()
    elif damage == "nan":
        tensors["pending_zero_shot"][0, 0] = float("nan")
    elif damage == "index":
        tensors["pending"][0, 0] = CLASSES
    elif damage == "source":
        tensors["recent"][0, 0] = 33
    elif damage == "json":
        about = None
    elif damage == "missing":
        del tensors["weights"]
    else:
        tensors["ring_sums"], said = tensors["ring_sums"][:2], "--window 128, not 256"
    with pytest.raises(PtaError, match=said):
        Monitor(classifier).unpack(tensors, about, "a file")


@pytest.mark.parametrize("damage", ["shape", "rows", "scalar", "dtype", "nan", "negative", "index", "json", "missing"])
def test_a_damaged_monitor_is_refused(classifier: pta.ZeroShotClassifier, damage: str) -> None:
    _, _, monitor, _ = watched(classifier, genuine(classifier, 300))
    tensors, about = monitor.pack()
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    if damage == "shape":
        tensors["evidence"] = tensors["evidence"][:, :1]
    elif damage == "rows":
        tensors["pending"] = tensors["pending"].repeat(2, 1)
    elif damage == "scalar":
        tensors["answered"] = tensors["answered"][0]
    elif damage == "dtype":
        tensors["evidence"] = tensors["evidence"].bfloat16()
    elif damage == "negative":
        tensors["prior_sums"][1] = -1.0
    elif damage == "nan":
        tensors["total_sums"][0] = float("nan")
    elif damage == "index":
        tensors["pending"][0, 0] = CLASSES
    elif damage == "json":
        about = {"sources": [1], "standing": {}}
    else:
        del tensors["counts"]
    with pytest.raises(PtaError, match="damaged"):
        Monitor(classifier).unpack(tensors, about, "a file")


def test_a_monitor_of_another_window_is_refused_with_the_window_to_use(classifier: pta.ZeroShotClassifier) -> None:
    with pytest.raises(PtaError, match="--window 512, not 256; use that"):
        Monitor(classifier).unpack(*Monitor(classifier, window=512).pack(), "a file")


@pytest.mark.parametrize("window", [0, 63, 100, -64, 2**17])
def test_a_window_that_is_not_a_multiple_of_64_is_refused(classifier: pta.ZeroShotClassifier, window: int) -> None:
    with pytest.raises(InvalidParameter, match="multiple of 64"):
        Monitor(classifier, window=window)


# -- alarms and reactions ---------------------------------------------------------------------------------------------


def test_a_clean_stream_raises_nothing(classifier: pta.ZeroShotClassifier) -> None:
    alarms, learned, *_ = watched(classifier, genuine(classifier, 4000), on=REACTIONS, sources=["a", "b"] * 2000)
    assert alarms == []
    assert learned.all()


def test_foreign_samples_raise_an_alarm_that_holds_learning_until_they_end(
    classifier: pta.ZeroShotClassifier,
) -> None:
    features = genuine(classifier, 2400)
    features[700:1000] = foreign(300)
    alarms, learned, monitor, adapter = watched(classifier, features, on=("foreign-input=hold",))
    (_, raised, _), (_, over, _) = [alarm for alarm in alarms if alarm[0] == "foreign-input"]
    assert 700 < raised < 900
    assert 1000 < over < 1500
    assert not learned[raised:over].any()
    assert learned[:raised].all()
    assert learned[over:].all()
    assert adapter.position == learned.sum()
    assert monitor.memory.evidence.mean() < ALARM_AT


def test_a_sorted_stream_raises_sorted_only_where_the_method_cannot_take_it(
    classifier: pta.ZeroShotClassifier,
) -> None:
    features = genuine(classifier, 1500, is_sorted=True)
    alarms, *_ = watched(classifier, features)
    assert [kind for kind, position, _ in alarms if position <= 300] == ["sorted"]
    assert watched(classifier, features, method="wpta")[0] == []


def test_foreign_input_does_not_react_while_samples_come_sorted(classifier: pta.ZeroShotClassifier) -> None:
    monitor = Monitor(classifier)
    monitor.memory.standing["foreign-input"] = {}
    guard = StreamGuard(monitor, {"foreign-input": "hold"})
    assert guard.acting == {"hold"}
    monitor.memory.prior_sums[0] = 100.0
    assert guard.acting == frozenset()


def test_cap_bounds_what_one_source_teaches_a_class(classifier: pta.ZeroShotClassifier) -> None:
    features, sources = genuine(classifier, 1600), [f"camera {number % 2}" for number in range(1600)]
    for number in range(600, 1600, 2):
        features[number], sources[number] = unit(classifier.anchors[3:4] + 0.05)[0], "attacker"
    alarms, learned, *_ = watched(classifier, features, on=("one-source=cap",), sources=sources)
    (raised,) = [position for kind, position, is_raised in alarms if kind == "one-source" and is_raised]
    assert 600 < raised <= 800
    is_attack = np.array([source == "attacker" for source in sources])
    assert learned[~is_attack].all()
    assert learned[raised:][is_attack[raised:]].mean() < 0.3


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("foreign=hold", "foreign-input"),
        ("foreign-input=rewind", "note, hold"),
        ("foreign-input", "ALARM=REACTION"),
        ("sorted=cap", "one-source"),
        ("silent=hold", "no samples come"),
    ],
)
def test_unknown_alarms_and_reactions_are_refused(given: str, said: str) -> None:
    with pytest.raises(InvalidParameter, match=said):
        parse_reactions([given])


def test_sources_are_bounded(classifier: pta.ZeroShotClassifier) -> None:
    features = genuine(classifier, 320)
    _, _, monitor, _ = watched(classifier, features, sources=[f"source {number}" for number in range(320)])
    assert len(monitor.memory.sources) == 32
    assert monitor.memory.weights.sum() == pytest.approx(sum(row["weight"] for row in monitor.classes()))


# -- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def files(classifier: pta.ZeroShotClassifier, tmp_path: Path) -> Path:
    features = genuine(classifier, 1400)
    features[700:1100] = foreign(400)
    for name, rows in {"stream": features, "clean": genuine(classifier, 400, seed=5), "few": features[:100]}.items():
        np.savez(
            tmp_path / f"{name}.npz",
            image_features=rows.numpy(),
            text_features=classifier.anchors.numpy(),
            classnames=np.array(classifier.class_names),
        )
    return tmp_path


def run(*words: object, folder: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "pta", "monitor", *map(str, words)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_command_raises_the_alarm_and_writes_what_it_measured(files: Path) -> None:
    made = run("reference", "clean.npz", "--out", "ref.safetensors", folder=files)
    assert made.returncode == 0, made.stderr
    words = (
        "--reference",
        "ref.safetensors",
        "--on",
        "foreign-input=hold",
        "--monitor",
        "m.jsonl",
        "--json",
        "all.json",
    )
    done = run("run", "stream.npz", "--method", "pta", *words, "--figure", "h.png", folder=files)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("alarm foreign-input") == 1
    assert "health: zero-shot confidence" in done.stderr
    record = json.loads((files / "all.json").read_text())
    lines = [json.loads(line) for line in (files / "m.jsonl").read_text().splitlines()]
    assert [line for line in lines if "alarm" not in line] == record["blocks"]
    assert [line["alarm"] for line in lines if "alarm" in line] == record["alarms"]
    assert (files / "h.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("reference", "few.npz", "--out", "few.safetensors"), "a reference needs 200"),
        (("run", "stream.npz", "--window", "0"), "multiple of 64"),
        (("run", "stream.npz", "--on", "foreign=hold"), "did you mean 'foreign-input'"),
        (("run", "stream.npz", "--reference", "stream.npz"), "stream.npz"),
        (("run", "stream.npz", "--figure", "h.txt"), "must end in"),
        (("run", "stream.npz", "--alarm-key", "key"), "--alarm-url"),
        (("run", "stream.npz", "--alarm-url", "ftp://example.org"), "http"),
        (("run", "stream.npz", "--monitor", "stream.npz"), ".jsonl"),
        (("run", "stream.npz", "--monitor", "link.jsonl"), "is a link, which is not followed; name the file itself"),
        (("run", "stream.npz", "--silent-after", "5"), "leave it out"),
    ],
)
def test_a_mistake_is_one_line_and_changes_nothing(files: Path, words: tuple[str, ...], said: str) -> None:
    (files / "link.jsonl").symlink_to("nowhere.jsonl")
    before = sorted(files.iterdir())
    done = run(*words, folder=files)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert said in done.stderr
    assert sorted(files.iterdir()) == before

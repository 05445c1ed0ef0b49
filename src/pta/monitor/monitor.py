"""Monitor: what a stream looks like to the frozen zero-shot model and to adaptation, and the alarms that follow.

Samples are collected in blocks of 64 and measured block by block, so that batches of any size give the same numbers. A
window is the last blocks; the default of 256 samples is four.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pta.core.classifier import ZeroShotClassifier
from pta.engines.gpu.download import Download
from pta.engines.local_prior import ORDERED
from pta.errors import InvalidParameter
from pta.methods import Adapter
from pta.methods.classes import cosines_with_text
from pta.monitor import alarms, sources
from pta.monitor.alarms import Alarm
from pta.monitor.detector import ALARM_AT, UNLUCKY, advance, share_bound
from pta.monitor.former import converted
from pta.monitor.memory import MARKS, MOST_SOURCES, NO_COSINE, OTHERS, OWN_REFERENCE, Memory
from pta.monitor.order import agreements, count_order
from pta.monitor.reference import SHARES, ScoreReference
from pta.monitor.scores import BLOCK, PART, ZeroShotScores, exactly_scored, rounding, scored

WINDOW = 256
_LARGEST_WINDOW = 2**16
_SAMPLES, _REFERENCE, _CHANGED = range(3)
_AT_TEXT = 0.999  # the cosine from which on a prototype is still its text
_NAMES = ("zero_shot_confidence", "top_cosine", "changed")
_ON_HOST: WeakKeyDictionary[ZeroShotClassifier, ZeroShotClassifier] = WeakKeyDictionary()
"""Classifiers in float32, which keep their anchors in float64: the monitors of one classifier share them."""


def require_window(window: int) -> None:
    """Refuse a window that is not made of blocks, or too large."""
    if not BLOCK <= window <= _LARGEST_WINDOW or window % BLOCK:
        raise InvalidParameter(f"the window must be a multiple of {BLOCK} from {BLOCK} to {_LARGEST_WINDOW:,}")


def takes_order(adapter: Adapter) -> bool:
    """Whether a method can take a stream that is sorted by class: it learns nothing, or has a prior for it."""
    return adapter.parameters.get("prior") != "none" or adapter.state_bytes == 0


class Monitor:
    """The monitor of one stream.

    Args:
        reference: what samples are compared with; None for the first 500 that are learned.
        window: samples that the numbers of now are taken over, a multiple of 64.
        takes_order: whether the method can take a stream that is sorted by class.
    """

    def __init__(
        self,
        classifier: ZeroShotClassifier,
        *,
        reference: ScoreReference | None = None,
        window: int = WINDOW,
        takes_order: bool = False,
    ) -> None:
        require_window(window)
        if classifier not in _ON_HOST:
            _ON_HOST[classifier] = classifier.to(device=torch.device("cpu"), dtype=torch.float32)
        self._classifier = _ON_HOST[classifier]
        self._rounding = rounding(classifier, torch.finfo(torch.float32).eps)
        self._given, self.window, self._takes_order = reference, window, takes_order
        self.memory = Memory.empty(classifier.classes, classifier.dim, window // BLOCK)
        self._own: ScoreReference | None = None
        self._bounds = np.zeros(0)
        self._waiting: deque[_Waiting] = deque()
        self.series: list[dict[str, Any]] = []
        """The numbers after each block that the last `add` or `flush` completed."""

    def pack(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """A copy of what it keeps, as tensors and as JSON, for `unpack`; without a reference that was given."""
        return self.memory.pack()

    def unpack(self, tensors: Mapping[str, Tensor], about: object, path: object) -> None:
        """Go on from what another one of the same classifier and window kept."""
        logits = None
        if "prior" in tensors:
            tensors, about, logits = converted(tensors, about, self._classifier.classes)
        self.memory.unpack(tensors, about, path)
        self._waiting.clear()
        self._own, self._bounds = None, np.zeros(0)
        if logits is not None:
            self._measure(tensors["pending_features"].numpy(), logits, 0)

    @property
    def size(self) -> int:
        """The bytes of what it keeps."""
        return self.memory.size

    @property
    def position(self) -> int:
        """How many samples were added."""
        return self._counted + (sum(len(one.learned) for one in self._waiting) if self._waiting else 0)

    @property
    def _counted(self) -> int:
        return int(self.memory.counts[_SAMPLES])

    def room(self, *, reacting: bool) -> int:
        """How many samples can be learned before the next look at alarms, or at least at prototypes."""
        every = BLOCK if reacting else MARKS
        return every - self.position % every

    @property
    def standing(self) -> tuple[str, ...]:
        """The alarms that are raised now."""
        return tuple(self.memory.standing)

    @property
    def order(self) -> float:
        """The order statistic of the local prior: about 1 for a shuffled stream."""
        return self.memory.order

    @property
    def is_ordered(self) -> bool:
        """Whether the last samples came sorted by class."""
        return self.order > ORDERED

    @property
    def has_own_reference(self) -> bool:
        """Whether the first samples are known, whose scores are the reference where none is given."""
        return bool(self.memory.counts[_REFERENCE] == OWN_REFERENCE)

    @property
    def reference(self) -> ScoreReference | None:
        """What samples are compared with, once there is one."""
        if self._given is None and self._own is None and self.has_own_reference:
            kept = self.memory.reference
            self._own = ScoreReference(kept[:, :2].copy(), (float(kept[:, 2].mean()), float(kept[:, 3].mean())))
        return self._given or self._own

    def add(
        self,
        features: Tensor,
        zero_shot: Tensor,
        answers: Tensor,
        labels: Tensor,
        learned: NDArray[np.bool_],
        named: Sequence[str] = (),
        adapter: Adapter | None = None,
        *,
        late: bool = False,
    ) -> list[Alarm]:
        """Count B samples in order; returns the alarms that were raised by them, and those that are over.

        Args:
            features: B×d unit rows.
            zero_shot: B×C logits of the classifier alone.
            answers: B×C probabilities after adaptation; `labels` are the classes that adaptation answers.
            learned: which of the samples were learned.
            named: the source of each sample, or nothing.
            adapter: after these samples, for numbers about its prototypes.
            late: count them at the next call or `flush`, so that the host does not wait for a GPU now.
        """
        is_mark = adapter is not None and (self.position + len(features)) % MARKS == 0
        cosines = partial(list[float | None], cosines_with_text(adapter)) if adapter is not None and is_mark else None
        columns = [Download(column) for column in (features, zero_shot, answers, labels)]
        self._waiting.append(_Waiting(columns, learned, named, cosines))
        return self.flush(but=int(late))

    def add_arrays(
        self, columns: Sequence[NDArray[Any]], learned: NDArray[np.bool_], named: Sequence[str], adapter: Adapter | None
    ) -> list[Alarm]:
        """The same as `add` on the host, whose first four arguments are the columns."""
        self.series = []
        return self._count(columns, learned, named, None if adapter is None else partial(cosines_with_text, adapter))

    def flush(self, *, but: int = 0) -> list[Alarm]:
        """Count the samples that were added late, but for those of the last so many calls."""
        self.series, found = [], list[Alarm]()
        while len(self._waiting) > but:
            columns, learned, named, cosines = self._waiting.popleft()
            found += self._count([column.wait().numpy() for column in columns], learned, named, cosines)
        return found

    def _count(
        self,
        columns: Sequence[NDArray[Any]],
        learned: NDArray[np.bool_],
        named: Sequence[str],
        cosines: "_Cosines | None",
    ) -> list[Alarm]:
        memory, found, done, count = self.memory, list[Alarm](), 0, len(learned)
        features, zero_shot, answers, labels = columns
        while done < count:
            start = self._counted % BLOCK
            rows = slice(done, min(count, done + BLOCK - start))
            done, end = rows.stop, start + rows.stop - rows.start
            pending = memory.pending[start:end]
            pending[:, 0], pending[:, 1], pending[:, 2] = labels[rows], learned[rows], OTHERS
            if named:
                numbers = {name: sources.number_of(memory, name) for name in dict.fromkeys(named[rows])}
                pending[:, 2] = [numbers[name] for name in named[rows]]
            for row in answers[rows]:  # one by one, so that the sum is the same in every batch
                memory.pending_sums[0] += row
            self._measure(features[rows], zero_shot[rows], start)
            memory.counts[_SAMPLES] += end - start
            if end == BLOCK:
                found += self._block(cosines)
        return found

    def _measure(self, features: NDArray[np.floating], zero_shot: NDArray[np.floating], start: int) -> None:
        """Keep the next samples of a block, and measure those that are complete as a part of it."""
        memory, done = self.memory, 0
        if memory.is_collecting:
            memory.pending_features[start : start + len(features)] = features
            if start + len(features) == BLOCK:
                whole = torch.from_numpy(memory.pending_features)
                self._keep_scores(exactly_scored(self._classifier, whole), 0)
            return
        while done < len(features):
            place = (start + done) % PART
            taken = min(PART - place, len(features) - done)
            memory.pending_features[place : place + taken] = features[done : done + taken]
            memory.pending_zero_shot[place : place + taken] = zero_shot[done : done + taken]
            done += taken
            if place + taken == PART:
                part = scored(self._classifier, memory.pending_zero_shot)
                self._make_exact(part)
                self._keep_scores(part, start + done - PART)
                memory.pending_features[:], memory.pending_zero_shot[:] = 0, 0

    def _make_exact(self, part: ZeroShotScores) -> None:
        """Compute ranked scores in float64 that the rounding of the logits could put on either side of a threshold."""
        if (reference := self.reference) is not None:
            is_near = np.abs(part.ranked[:, None] - reference.thresholds) < self._rounding
            if is_near.any():
                rows = np.flatnonzero(is_near.any(axis=(1, 2)))
                features = torch.from_numpy(self.memory.pending_features[rows])
                part.ranked[rows] = exactly_scored(self._classifier, features).ranked

    def _keep_scores(self, part: ZeroShotScores, start: int) -> None:
        scores = self.memory.pending_scores[start : start + len(part.labels)]
        scores[:, 0], scores[:, 1], scores[:, 2:4] = part.labels, part.confidence, part.ranked
        scores[:, 4:] = agreements(self.memory, part.probabilities, start)

    def _block(self, cosines: "_Cosines | None") -> list[Alarm]:
        """Measure a full block, and look at the alarms."""
        memory = self.memory
        sources.drop_smallest(memory)
        ranked, zero_shot = memory.pending_scores[:, 2:4], memory.pending_scores[:, 0].astype(np.int64)
        is_tested, reference = not self.is_ordered, self.reference
        changed = memory.pending[:, 0] != zero_shot
        below = np.zeros((BLOCK, SHARES), np.bool_) if reference is None else reference.below(ranked)
        # a few classes are not what later samples are like, and neither are learned ones without those held as doubtful
        collects = memory.is_collecting and memory.pending[:, 1].any()
        self._keep(zero_shot, changed, below)
        reached = False, False
        if is_tested and reference is not None:  # what is skipped is decided by the samples before
            reached = self._test(below, changed, reference)
        if collects:
            self._collect(changed)
        if cosines is not None and self._counted % MARKS == 0:
            self._look_at(np.array(cosines(), np.float64))
        memory.start_block()
        now = self._now()
        found = list(self._decide(*reached, now["answer_entropy_ratio"]))
        self.series.append(now | {"alarms": list(memory.standing)})
        return found

    def _keep(self, zero_shot: NDArray[np.int64], changed: NDArray[np.bool_], below: NDArray[np.bool_]) -> None:
        memory, learned = self.memory, self.memory.pending[:, 1].astype(bool)
        row = (self._counted // BLOCK - 1) % len(memory.ring_sums)
        confidence, numbers, sums = memory.pending_scores[:, 1], memory.pending[:, 2], memory.ring_sums[row]
        memory.ring_answers[row] = memory.pending_sums[:2]
        sums[0], sums[1] = confidence.sum(), memory.pending_scores[:, 3].sum()
        sums[2], sums[3:] = changed.sum(), below.sum(axis=0)
        count_order(memory, memory.pending_scores[:, 4:])
        memory.total_sums += sums[:3]
        recent = memory.recent[BLOCK * row : BLOCK * (row + 1)].T
        recent[0], recent[1], recent[2], recent[3] = numbers, zero_shot, confidence, learned
        sources.count_weights(memory, numbers[learned], zero_shot[learned], confidence[learned])
        np.add.at(memory.answered, memory.pending[:, 0], 1)

    def _test(
        self, below: NDArray[np.bool_], changed: NDArray[np.bool_], reference: ScoreReference
    ) -> tuple[bool, bool]:
        """Whether the evidence of foreign input, and that of changed answers, reaches its level in a block."""
        memory, bounds = self.memory, self._tested_bounds(reference)
        seen = np.hstack([below, changed[:, None]])[:, : len(bounds)]
        means = advance(memory.evidence[: len(bounds)], seen, bounds)
        foreign = bool(means[:, :SHARES].mean(axis=1).max() >= ALARM_AT)
        more = bool((means[:, SHARES:] >= ALARM_AT).any())
        memory.evidence[:SHARES] *= not foreign
        memory.evidence[SHARES:] *= not more
        return foreign, more

    def _tested_bounds(self, reference: ScoreReference) -> NDArray[np.float64]:
        """p̄ of each threshold and, after the first samples, of the share of changed answers."""
        is_full = self.has_own_reference
        if len(self._bounds) != SHARES + is_full:
            k = int(self.memory.counts[_CHANGED]) + 1
            changed = min(share_bound(k, OWN_REFERENCE, 1 - UNLUCKY) + alarms.CHANGED_SLACK, 0.99)
            self._bounds = np.array([*reference.bounds, changed][: SHARES + is_full])
        return self._bounds

    def _collect(self, changed: NDArray[np.bool_]) -> None:
        """Take the samples of a block into the own reference until it is full."""
        memory = self.memory
        have = int(memory.counts[_REFERENCE])
        rows = slice(OWN_REFERENCE - have)
        memory.reference[have : have + BLOCK] = memory.pending_scores[rows][:, [2, 3, 1, 3]]
        memory.counts[_REFERENCE] += len(changed[rows])
        memory.counts[_CHANGED] += changed[rows].sum()

    def _look_at(self, cosines: NDArray[np.float64]) -> None:
        """Note how far prototypes have moved against their texts since the last look; NaN for classes without one.

        The first sample of a class moves a prototype that begins at the text far, so it does not count.
        """
        memory, now = self.memory, np.nan_to_num(cosines, nan=NO_COSINE)
        is_known = (now != NO_COSINE) & (memory.cosines < _AT_TEXT)
        memory.movement[:] = np.where(is_known, np.abs(now - memory.cosines), 0)
        memory.cosines[:] = now

    def _decide(self, is_foreign: bool, is_changed: bool, ratio: float) -> Iterator[Alarm]:
        """Which alarms are raised now, and which are over."""
        memory, is_ordered, names = self.memory, self.is_ordered, self._classifier.class_names
        shares = memory.ring_sums[:, 2:].sum(axis=0) / min(self._counted, self.window)
        if (reference := self.reference) is not None:
            bounds = self._tested_bounds(reference)
            worst = int((shares[1:] - reference.bounds).argmax())
            numbers = {"share": shares[1 + worst], "bound": bounds[worst]}
            yield from self._set(alarms.FOREIGN, is_foreign, bool((shares[1:] > reference.bounds).any()), numbers)
            if len(bounds) > SHARES:
                numbers = {"share": shares[0], "bound": bounds[SHARES]}
                yield from self._set(alarms.CHANGED, is_changed, bool(shares[0] > bounds[SHARES]), numbers)
        least = alarms.LEAST_ENTROPY_RATIO
        is_low = self._counted >= self.window and ratio < least and not is_ordered  # sorted: few classes at a time
        yield from self._set(alarms.CONCENTRATING, is_low, is_low, {"ratio": ratio, "threshold": least})
        is_hurt = is_ordered and not self._takes_order
        yield from self._set(alarms.SORTED, is_hurt, is_hurt, {"order": self.order, "threshold": ORDERED})
        floods = sources.flooding(memory)
        (source, label), share = max(floods.items(), key=lambda one: one[1], default=(("", 0), 0.0))
        numbers = {"source": source, "name": names[label], "share": share}
        yield from self._set(alarms.ONE_SOURCE, bool(floods), bool(floods), numbers)
        is_moved = memory.movement > alarms.LARGEST_MOVEMENT
        if is_moved.any():
            is_moved &= memory.weights.sum(axis=0) >= alarms.MOVED_WEIGHT
        moved, has_moved = int((memory.movement * is_moved).argmax()), bool(is_moved.any())
        numbers = {"name": names[moved], "movement": memory.movement[moved], "threshold": alarms.LARGEST_MOVEMENT}
        yield from self._set(alarms.MOVED, has_moved, has_moved, numbers)

    def _set(self, kind: str, raises: bool, stays: bool, numbers: dict[str, Any]) -> Iterator[Alarm]:
        standing = self.memory.standing
        is_raised = raises and kind not in standing
        if is_raised or (kind in standing and not stays):
            plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in numbers.items()}
            plain["window"] = min(self._counted, self.window)
            if is_raised:
                standing[kind] = plain
            else:
                del standing[kind]
            yield Alarm(kind, self._counted, is_raised, plain)

    def numbers(self) -> dict[str, Any]:
        """The numbers of the window and since the start, for a page or metrics."""
        memory, n = self.memory, max(self._counted - self._counted % BLOCK, 1)
        total = dict(zip(_NAMES, (memory.total_sums / n).tolist(), strict=True))
        total["answer_entropy_ratio"] = _entropy_ratio(memory.totals[:2])
        bands = None if self.reference is None else dict(zip(_NAMES, self.reference.bands(self.window), strict=False))
        return {**self._now(), "reference_bands": bands, "alarms": list(memory.standing), "since_start": total}

    def _now(self) -> dict[str, Any]:
        """The numbers of the window."""
        memory, seen = self.memory, min(max(self._counted - self._counted % BLOCK, 1), self.window)
        order, reference = self.order, self.reference
        return {
            "position": self._counted,
            **dict(zip(_NAMES, (memory.ring_sums[:, :3].sum(axis=0) / seen).tolist(), strict=True)),
            "answer_entropy_ratio": _entropy_ratio(memory.ring_answers.sum(axis=0, dtype=np.float64)),
            "order": order,
            "foreign_input_is_testable": reference is not None and order <= ORDERED,
            "reference": None if reference is None else dict(zip(_NAMES, reference.means, strict=False)),
        }

    def classes(self) -> list[dict[str, Any]]:
        """Per class: learned weight, share of the answers, cosine of prototype and text, movement per 1,024 samples."""
        memory, n = self.memory, max(self._counted - self._counted % BLOCK, 1)
        cosines = [None if cosine == NO_COSINE else cosine for cosine in memory.cosines.tolist()]
        numbers = (memory.weights.sum(axis=0).tolist(), (memory.answered / n).tolist())
        rows = zip(self._classifier.class_names, *numbers, cosines, memory.movement.tolist(), strict=True)
        return [dict(zip(("name", "weight", "answers", "cosine", "movement"), row, strict=True)) for row in rows]

    def sources(self) -> list[dict[str, Any]]:
        """The 32 largest sources, each with its share of the learned weight of each class."""
        return sources.described(self.memory, self._classifier.class_names)

    def scored(self, zero_shot: Tensor) -> ZeroShotScores:
        """What zero-shot says of samples, by its logits."""
        return scored(self._classifier, zero_shot.cpu().float().numpy())

    def since_block(self) -> NDArray[np.float64]:
        """The samples of the block that is not full, as rows of `Memory.recent`."""
        memory, count = self.memory, self._counted % BLOCK
        pending, numbers = memory.pending[:count], memory.pending[:count, 2]
        if memory.is_collecting:
            rest, measured = exactly_scored(self._classifier, torch.from_numpy(memory.pending_features[:count])), 0
        else:
            rest, measured = scored(self._classifier, memory.pending_zero_shot[: count % PART]), count - count % PART
        done = memory.pending_scores[:measured, :2]
        scores = np.concatenate([done, np.stack([rest.labels, rest.confidence], axis=1)])
        return np.column_stack([np.where(numbers > MOST_SOURCES, OTHERS, numbers), scores, pending[:, 1]])


_Cosines = Callable[[], list[float | None]]  # of prototypes and texts, which are asked for at a mark


class _Waiting(NamedTuple):
    """Samples on the host, or on their way there."""

    columns: list[Download]  # features, zero-shot logits, probabilities of the answers, labels
    learned: NDArray[np.bool_]
    named: Sequence[str]
    cosines: "_Cosines | None"


def _entropy_ratio(sums: NDArray[np.float64]) -> float:
    """The entropy of the mean answer divided by that of the mean zero-shot answer, from sums of both, 2×C."""
    shares = sums / np.maximum(sums.sum(axis=1, keepdims=True), 1e-300)
    adapted, alone = (-shares * np.log(np.maximum(shares, 1e-300))).sum(axis=1).tolist()
    return adapted / alone if alone > 0 else 1.0

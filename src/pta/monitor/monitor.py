"""Monitor: what a stream looks like to the frozen zero-shot model and to adaptation, and the alarms that follow.

Samples are collected in blocks of 64 and measured block by block, so that batches of any size give the same numbers. A
window is the last blocks; the default of 256 samples is four.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pta.core.classifier import ZeroShotClassifier
from pta.engines.local_prior import LocalPrior
from pta.errors import InvalidParameter
from pta.methods import Adapter
from pta.methods.classes import cosines_with_text
from pta.monitor import alarms
from pta.monitor.alarms import Alarm
from pta.monitor.detector import ALARM_AT, UNLUCKY, advance, share_bound
from pta.monitor.memory import MARKS, MOST_SOURCES, NO_COSINE, OWN_REFERENCE, Memory
from pta.monitor.reference import RANKS, Reference
from pta.monitor.scores import BLOCK, BlockScores, scored

WINDOW = 256
_LARGEST_WINDOW = 2**16
_SAMPLES, _LEARNED, _REFERENCE, _CHANGED, _TESTED = range(5)


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
        reference: Reference | None = None,
        window: int = WINDOW,
        takes_order: bool = False,
    ) -> None:
        if not BLOCK <= window <= _LARGEST_WINDOW or window % BLOCK:
            raise InvalidParameter(f"the window must be a multiple of {BLOCK} from {BLOCK} to {_LARGEST_WINDOW:,}")
        self._classifier = classifier.to(device=torch.device("cpu"))
        self._given, self.window, self._takes_order = reference, window, takes_order
        self.memory = Memory.empty(classifier.classes, classifier.dim, window // BLOCK)
        self._own: Reference | None = None
        self._changed_bound: float | None = None
        self.series: list[dict[str, Any]] = []
        """The numbers after each block that was completed by the last `add`."""

    def pack(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything it keeps, as tensors and as JSON, for `unpack`; a reference that was given is not among it."""
        return self.memory.pack()

    def unpack(self, tensors: Mapping[str, Tensor], about: object, path: object) -> None:
        """Go on from what another one of the same classifier and window kept."""
        self.memory.unpack(tensors, about, path)
        self._own = self._changed_bound = None

    @property
    def position(self) -> int:
        """How many samples were added."""
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
    def is_ordered(self) -> bool:
        """Whether the last samples came sorted by class."""
        return self._prior().is_ordered

    @property
    def reference(self) -> Reference | None:
        """What samples are compared with, once there is one."""
        if self._given is None and self._own is None and self.memory.counts[_REFERENCE] == OWN_REFERENCE:
            kept = self.memory.reference
            self._own = Reference(kept[:, :2], (float(kept[:, 2].mean()), float(kept[:, 3].mean())))
        return self._given or self._own

    def add(
        self,
        features: Tensor,
        answers: Tensor,
        labels: Tensor,
        learned: NDArray[np.bool_],
        sources: Sequence[str] = (),
        adapter: Adapter | None = None,
    ) -> list[Alarm]:
        """Count B samples in order; returns the alarms that were raised by them, and those that are over.

        Args:
            features: B×d unit rows.
            answers: B×C probabilities after adaptation; `labels` are the classes that adaptation answers.
            learned: which of the samples were learned.
            sources: of each sample, or of none.
            adapter: after these samples, for numbers about its prototypes.
        """
        memory, found, done = self.memory, list[Alarm](), 0
        self.series = []
        rows_of_features, rows_of_answers = (one.detach().cpu().numpy() for one in (features, answers))
        given = labels.cpu().numpy()
        named = [self._source(source) for source in sources] or [MOST_SOURCES] * len(features)
        while done < len(features):
            start = self.position % BLOCK
            rows = slice(done, done + BLOCK - start)
            end = start + min(BLOCK - start, len(features) - done)
            memory.pending_features[start:end] = rows_of_features[rows]
            memory.pending_answers[start:end] = rows_of_answers[rows]
            pending = memory.pending[start:end]
            pending[:, 0], pending[:, 1], pending[:, 2] = given[rows], learned[rows], named[rows]
            memory.counts[_SAMPLES] += end - start
            done = rows.stop
            if end == BLOCK:
                found += self._block(adapter if done >= len(features) else None)
        return found

    def _source(self, name: str) -> int:
        """The column of a source; the one with the least weight goes to the others if there are too many."""
        memory = self.memory
        if name in memory.sources:
            return memory.sources.index(name)
        if len(memory.sources) < MOST_SOURCES:
            memory.sources.append(name)
            return len(memory.sources) - 1
        column = int(memory.weights[:, :MOST_SOURCES].sum(axis=0).argmin())
        memory.weights[:, MOST_SOURCES] += memory.weights[:, column]
        memory.weights[:, column] = 0
        for numbers in (memory.recent[:, 0], memory.pending[:, 2]):
            numbers[numbers == column] = MOST_SOURCES
        memory.sources[column] = name
        return column

    def _block(self, adapter: Adapter | None) -> list[Alarm]:
        """Measure a full block, and look at the alarms."""
        memory = self.memory
        labels, learned, sources = memory.pending.T
        block = scored(self._classifier, torch.from_numpy(memory.pending_features).clone())
        changed = labels != block.labels
        tested, reference = not self.is_ordered, self.reference
        below = np.zeros((BLOCK, 2 * len(RANKS)), np.bool_) if reference is None else reference.below(block.ranked)
        self._keep(block, changed, below, labels, learned.astype(bool), sources)
        largest = {alarms.FOREIGN: 0.0, alarms.CHANGED: 0.0}
        if reference is not None and tested:  # what is skipped is decided by the samples before
            memory.counts[_TESTED] += 1
            largest[alarms.FOREIGN] = advance(memory.foreign, below, reference.bounds)
        if (bound := self._bound_of_changed()) is not None and tested:
            largest[alarms.CHANGED] = advance(memory.changed, changed[:, None], np.array([bound]))
        if tested:  # a few classes are not what later samples are like
            self._collect(block, changed, learned.astype(bool))
        if adapter is not None and self.position % MARKS == 0:
            self._look_at(adapter)
        found = list(self._decide(largest))
        self.series.append(self.numbers())
        return found

    def _keep(
        self,
        block: BlockScores,
        changed: NDArray[np.bool_],
        below: NDArray[np.bool_],
        labels: NDArray[np.int64],
        learned: NDArray[np.bool_],
        sources: NDArray[np.int64],
    ) -> None:
        memory, C = self.memory, self._classifier.classes
        row = (self.position // BLOCK - 1) % len(memory.ring_sums)
        answers, zero_shot = (
            memory.pending_answers.sum(axis=0, dtype=np.float64),
            block.probabilities.double().sum(dim=0).numpy(),
        )
        sums = np.array([*block.shown.sum(axis=0), changed.sum()])
        memory.ring_answers[row], memory.ring_zero_shot[row], memory.ring_sums[row] = answers, zero_shot, sums
        memory.ring_below[row] = below.sum(axis=0)
        memory.total_answers += answers
        memory.total_zero_shot += zero_shot
        memory.total_sums += sums
        weights = block.shown[:, 0]
        memory.recent[BLOCK * row : BLOCK * (row + 1)] = np.stack([sources, block.labels, weights, learned], axis=1)
        np.add.at(memory.weights, (block.labels[learned], sources[learned]), weights[learned])
        memory.answered += np.bincount(labels, minlength=C)
        memory.counts[_LEARNED] += learned.sum()
        prior = self._prior()
        prior.count_samples(block.probabilities.double())
        memory.prior_sums[:] = float(prior.found), float(prior.by_chance), float(prior.count)

    def _prior(self) -> LocalPrior:
        memory = self.memory
        found, by_chance, count = torch.from_numpy(memory.prior_sums.copy())
        fast, slow, mean = torch.from_numpy(memory.prior)
        return LocalPrior(fast, slow, mean, found, by_chance, count.long())

    def _collect(self, block: BlockScores, changed: NDArray[np.bool_], learned: NDArray[np.bool_]) -> None:
        """Take learned samples into the own reference until it is full."""
        memory = self.memory
        have = int(memory.counts[_REFERENCE])
        rows = np.flatnonzero(learned)[: OWN_REFERENCE - have]
        if len(rows):
            memory.reference[have : have + len(rows)] = np.hstack([block.ranked, block.shown])[rows]
            memory.counts[_REFERENCE] += len(rows)
            memory.counts[_CHANGED] += changed[rows].sum()

    def _bound_of_changed(self) -> float | None:
        """p̄ of the share of changed answers, from those to the own reference."""
        if self._changed_bound is None and self.memory.counts[_REFERENCE] == OWN_REFERENCE:
            k = int(self.memory.counts[_CHANGED]) + 1
            self._changed_bound = min(share_bound(k, OWN_REFERENCE, 1 - UNLUCKY) + alarms.CHANGED_SLACK, 0.99)
        return self._changed_bound

    def _look_at(self, adapter: Adapter) -> None:
        """Note how far prototypes have moved against their texts since the last look."""
        memory = self.memory
        found = cosines_with_text(adapter)
        now = np.array([NO_COSINE if cosine is None else cosine for cosine in found])
        is_known = (now != NO_COSINE) & (memory.cosines != NO_COSINE)
        memory.movement[:] = np.where(is_known, np.abs(now - memory.cosines), 0)
        memory.cosines[:] = now

    def _decide(self, largest: dict[str, float]) -> Iterator[Alarm]:
        """Which alarms are raised now, and which are over."""
        memory, is_ordered = self.memory, self.is_ordered
        names = self._classifier.class_names
        seen = min(self.position, self.window)
        in_window = self.position >= self.window
        if largest[alarms.FOREIGN] >= ALARM_AT:
            memory.foreign[:] = 0
        if largest[alarms.CHANGED] >= ALARM_AT:
            memory.changed[:] = 0
        reference = self.reference
        if reference is not None:
            shares = memory.ring_below.sum(axis=0) / seen
            worst = int((shares - reference.bounds).argmax())
            numbers = {"share": shares[worst], "bound": reference.bounds[worst]}
            stays = bool((shares > reference.bounds).any())
            yield from self._set(alarms.FOREIGN, largest[alarms.FOREIGN] >= ALARM_AT, stays, numbers)
        if (bound := self._bound_of_changed()) is not None:
            share = memory.ring_sums[:, 2].sum() / seen
            is_raised = largest[alarms.CHANGED] >= ALARM_AT
            yield from self._set(alarms.CHANGED, is_raised, share > bound, {"share": share, "bound": bound})
        ratio, least = self._entropy_ratio(), alarms.LEAST_ENTROPY_RATIO
        is_low = in_window and ratio < least and not is_ordered  # a sorted stream has few classes at a time
        yield from self._set(alarms.CONCENTRATING, is_low, is_low, {"ratio": ratio, "threshold": least})
        order = self.order
        is_hurt = is_ordered and not self._takes_order
        yield from self._set(alarms.SORTED, is_hurt, is_hurt, {"order": order})
        source, label, share, weight = self._largest_source()
        is_flood = share >= alarms.SOURCE_SHARE and weight >= alarms.SOURCE_WEIGHT * self.window
        numbers = {"source": source, "name": names[label], "share": share}
        yield from self._set(alarms.ONE_SOURCE, is_flood, is_flood, numbers)
        moved = int(memory.movement.argmax())
        has_moved = memory.movement[moved] > alarms.LARGEST_MOVEMENT
        numbers = {"name": names[moved], "movement": memory.movement[moved], "threshold": alarms.LARGEST_MOVEMENT}
        yield from self._set(alarms.MOVED, has_moved, has_moved, numbers)

    def _set(self, kind: str, raises: bool, stays: bool, numbers: dict[str, Any]) -> Iterator[Alarm]:
        standing = self.memory.standing
        plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in numbers.items()}
        plain["window"] = self.window
        if raises and kind not in standing:
            standing[kind] = plain
            yield Alarm(kind, self.position, True, plain)
        elif kind in standing and not stays:
            del standing[kind]
            yield Alarm(kind, self.position, False, plain)

    @property
    def order(self) -> float:
        """The order statistic of the local prior: about 1 for a shuffled stream."""
        return self._prior().agreement

    def _entropy_ratio(self, *, total: bool = False) -> float:
        """The entropy of the mean answer divided by that of the mean zero-shot answer."""
        memory = self.memory
        sums = (memory.total_answers, memory.total_zero_shot)
        if not total:
            sums = memory.ring_answers.sum(axis=0), memory.ring_zero_shot.sum(axis=0)
        adapted, alone = (_entropy(one) for one in sums)
        return adapted / alone if alone > 0 else 1.0

    def _largest_source(self) -> tuple[str, int, float, float]:
        """The source that gave most weight to one class, of which it gave most, if there are several sources."""
        table = self._sources_in_window()
        own, total = table[:, :MOST_SOURCES], table.sum(axis=1, keepdims=True)
        label, column = np.unravel_index(int(np.where(own >= alarms.SOURCE_SHARE * total, own, 0).argmax()), own.shape)
        share = own[label, column] / max(total[label, 0], 1e-9)
        name = self.memory.sources[column] if column < len(self.memory.sources) else ""
        return name, int(label), float(share), float(own[label, column])

    def flooding(self) -> set[tuple[str, int]]:
        """The sources that give most of a class's weight in the window, where that is much, with these classes."""
        table, sources = self._sources_in_window(), self.memory.sources
        own, total = table[:, : len(sources)], table.sum(axis=1, keepdims=True)
        is_flood = (own >= alarms.SOURCE_SHARE * total) & (own >= alarms.SOURCE_WEIGHT * self.window)
        return {(sources[column], int(label)) for label, column in np.argwhere(is_flood)}

    def _sources_in_window(self) -> NDArray[np.float64]:
        """The weight of each class from each source, C×33; zeros if there is one source."""
        recent = self.memory.recent
        sources, labels, weights, _ = recent[recent[:, 0] >= 0].T
        table = np.zeros((self._classifier.classes, MOST_SOURCES + 1))
        if len(np.unique(sources)) > 1:
            np.add.at(table, (labels.astype(int), sources.astype(int)), weights)
        return table

    def weights_of(self, features: Tensor) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Which class each sample counts for, the one that zero-shot names, and with what weight, its probability."""
        block = scored(self._classifier, features.detach().cpu().float())
        return block.labels, block.shown[:, 0]

    def learned_in_window(self) -> tuple[dict[tuple[str, int], float], dict[int, float]]:
        """The weight that was learned in the window and since, by source and class, and by class."""
        memory, start = self.memory, self.position % BLOCK
        sources, labels, weights, learned = memory.recent.T
        if start:
            classes, theirs = self.weights_of(torch.from_numpy(memory.pending_features[:start]))
            rows = np.stack([memory.pending[:start, 2], classes, theirs, memory.pending[:start, 1]], axis=1)
            sources, labels, weights, learned = np.concatenate([memory.recent, rows]).T
        own, total = dict[tuple[str, int], float](), dict[int, float]()
        for row in np.flatnonzero((sources >= 0) & (learned > 0)):
            column, label, weight = int(sources[row]), int(labels[row]), float(weights[row])
            total[label] = total.get(label, 0.0) + weight
            if column < len(memory.sources):
                key = memory.sources[column], label
                own[key] = own.get(key, 0.0) + weight
        return own, total

    def numbers(self) -> dict[str, Any]:
        """The numbers of the window and since the start, for a file of them, a page or metrics."""
        memory, n = self.memory, max(self.position - self.position % BLOCK, 1)
        seen = min(n, self.window)
        now, total = memory.ring_sums.sum(axis=0) / seen, memory.total_sums / n
        names = ("zero_shot_confidence", "top_cosine", "changed")
        reference = self.reference
        return {
            "position": self.position,
            **dict(zip(names, now.tolist(), strict=True)),
            "answer_entropy_ratio": self._entropy_ratio(),
            "order": self.order,
            "foreign_input_is_testable": reference is not None and not self.is_ordered,
            "alarms": list(memory.standing),
            "since_start": {
                **dict(zip(names, total.tolist(), strict=True)),
                "answer_entropy_ratio": self._entropy_ratio(total=True),
            },
            "reference": None if reference is None else dict(zip(names[:2], reference.means, strict=True)),
        }

    def classes(self) -> list[dict[str, Any]]:
        """Per class: learned weight, share of the answers, cosine of prototype and text, movement, largest source."""
        memory, n = self.memory, max(self.position - self.position % BLOCK, 1)
        rows = []
        for number, name in enumerate(self._classifier.class_names):
            weights, cosine = memory.weights[number], float(memory.cosines[number])
            total, column = float(weights.sum()), int(weights[:MOST_SOURCES].argmax())
            has_source = column < len(memory.sources) and weights[column] > 0
            rows.append(
                {
                    "name": name,
                    "weight": total,
                    "answers": memory.answered[number].item() / n,
                    "cosine": None if cosine == NO_COSINE else cosine,
                    "movement": memory.movement[number].item(),
                    "source": memory.sources[column] if has_source else None,
                    "source_share": weights[column].item() / total if has_source else None,
                }
            )
        return rows


def _entropy(sums: NDArray[np.float64]) -> float:
    p = sums / max(sums.sum(), 1e-300)
    return float(-(p * np.log(p, out=np.zeros_like(p), where=p > 0)).sum())

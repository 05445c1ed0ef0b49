"""ECALP: Efficient and Context-Aware Label Propagation for Zero-/Few-Shot Training-Free Adaptation of
Vision-Language Model (ICLR 2025).

https://arxiv.org/abs/2412.18303, https://github.com/Yushu-Li/ECALP

Keeps samples with their nearest neighbours, their nearest texts, and one label each. Labels spread along this graph
from the texts and from the labels of before.

s(i→j) = ⟨w⊙f_i, f_j⟩/‖w⊙f_i‖ with w the variance of the text anchors in each coordinate, scaled to unit length; the
weight is on the older sample, and a negative s counts as 0.
For each sample with unit feature f:
1. It comes as two rows, itself and a copy, which both list the 8 nearest rows, themselves included, and the 3 nearest
   texts. Older rows list the two where they are among the 8 nearest. Similarities are multiples of 2⁻²⁴; of equal ones
   the highest number is listed, which is the copy.
2. Y ← Ã·Y + B̃, three times, from the stored labels on (`pta.engines.propagation.propagation`; γ = 10).
3. Answer: scale·Y of the copy, which then goes.
4. Every row keeps argmax Y as its label (of values that are equal on that grid, the first), with a fifth of max Y.
5. Beyond `max_rows` the weakest row goes: of the label with most rows the one with the smallest max Y. The new row
   takes its number, and lists that it was in are filled again. If it is the new one, lists stay as they were.

* Released: a row keeps 10 neighbours, so that 8 are left when the copy goes; the rows of the first ten samples keep
  fewer, and lose some to the copies of these (`_list_length`).
* Released: all samples are kept. Step 5 is ours, and `max_rows=None` keeps all. On shuffled streams the bound cost a
  few tenths of a point, on sorted ones it cost nothing, where dropping the oldest rows loses whole classes.
* Released: the answer is 10,000·Y, of which the order alone has a meaning. Here Y takes the place of cosines.
* A class that no near text names gets exactly 0. The column sums in B̃ favour classes with few samples so far: where one
  class comes after the other, the gain turns into a loss.

Lists, similarities and Y are float64. What is listed is written with its similarity into one whole number, whose
order decides on neighbours, on any device.
"""

import math
from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize, pad

from pta.core.parameters import count, number, parameter, require_count
from pta.core.samples import Samples
from pta.engines.propagation.propagation import GRID, Graph, Spread, propagate
from pta.engines.zero_shot import samples_at_once
from pta.methods.adapter import Adapter
from pta.methods.state import LARGEST_COUNT, UNIT_BALL, between, class_numbers, doubles, full

_BITS = 32  # an entry of a list is (1 + similarity on the grid)·2³² + the number of a row or class; 0 is none
_ROW = 2**_BITS - 1
_MARGIN = 2  # neighbours that are kept beyond those that count
_MOST_PAIRS = 4096  # rows whose similarities with each other are kept
_MOST_AT_ONCE = 64  # samples whose products with all rows are computed together
_BLOCK = 256  # rows by which an unbounded state grows
_SHORTEST = 1e-12
_PER_ROW = ("filled", "rows", "norms", "ages", "lists", "classes", "text", "labels", "seeds")


class _Arrival(NamedTuple):
    """A sample and its place in the graph; it is row n, its copy row n + 1."""

    feature: Tensor  # d, unit
    norm: Tensor  # of w⊙f
    similar: Tensor  # n, its similarities with the rows
    own: Tensor  # that with itself
    classes: Tensor  # K, the nearest texts
    text: Tensor  # K, their cosines
    rows: Tensor  # the m whose lists change
    lists: Tensor  # their lists with this sample and, last, its own, (m+1)×width


def _require_rows(name: str, value: object) -> int | None:
    return None if value is None else require_count(name, value, 1, 10**6)


class ECALP(Adapter):
    """Label propagation on a graph of the samples so far.

    The loop: `pta.reference.ecalp.ecalp_loop`.

    `reset(classes)` drops the rows that have these labels.

    >>> from pta import ZeroShotClassifier
    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"])
    >>> ECALP(classifier).step([[0.8, 0.6], [0.1, 0.9]]).argmax(dim=1)
    tensor([0, 1])
    """

    name = "ecalp"
    may_fail = False
    max_rows: int | None = parameter(500, _require_rows, "1 to 1000000, or None", "most rows that are kept; None: all")
    neighbours: int = count(8, 1, 100, "nearest rows that a row lists")
    text_neighbours: int = count(3, 1, 100, "nearest texts that a row lists")
    gamma: int = count(10, 1, 100, "γ, power of the similarities")
    iterations: int = count(3, 1, 100, "sweeps per sample")
    seed_weight: float = number(0.2, 0.0, 0.9, "share of its largest Y that a row starts with at the next sample")

    def _declare_state(self) -> None:
        self.max_batch = min(_MOST_AT_ONCE, samples_at_once(self.classifier))
        self.bounded = self.max_rows is not None
        (C, d), add = self.classifier.anchors.shape, partial(self.add_state, per_class=False)
        n, K, whole = self.max_rows or _BLOCK, min(self.text_neighbours, C), torch.int64
        self.filled = add("filled", full(False, n, dtype=torch.bool))
        self.rows = add("rows", doubles(0.0, n, d), UNIT_BALL)
        self.norms = add("norms", doubles(0.0, n), between(0.0, 1.1))
        self.ages = add("ages", full(0, n, dtype=whole), between(0, LARGEST_COUNT))
        entries = between(0, (int(GRID) + 2) << _BITS)
        self.lists = add("lists", full(0, n, min(self.neighbours, n) + _MARGIN, dtype=whole), entries)
        self.classes = add("classes", full(0, n, K, dtype=whole), between(0, C - 1))
        self.text = add("text", doubles(0.0, n, K), between(0.0, 1.1))
        self.labels = add("labels", full(0, n, dtype=whole), between(0, C - 1))
        self.seeds = add("seeds", doubles(0.0, n), between(0.0, 1e6))
        self._state_replaced()

    def _state_replaced(self) -> None:
        self._similar: Tensor | None = None  # n×n, of all pairs of rows, once a list must be filled again
        self.weights = normalize(self.classifier.anchors.double().var(dim=0), dim=0, eps=_SHORTEST)  # w

    def _contradiction(self, state: Mapping[str, Tensor]) -> str | None:
        filled = state["filled"]
        if any(state[name].shape != (len(filled), *getattr(self, name).shape[1:]) for name in _PER_ROW):
            return "its pieces have different numbers of rows"
        listed = state["lists"][state["lists"] > _ROW] & _ROW
        if bool((listed >= len(filled)).any()) or not bool(filled[listed].all()):
            return "lists name rows that do not exist"
        return None

    def reset(self, classes: Iterable[int] | None = None) -> None:
        """Forget everything, or the rows that have some labels."""
        chosen = None if classes is None else class_numbers(classes, self.classifier.classes)
        super().reset(chosen)
        if chosen is not None:
            dropped = self.filled & torch.isin(self.labels, self.labels.new_tensor(chosen))
            lost = self._naming(dropped) & ~dropped
            for name in _PER_ROW:
                self.pieces[name].tensor[dropped] = 0
            self._refill(lost)

    def _step(self, samples: Samples) -> Tensor:
        if self.max_rows is None:
            self._make_room(len(samples))
        return self._answers_of(samples, learn=True)

    def _predict(self, samples: Samples) -> Tensor:
        return self._answers_of(samples, learn=False)

    def _answers_of(self, samples: Samples, *, learn: bool) -> Tensor:
        cosines = (self.zero_shot(samples).exact_logits - self.classifier.bias) / self.classifier.scale
        numbers = torch.arange(self.classifier.classes, device=cosines.device)
        nearest = (_on_grid(cosines) + numbers).topk(self.classes.shape[1]).values
        features, answers = normalize(samples.features.double()), []
        weighted = self.weights * features
        with_rows, with_samples = weighted @ self.rows.T, weighted @ features.T
        for at, (f, texts) in enumerate(zip(features, nearest, strict=True)):
            norm = torch.linalg.vector_norm(weighted[at])
            similar, own = _on_grid(with_rows[at], self.norms), _on_grid(with_samples[at, at], norm)
            arrival = self._arrival(f, norm, similar, own, texts & _ROW, _similarities(texts))
            spread = self._propagated(arrival)
            answers.append(spread.last)
            if learn and (place := self._keep(arrival, spread, self.seen + at)) is not None:
                with_rows[at + 1 :, place] = with_samples[at + 1 :, at]
        return (self.classifier.scale * torch.stack(answers)).to(samples.features.dtype)

    def _arrival(
        self, f: Tensor, norm: Tensor, similar: Tensor, own: Tensor, classes: Tensor, text: Tensor
    ) -> _Arrival:
        """Step 1."""
        n = len(self.rows)
        numbers = torch.arange(n + 2, device=f.device)
        old = torch.where(self.filled, similar, 0)
        entries = torch.cat([old + numbers[:n] * self.filled, own + numbers[n:]])
        length = self._list_length(int(self.filled.sum()))
        rows = (self.filled & (old + n + 1 > self.lists[:, -1])).nonzero()[:, 0]
        both = similar[rows, None] + numbers[n:]
        changed = torch.cat([self.lists[rows], both], dim=1).topk(length).values
        lists = torch.cat([changed, entries.topk(length).values[None]])
        return _Arrival(f, norm, similar, own, classes, text, rows, self._padded(lists))

    def _list_length(self, rows: int) -> int:
        """How many neighbours are kept where so many rows came before."""
        return min(self.neighbours + min(max(rows - self.neighbours, 0), _MARGIN), self.lists.shape[1])

    def _propagated(self, arrival: _Arrival) -> Spread:
        """Step 2, for the rows, the sample and, last, its copy."""
        lists = torch.cat([self.lists, arrival.lists[-1:], arrival.lists[-1:]])
        lists[arrival.rows] = arrival.lists[:-1]
        lists = lists[:, : self.neighbours]
        graph = Graph(
            lists & _ROW,
            _similarities(lists),
            torch.cat([self.classes, arrival.classes.expand(2, -1)]),
            torch.cat([self.text, arrival.text.expand(2, -1)]),
            pad(self.labels, (0, 2)),
            pad(self.seeds, (0, 2)),
        )
        return propagate(graph, self.classifier.classes, self.gamma, self.iterations)

    def _keep(self, arrival: _Arrival, spread: Spread, age: Tensor) -> int | None:
        """Steps 4 and 5: the place of the new row, if it stays."""
        n = len(self.rows)
        labels, seeds = spread.labels[:-1], self.seed_weight * spread.most[:-1]
        self.labels.copy_(labels[:n])
        self.seeds.copy_(seeds[:n])
        own = self._place(labels, seeds)
        if own == n:
            return None
        dropped = self.filled & (torch.arange(n, device=labels.device) == own)
        lost = self._naming(dropped)
        named = arrival.lists & _ROW
        lists = torch.where(named == n, arrival.lists - n + own, arrival.lists).masked_fill_(named == n + 1, 0)
        lists = lists.sort(dim=1, descending=True).values
        self.lists[arrival.rows], self.lists[own] = lists[:-1], lists[-1]
        self.filled[own], self.ages[own], self.labels[own], self.seeds[own] = True, age, labels[n], seeds[n]
        self.rows[own], self.norms[own] = arrival.feature, arrival.norm
        self.classes[own], self.text[own] = arrival.classes, arrival.text
        if self._similar is not None:
            self._similar[own], self._similar[:, own] = arrival.similar, arrival.similar
            self._similar[own, own] = arrival.own
        self._refill(lost)
        return own

    def _place(self, labels: Tensor, seeds: Tensor) -> int:
        """Which of the rows goes, or is free, for the new one, which is the last."""
        free = (~self.filled).nonzero()
        if len(free):
            return int(free[0])
        rows = (labels == labels.bincount().argmax()).nonzero()[:, 0]
        return int(rows[(seeds[rows] * GRID).round().argmin()])

    def _naming(self, dropped: Tensor) -> Tensor:
        """The rows whose lists name one of these, and these."""
        n = len(dropped)
        return dropped | (dropped[(self.lists & _ROW).clamp_max(n - 1)] & (self.lists > _ROW)).any(dim=1)

    def _refill(self, lost: Tensor) -> None:
        """Make the lists of these rows anew from all rows."""
        rows = lost.nonzero()[:, 0]
        if not len(rows):
            return
        n = len(self.rows)
        if n > _MOST_PAIRS:
            similar = self._pairs(rows)
        else:
            if self._similar is None:
                self._similar = self._pairs(torch.arange(n, device=rows.device))
            similar = self._similar[rows]
        entries = (similar + torch.arange(n, device=rows.device)) * self.filled
        length = min(self._list_length(int(self.filled.sum())), len(self.rows))
        self.lists[rows] = self._padded(entries.topk(length).values)

    def _pairs(self, rows: Tensor) -> Tensor:
        """The similarities of some rows with all, the weight on the older of a pair."""
        older = self.ages[rows, None] <= self.ages
        products = (self.rows[rows] * self.weights) @ self.rows.T
        return _on_grid(products, torch.where(older, self.norms[rows, None], self.norms))

    def _padded(self, lists: Tensor) -> Tensor:
        return pad(lists, (0, self.lists.shape[1] - lists.shape[1]))

    def _make_room(self, count: int) -> None:
        blocks = math.ceil((int(self.filled.sum()) + count - len(self.filled)) / _BLOCK)
        for name in _PER_ROW if blocks > 0 else ():
            setattr(self, name, torch.cat([self.pieces[name].tensor, *[self.pieces[name].fresh()] * blocks]))


def _on_grid(products: Tensor, norms: Tensor | None = None) -> Tensor:
    """Similarities as the upper part of list entries."""
    similar = products if norms is None else products / norms.clamp_min(_SHORTEST)
    return similar.clamp(0.0, 1.0).mul_(GRID).round_().add_(1).long() << _BITS


def _similarities(entries: Tensor) -> Tensor:
    """The upper part of list entries; 0 if there is none."""
    return (entries >> _BITS).sub_(1).clamp_min_(0).double().div_(GRID)

"""What a monitor keeps: arrays of fixed size, whatever the length of the stream."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pta.engines.local_prior import ORDERED, agreement
from pta.errors import StateMismatch
from pta.monitor.alarms import KINDS
from pta.monitor.detector import LIFTS
from pta.monitor.reference import SHARES
from pta.monitor.scores import BLOCK, PART

OWN_REFERENCE = 500  # the first samples of blocks that are learned from, where no reference is given
MOST_SOURCES = 32  # that are named; the samples of others count together
OTHERS = 0  # their number; named sources have 1 to 32 and, within a block, new ones the numbers above
MARKS = 16 * BLOCK  # samples between two looks at the prototypes
NO_COSINE = 2.0
"""Stands for the cosine of a class that has no prototype, or was not looked at."""
_LARGEST = 1e18
_DTYPES = (torch.int32, torch.int64, torch.float32, torch.float64)
_SUMS = ("pending_sums", "ring_answers", "totals", "evidence", "weights", "answered")  # never below 0

Numbers = NDArray[Any]


@dataclass
class Memory:
    """The arrays. `ring_…` have a row per block of the window, of which the oldest is the next to be written.

    `pending…` are of the block that is not full. While the own reference is collected, all its features are kept, and
    it is measured in float64 when it is full. Later each part of it is measured when it is full.
    """

    counts: Numbers  # 3: samples, samples of the own reference, changed answers among these
    pending_features: Numbers  # 64×d while the own reference is collected, 8×d later
    pending_zero_shot: Numbers  # 8×C, logits of the part that is not full
    pending: Numbers  # 64×3: label, whether it is learned, source
    pending_scores: Numbers  # 64×6, where measured: zero-shot's label and confidence, ranked scores, agreements
    pending_sums: (
        Numbers  # 3×C: probabilities of answers; of zero-shot, where measured, and with the weights of `order.py`
    )
    ring_sums: Numbers  # W×15: confidence, cosine, changed answers, samples below each threshold
    ring_answers: Numbers  # W×2×C: sums of probabilities, of answers and of zero-shot
    recent: Numbers  # 64·W×4: source (−1: no sample yet), class, weight, whether it was learned
    total_sums: Numbers  # 3, as the first columns of ring_sums
    totals: Numbers  # 3×C: as pending_sums, of all blocks; the last is the fast running mean of the local prior
    prior_sums: Numbers  # 2: A and B of the local prior
    reference: Numbers  # 500×4: what is ranked and shown of the own reference
    evidence: Numbers  # 13×4: M of each threshold, and of changed answers
    weights: Numbers  # a row of C per source, up to the last that has any: what was learned
    answered: Numbers  # C
    cosines: Numbers  # C, of prototypes and texts when last looked at
    movement: Numbers  # C
    sources: list[str] = field(default_factory=list)
    standing: dict[str, dict[str, Any]] = field(default_factory=dict)  # alarms that are raised

    @classmethod
    def empty(cls, classes: int, dim: int, blocks: int) -> "Memory":
        """Before the first sample."""
        start = _start(classes, dim, blocks)
        arrays: dict[str, Any] = {name: (one[:1] if name == "weights" else one).copy() for name, one in start.items()}
        return cls(**arrays)

    @property
    def order(self) -> float:
        """The order statistic of the local prior after the last block."""
        found, by_chance = self.prior_sums.tolist()
        return agreement(found, by_chance)

    @property
    def is_collecting(self) -> bool:
        """Whether the block that is not full may become a part of the own reference."""
        return len(self.pending_features) == BLOCK

    @property
    def _pending_rows(self) -> int:
        return BLOCK if self.order <= ORDERED and self.counts[1] < OWN_REFERENCE else PART

    def _start(self) -> dict[str, Numbers]:
        return _start(len(self.answered), self.pending_features.shape[1], len(self.ring_sums))

    @property
    def size(self) -> int:
        """The bytes of all arrays."""
        return sum(getattr(self, name).nbytes for name in self._start())

    def pack(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Copies of the arrays as tensors, without the last rows that are as at the start, and the rest as JSON."""
        used = {name: _used(getattr(self, name), one) for name, one in self._start().items()}
        about = {"sources": list(self.sources), "standing": dict(self.standing), "window": BLOCK * len(self.ring_sums)}
        return {name: torch.from_numpy(one.copy()) for name, one in used.items()}, about

    def unpack(self, tensors: Mapping[str, Tensor], about: Any, path: object) -> None:
        """Take these arrays, if they fit those here and have numbers that samples could give."""
        window, start = BLOCK * len(self.ring_sums), self._start()
        if isinstance(about, dict) and isinstance(of := about.get("window"), int) and of != window:
            raise StateMismatch(f"{path} was watched with --window {of}, not {window}; use that")
        found = {name: one.numpy() for name, one in tensors.items() if name in start and one.dtype in _DTYPES}
        fits = tensors.keys() == found.keys() == start.keys() and all(_fits(found[name], start[name]) for name in start)
        if not fits or not _is_known(about) or not _are_places(found, len(self.answered)):
            raise StateMismatch(f"the monitor in {path} is damaged; use another copy of the state")
        for name, one in found.items():
            whole = start[name].copy()
            whole[: len(one)] = one
            setattr(self, name, whole)
        self.weights = self.weights[: max(1, len(found["weights"]))]
        self.pending_features = self.pending_features[: self._pending_rows].copy()
        self.sources, self.standing = list(about["sources"]), dict(about["standing"])

    def start_block(self) -> None:
        """Leave the samples of the block: they are counted, or forgotten."""
        if len(self.pending_features) != (rows := self._pending_rows):
            self.pending_features = np.zeros((rows, self.pending_features.shape[1]), np.float32)
        for name, one in vars(self).items():
            if name.startswith("pending"):
                one[:] = 0

    def forget_pending(self) -> None:
        """Leave out the samples of the block that is not full: the only ones of which features are kept."""
        self.counts[0] -= self.counts[0] % BLOCK
        self.start_block()
        del self.sources[MOST_SOURCES:]


@lru_cache(maxsize=4)
def _start(classes: int, dim: int, blocks: int) -> dict[str, Numbers]:
    """The arrays before the first sample, at their largest; not to be written to."""
    C, zeros = classes, np.zeros
    return {
        "counts": zeros(3, np.int64),
        "pending_features": zeros((BLOCK, dim), np.float32),
        "pending_zero_shot": zeros((PART, C), np.float32),
        "pending": zeros((BLOCK, 3), np.int32),
        "pending_scores": zeros((BLOCK, 6)),
        "pending_sums": zeros((3, C)),
        "ring_sums": zeros((blocks, 3 + SHARES)),
        "ring_answers": zeros((blocks, 2, C), np.float32),
        "recent": zeros((BLOCK * blocks, 4)) - [[1, 0, 0, 0]],
        "total_sums": zeros(3),
        "totals": np.repeat([[0.0], [0.0], [1 / C]], C, axis=1),
        "prior_sums": zeros(2),
        "reference": zeros((OWN_REFERENCE, 4)),
        "evidence": zeros((SHARES + 1, len(LIFTS))),
        "weights": zeros((MOST_SOURCES + 1, C)),
        "answered": zeros(C, np.int64),
        "cosines": np.full(C, NO_COSINE),
        "movement": zeros(C),
    }


def _used(now: Numbers, start: Numbers) -> Numbers:
    """The rows up to the last one that differs from the start."""
    differs = (now != start[: len(now)]).reshape(len(now), -1).any(axis=1)
    return now[: len(now) - int(differs[::-1].argmax()) if differs.any() else 0]


def _fits(given: Numbers, start: Numbers) -> bool:
    """Whether the rows can be the first of such an array."""
    alike = given.dtype == start.dtype and given.ndim == start.ndim and given.shape[1:] == start.shape[1:]
    return alike and len(given) <= len(start) and bool((np.abs(given) <= _LARGEST).all())


def _are_places(found: Mapping[str, Numbers], classes: int) -> bool:
    """Whether what is used as an index or a count is one."""
    labels, _, sources = found["pending"].T
    own, theirs, *_ = found["recent"].T
    last = MOST_SOURCES + BLOCK
    within: list[tuple[Numbers, float, float]]
    within = [(labels, 0, classes), (sources, 0, last + 1), (own, -1, MOST_SOURCES + 1), (theirs, 0, classes)]
    within += [(found["pending_scores"][:, 0], 0, classes)]
    within += [(one, 0, _LARGEST) for one in (found["prior_sums"][1:], *(found[name] for name in _SUMS))]
    samples, kept, changed = (*found["counts"].tolist(), 0, 0, 0)[:3]
    return bool(0 <= changed <= kept <= min(OWN_REFERENCE, samples)) and all(
        ((low <= one) & (one < end)).all() for one, low, end in within
    )


def _is_known(about: Any) -> bool:
    if not isinstance(about, dict) or set(about) != {"sources", "standing", "window"}:
        return False
    sources, standing = about["sources"], about["standing"]
    names = isinstance(sources, list) and all(type(one) is str for one in sources)
    alarms = isinstance(standing, dict) and set(standing) <= {*KINDS}
    bounded = names and len(sources) <= MOST_SOURCES + BLOCK
    return bounded and alarms and all(isinstance(one, dict) for one in standing.values())

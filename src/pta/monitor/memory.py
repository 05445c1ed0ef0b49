"""What a monitor keeps: arrays of fixed size, whatever the length of the stream."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pta.errors import StateMismatch
from pta.monitor.alarms import KINDS
from pta.monitor.detector import LIFTS
from pta.monitor.reference import SHARES
from pta.monitor.scores import BLOCK

OWN_REFERENCE = 500  # the first samples of blocks that are learned from, where no reference is given
MOST_SOURCES = 32  # that are named; the samples of others count together
MARKS = 16 * BLOCK  # samples between two looks at the prototypes
NO_COSINE = 2.0
"""Stands for the cosine of a class that has no prototype, or was not looked at."""
_LARGEST = 1e18
_SUMS = ("prior", "evidence", "weights", "answered", "ring_answers", "total_answers")  # never below 0
_PENDING = ("pending_features", "pending_zero_shot", "pending_answers", "pending")

Numbers = NDArray[Any]


@dataclass
class Memory:
    """The arrays. `ring_…` have a row per block of the window, of which the oldest is the next to be written."""

    counts: Numbers  # 3: samples, samples of the own reference, changed answers among these
    pending_features: Numbers  # 64×d, of the block that is not full
    pending_zero_shot: Numbers  # 64×C, logits
    pending_answers: Numbers  # 64×C, probabilities
    pending: Numbers  # 64×3: label, whether it is learned, source (above 32: one that came with this block)
    ring_sums: Numbers  # W×15: confidence, cosine, changed answers, samples below each threshold
    ring_answers: Numbers  # W×2×C: sums of probabilities, of answers and of zero-shot
    recent: Numbers  # 64·W×4: source (−1: no sample yet), class, weight, whether it was learned
    total_sums: Numbers  # 3, as the first columns of ring_sums
    total_answers: Numbers  # 2×C
    prior: Numbers  # 3×C: the running means of the local prior
    prior_sums: Numbers  # 3: A, B and its count
    reference: Numbers  # 500×4: what is ranked and shown of the own reference
    evidence: Numbers  # 13×4: M of each threshold, and of changed answers
    weights: Numbers  # C×33, learned, by source; the last column is of others
    answered: Numbers  # C
    cosines: Numbers  # C, of prototypes and texts when last looked at
    movement: Numbers  # C
    sources: list[str] = field(default_factory=list)
    standing: dict[str, dict[str, Any]] = field(default_factory=dict)  # alarms that are raised

    @classmethod
    def empty(cls, classes: int, dim: int, blocks: int) -> "Memory":
        """Before the first sample."""
        C, zeros = classes, np.zeros
        return cls(
            counts=zeros(3, np.int64),
            pending_features=zeros((BLOCK, dim), np.float32),
            pending_zero_shot=zeros((BLOCK, C), np.float32),
            pending_answers=zeros((BLOCK, C), np.float32),
            pending=zeros((BLOCK, 3), np.int64),
            ring_sums=zeros((blocks, 3 + SHARES)),
            ring_answers=zeros((blocks, 2, C)),
            recent=zeros((BLOCK * blocks, 4)) - [[1, 0, 0, 0]],
            total_sums=zeros(3),
            total_answers=zeros((2, C)),
            prior=np.full((3, C), 1 / C),
            prior_sums=zeros(3),
            reference=zeros((OWN_REFERENCE, 4)),
            evidence=zeros((SHARES + 1, len(LIFTS))),
            weights=zeros((C, MOST_SOURCES + 1)),
            answered=zeros(C, np.int64),
            cosines=np.full(C, NO_COSINE),
            movement=zeros(C),
        )

    def _arrays(self) -> dict[str, Numbers]:
        return {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}

    @property
    def size(self) -> int:
        """The bytes of all arrays."""
        return sum(array.nbytes for array in self._arrays().values())

    def pack(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Copies of the arrays as tensors, and the rest as JSON."""
        arrays = {name: torch.from_numpy(value.copy()) for name, value in self._arrays().items()}
        return arrays, {"sources": list(self.sources), "standing": dict(self.standing)}

    def unpack(self, tensors: Mapping[str, Tensor], about: Any, path: object) -> None:
        """Take these arrays, if they have the shape of those here and numbers that samples could give."""
        own = {name: torch.from_numpy(value) for name, value in self._arrays().items()}
        blocks = len(self.ring_sums)
        if (ring := tensors.get("ring_sums")) is not None and ring.ndim == 2 and 0 < len(ring) != blocks:
            raise StateMismatch(f"{path} was watched with --window {BLOCK * len(ring)}, not {BLOCK * blocks}; use that")
        fits = tensors.keys() == own.keys() and all(
            one.shape == own[name].shape and one.dtype == own[name].dtype and bool((one.abs() <= _LARGEST).all())
            for name, one in tensors.items()
        )
        found = {name: one.numpy() for name, one in tensors.items()} if fits else {}
        if not found or not _is_known(about) or not _are_places(found):
            raise StateMismatch(f"the monitor in {path} is damaged; use another copy of the state")
        for name, one in found.items():
            setattr(self, name, one.copy())
        self.sources, self.standing = list(about["sources"]), dict(about["standing"])

    def forget_pending(self) -> None:
        """Leave out the samples of the block that is not full: the only ones of which features are kept."""
        self.counts[0] -= self.counts[0] % BLOCK
        for name in _PENDING:
            getattr(self, name)[:] = 0
        del self.sources[MOST_SOURCES:]


def _are_places(found: Mapping[str, Numbers]) -> bool:
    """Whether what is used as an index or a count is one."""
    classes = len(found["answered"])
    labels, _, sources = found["pending"].T
    own, theirs, *_ = found["recent"].T
    last = MOST_SOURCES + BLOCK
    within: list[tuple[Numbers, float, float]]
    within = [(labels, 0, classes), (sources, 0, last + 1), (own, -1, MOST_SOURCES + 1), (theirs, 0, classes)]
    within += [(one, 0, _LARGEST) for one in (found["prior_sums"][1:], *(found[name] for name in _SUMS))]
    samples, kept, changed = found["counts"]
    return 0 <= changed <= kept <= min(OWN_REFERENCE, samples) and all(
        ((low <= one) & (one < end)).all() for one, low, end in within
    )


def _is_known(about: Any) -> bool:
    if not isinstance(about, dict) or set(about) != {"sources", "standing"}:
        return False
    sources, standing = about["sources"], about["standing"]
    names = isinstance(sources, list) and all(type(one) is str for one in sources)
    alarms = isinstance(standing, dict) and set(standing) <= {*KINDS}
    bounded = names and len(sources) <= MOST_SOURCES + BLOCK
    return bounded and alarms and all(isinstance(one, dict) for one in standing.values())

"""What a monitor keeps: arrays of fixed size, whatever the length of the stream."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pta.errors import StateMismatch
from pta.monitor.detector import LIFTS
from pta.monitor.reference import RANKS
from pta.monitor.scores import BLOCK

OWN_REFERENCE = 500  # the first samples that are learned, where no reference is given
MOST_SOURCES = 32  # that are named; the samples of others count together
MARKS = 16 * BLOCK  # samples between two looks at the prototypes
_SHARES = 2 * len(RANKS)
_LARGEST = 1e18
NO_COSINE = 2.0
"""Stands for the cosine of a class that has no prototype, or was not looked at."""

Numbers = NDArray[Any]


@dataclass
class Memory:
    """The arrays. `ring_…` have a row per block of the window, of which the oldest is the next to be written."""

    counts: Numbers  # 5: samples, learned samples, of the own reference, changed among these, tested blocks
    pending_features: Numbers  # 64×d, of the block that is not full
    pending_answers: Numbers  # 64×C, probabilities
    pending: Numbers  # 64×3: label, whether it is learned, source
    ring_answers: Numbers  # W×C
    ring_zero_shot: Numbers  # W×C
    ring_sums: Numbers  # W×3: confidence, cosine, changed
    ring_below: Numbers  # W×12
    recent: Numbers  # 64·W×4: source, class, weight, whether it was learned
    total_answers: Numbers  # C
    total_zero_shot: Numbers  # C
    total_sums: Numbers  # 3
    prior: Numbers  # 3×C and, in another row, A, B and the count
    prior_sums: Numbers
    reference: Numbers  # 500×4: what is ranked and shown of the own reference
    foreign: Numbers  # 12×4, M
    changed: Numbers  # 1×4, M
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
            counts=zeros(5, np.int64),
            pending_features=zeros((BLOCK, dim), np.float32),
            pending_answers=zeros((BLOCK, C), np.float32),
            pending=zeros((BLOCK, 3), np.int64),
            ring_answers=zeros((blocks, C)),
            ring_zero_shot=zeros((blocks, C)),
            ring_sums=zeros((blocks, 3)),
            ring_below=zeros((blocks, _SHARES)),
            recent=zeros((BLOCK * blocks, 4)) - [[1, 0, 0, 0]],
            total_answers=zeros(C),
            total_zero_shot=zeros(C),
            total_sums=zeros(3),
            prior=np.full((3, C), 1 / C),
            prior_sums=zeros(3),
            reference=zeros((OWN_REFERENCE, 4)),
            foreign=zeros((_SHARES, len(LIFTS))),
            changed=zeros((1, len(LIFTS))),
            weights=zeros((C, MOST_SOURCES + 1)),
            answered=zeros(C, np.int64),
            cosines=np.full(C, NO_COSINE),
            movement=zeros(C),
        )

    def pack(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The arrays as tensors, and the rest as JSON."""
        arrays = {name: torch.from_numpy(value) for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return arrays, {"sources": self.sources, "standing": self.standing}

    def unpack(self, tensors: Mapping[str, Tensor], about: Any, path: object) -> None:
        """Take these arrays, if they have the shape of those here and numbers that samples could give."""
        own = {one.name: getattr(self, one.name) for one in fields(self)}
        arrays = {name: value for name, value in own.items() if isinstance(value, np.ndarray)}
        found = {name: tensor.numpy() for name, tensor in tensors.items()}
        fits = found.keys() == arrays.keys() and all(
            one.shape == arrays[name].shape and one.dtype == arrays[name].dtype and _is_plain(one)
            for name, one in found.items()
        )
        if not fits or not _is_known(about) or not _are_places(found):
            raise StateMismatch(f"the monitor in {path} is damaged or of another window; use that --window")
        for name, one in found.items():
            setattr(self, name, one.copy())
        self.sources, self.standing = list(about["sources"]), dict(about["standing"])


def _is_plain(values: Numbers) -> bool:
    return bool((np.abs(values) <= _LARGEST).all())


def _are_places(found: Mapping[str, Numbers]) -> bool:
    """Whether what is used as an index is one."""
    classes = len(found["answered"])
    labels, _, sources = found["pending"].T
    own, theirs, *_ = found["recent"].T
    within = [(labels, 0, classes), (sources, 0, MOST_SOURCES + 1), (own, -1, MOST_SOURCES + 1), (theirs, 0, classes)]
    count = int(found["counts"][2])
    return 0 <= count <= OWN_REFERENCE and all(((low <= one) & (one < end)).all() for one, low, end in within)


def _is_known(about: Any) -> bool:
    if not isinstance(about, dict) or set(about) != {"sources", "standing"}:
        return False
    sources, standing = about["sources"], about["standing"]
    names = isinstance(sources, list) and len(sources) <= MOST_SOURCES and all(type(one) is str for one in sources)
    return names and isinstance(standing, dict) and all(isinstance(one, dict) for one in standing.values())

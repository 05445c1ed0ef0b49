"""The rule for a single sample on the CPU, for latency: only the rows that move are read and written.

In numpy, whose calls cost a third of torch's on arrays this small.
"""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pta.engines.pta.prototypes import Prototypes
from pta.engines.pta.rule import Rule
from pta.engines.pta.touches import Touches


def advance_by_step(prototypes: Prototypes, anchors: Tensor, features: Tensor, touches: Touches, rule: Rule) -> Tensor:
    """Learn one sample (features is 1×d); give its cosine with every class's R, 1×C."""
    before = features @ prototypes.anchored.T if rule.order == "predict-first" else None
    _learn(prototypes, anchors, features, touches, rule)
    return features @ prototypes.anchored.T if before is None else before


def _learn(prototypes: Prototypes, anchors: Tensor, features: Tensor, touches: Touches, rule: Rule) -> None:
    f, knowledge, anchored = features.numpy(), prototypes.knowledge.numpy(), prototypes.anchored.numpy()
    length, touched, resting = prototypes.length.numpy(), prototypes.touched.numpy(), prototypes.resting.numpy()
    recursive = rule.anchor == "recursive"
    moving = ~resting if recursive else np.zeros_like(resting)
    moving[touches.classes] = True
    touched[touches.classes] = True
    rows = np.flatnonzero(moving)
    log_keep = np.zeros(len(rows))
    log_keep[np.searchsorted(rows, touches.classes)] = rule.log_decay(touches.probabilities)

    def column(scalars: NDArray[np.float64]) -> NDArray[np.floating]:
        return scalars.astype(f.dtype)[:, None]

    R, pull = anchored[rows], rule.w * (length[rows] if recursive else np.ones(len(rows)))
    P = column(np.exp(log_keep)) * knowledge[rows] - column(np.expm1(log_keep)) * f
    mixed = column(pull) * (R if recursive else anchors.numpy()[rows]) + f.dtype.type(1 - rule.w) * P
    norm = _lengths(mixed)
    with np.errstate(divide="ignore", invalid="ignore"):
        knowledge[rows] = P
        anchored[rows] = np.where(norm[:, None] > 0, mixed / column(norm), R)
        if recursive:
            size = _lengths(P)
            # The way left to P/‖P‖ shrinks by pull/norm; measured before the step it stands out of the rounding.
            left = _lengths(R - P / column(size)) * pull / norm
            goal, within = norm if rule.renormalise else size, prototypes.arrived_within
            resting[rows] = (left <= within) & (np.abs(norm - goal) <= within * goal) | (size == 0)
    if recursive and not rule.renormalise:
        length[rows] = norm
        length[~touched & ~moving] *= rule.w


def _lengths(rows: NDArray[np.floating]) -> NDArray[np.float64]:
    """The length of each row in float64, whose squares do not underflow."""
    return np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))

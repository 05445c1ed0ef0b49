"""The rule for a single sample, for latency: only the rows that move are read and written."""

import numpy as np
import torch
from torch import Tensor

from pta.engines.prototypes import Prototypes
from pta.engines.rule import Rule
from pta.engines.touches import Touches


def advance_by_step(prototypes: Prototypes, anchors: Tensor, features: Tensor, touches: Touches, rule: Rule) -> Tensor:
    """Learn one sample (features is 1×d); give its cosine with every class's R, 1×C."""
    recursive = rule.anchor == "recursive"
    before = features @ prototypes.anchored.T if rule.order == "predict-first" else None
    moving = ~prototypes.resting.cpu().numpy() & recursive
    moving[touches.classes] = True
    which = np.flatnonzero(moving)
    log_keep = np.zeros((len(which), 1))
    log_keep[np.searchsorted(which, touches.classes), 0] = rule.log_decay(touches.probabilities)

    rows = torch.from_numpy(which).to(features.device)
    keep, share, pull = (
        torch.from_numpy(scalars).to(features)
        for scalars in (np.exp(log_keep), -np.expm1(log_keep), np.full_like(log_keep, rule.w))
    )
    if not rule.renormalise and recursive:
        pull *= prototypes.length[rows, None]
    R = prototypes.anchored[rows]
    P = prototypes.knowledge[rows] * keep + share * features
    mixed = pull * (R if recursive else anchors[rows]) + (1 - rule.w) * P
    norm = _lengths(mixed)
    prototypes.knowledge[rows] = P
    prototypes.anchored[rows] = torch.where(norm > 0, mixed / norm.to(mixed), R)
    prototypes.touched[touches.classes] = True
    if recursive:
        size = _lengths(P)
        # The way that is left to P/‖P‖ shrinks by pull/norm; measured before the step it stands out of the rounding.
        left = _lengths(R - P / size.to(P)) * pull / norm
        goal = norm if rule.renormalise else size
        within = prototypes.arrived_within
        arrived = (left <= within) & ((norm - goal).abs() <= within * goal)
        prototypes.resting[rows] = (arrived | (size == 0))[:, 0]
        if not rule.renormalise:
            prototypes.length[rows] = norm[:, 0]
            prototypes.length[~prototypes.touched & torch.from_numpy(~moving).to(features.device)] *= rule.w
    return features @ prototypes.anchored.T if before is None else before


def _lengths(rows: Tensor) -> Tensor:
    """The length of each row in float64, whose squares do not underflow."""
    lengths: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True, dtype=torch.float64)
    return lengths

"""The rule for a single sample, for latency: only the rows that move are read and written."""

import torch
from torch import Tensor

from pta.engines.prototypes import ARRIVED, Prototypes
from pta.engines.rule import Rule
from pta.engines.touches import Touches


def advance_by_step(prototypes: Prototypes, anchors: Tensor, features: Tensor, touches: Touches, rule: Rule) -> Tensor:
    """Learn one sample (features is 1×d); give its cosine with every class's R, 1×C."""
    recursive = rule.anchor == "recursive"
    before = features @ prototypes.anchored.T if rule.order == "predict-first" else None
    touched = torch.from_numpy(touches.classes).to(features.device)
    log_keep = torch.zeros(len(anchors), dtype=torch.float64, device=features.device)
    log_keep[touched] = torch.from_numpy(rule.log_decay(touches.probabilities)).to(features.device)

    moving = ~prototypes.resting if recursive else torch.zeros_like(prototypes.resting)
    moving[touched] = True
    rows = torch.nonzero(moving)[:, 0]
    prototypes.touched[touched] = True
    R, log_keep = prototypes.anchored[rows], log_keep[rows, None]
    P = log_keep.exp().to(R) * prototypes.knowledge[rows] - torch.expm1(log_keep).to(R) * features
    pull = rule.w * prototypes.length[rows, None] if recursive else rule.w
    mixed = (pull * R).to(R) if recursive else rule.w * anchors[rows]
    mixed += (1 - rule.w) * P
    norm = torch.linalg.vector_norm(mixed, dim=1, keepdim=True)
    refreshed = torch.where(norm > 0, mixed / norm, R)

    prototypes.knowledge[rows] = P
    prototypes.anchored[rows] = refreshed
    if recursive:
        size = torch.linalg.vector_norm(P, dim=1, keepdim=True)
        # The way that is left to P/‖P‖ shrinks by pull/norm; measured before the step it stands out of the rounding.
        left = torch.linalg.vector_norm(R - P / size, dim=1, keepdim=True) * pull / norm
        goal = norm if rule.renormalise else size
        arrived = (left <= ARRIVED) & ((norm - goal).abs() <= ARRIVED * goal)
        prototypes.resting[rows] = (arrived | (size == 0))[:, 0]
        if not rule.renormalise:
            prototypes.length[rows] = norm[:, 0].double()
            prototypes.length[~prototypes.touched & ~moving] *= rule.w
    return features @ prototypes.anchored.T if before is None else before

"""The rule, one sample after another, in float64: slow, plain, and what the other engines must equal."""

import torch
from torch import Tensor

from pta.engines.pta.rule import Prototypes, Rule
from pta.engines.pta.touches import Touches


def advance_by_loop(prototypes: Prototypes, anchors: Tensor, features: Tensor, touches: Touches, rule: Rule) -> Tensor:
    """Learn each sample in turn; give its cosine with every class's anchored prototype, B×C in float64.

    Whatever precision the state has, it is rounded to it after every sample.
    """
    text = anchors.double()
    cosines = text.new_empty(len(features), len(anchors))
    log_decay = torch.zeros_like(cosines)
    log_decay[touches.samples, touches.classes] = torch.from_numpy(rule.log_decay(touches.probabilities)).to(text)
    for row, f in enumerate(features.double()):
        if rule.order == "predict-first":
            cosines[row] = prototypes.anchored.double() @ f
        P, R = prototypes.knowledge.double(), prototypes.anchored.double()

        kept = log_decay[row, :, None]
        P = kept.exp() * P - torch.expm1(kept) * f

        pull = text if rule.anchor == "fixed" else R * prototypes.length[:, None]
        filled = P.any(dim=1, keepdim=True)  # an empty class keeps its R, which only fades
        mixed = rule.w * pull + (1 - rule.w) * P
        norm = torch.linalg.vector_norm(mixed, dim=1, keepdim=True)
        R = torch.where((norm > 0) & filled, mixed / norm, R)

        prototypes.knowledge.copy_(P)
        prototypes.anchored.copy_(R)
        if rule.anchor == "recursive" and not rule.renormalise:
            prototypes.length.copy_(torch.where(filled, norm, rule.w * prototypes.length[:, None])[:, 0])
        if rule.order == "update-first":
            cosines[row] = prototypes.anchored.double() @ f
    prototypes.touched[touches.classes] = True
    prototypes.resting.copy_(~prototypes.touched)
    return cosines

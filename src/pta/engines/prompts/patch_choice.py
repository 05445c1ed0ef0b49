"""Which patches of a sample answer most to its classes: those of the highest Σ_c softmax over the patches of s_ic.

Every score depends on the logits of all patches with all classes, which is most of what GS-Bias costs. They are decided
in float64, but computed in float32 where that decides already: where the last score that stays and the first that goes
differ by more than float32 rounds. The other samples are computed again.
"""

import math

import torch
from torch import Tensor

from pta.core.classifier import ZeroShotClassifier
from pta.core.plain import is_host_readable

_NUMBERS_AT_ONCE = 2**18  # B×P×C; what the processor's cache holds
_DEVIATIONS = 4.0  # a sum of d products of unit rows has an error of about √d/√3 roundings; this is 7 times as much


def highest_scores(classifier: ZeroShotClassifier, patches: Tensor, kept: int) -> Tensor:
    """The numbers of the K patches of the highest scores, B×K, of B×P×d; of equal ones the first."""
    if patches.dtype == torch.float64 or not is_host_readable(patches):
        return _highest(_scores(classifier, patches.double()), kept)
    best = _scores(classifier, patches).topk(min(kept + 1, patches.shape[1]))
    chosen = best.indices[:, :kept]
    if kept < patches.shape[1]:
        last, next_one, rounding = best.values[:, -2], best.values[:, -1], _rounding(classifier, patches)
        doubtful = (next_one * (1 + rounding) >= last * (1 - rounding)).nonzero()[:, 0]
        chosen[doubtful] = _highest(_scores(classifier, patches[doubtful].double()), kept)
    return chosen


def _scores(classifier: ZeroShotClassifier, patches: Tensor) -> Tensor:
    """B×P, in the precision of the patches."""
    anchors = classifier.scale * classifier.anchors.to(patches.dtype).T
    max_batch = max(1, _NUMBERS_AT_ONCE // (patches.shape[1] * classifier.classes))

    def scores(part: Tensor) -> Tensor:
        s = part @ anchors
        s.sub_(s.amax(dim=1, keepdim=True)).exp_()
        return (s @ s.sum(dim=1).reciprocal_()[:, :, None])[:, :, 0]

    return torch.cat([scores(part) for part in torch.split(patches, max_batch)])


def _highest(scores: Tensor, kept: int) -> Tensor:
    return scores.argsort(dim=1, descending=True, stable=True)[:, :kept]


def _rounding(classifier: ZeroShotClassifier, patches: Tensor) -> float:
    """How far a score in float32 can be from the exact one, relatively.

    A logit and the logarithm of a sum of exponentials are wrong by as much, to which adding up positive numbers adds
    one rounding each.
    """
    _, count, dim = patches.shape
    logit = (_DEVIATIONS * math.sqrt(dim) + 2) * classifier.scale
    return (2 * logit + count + classifier.classes) * torch.finfo(patches.dtype).eps / 2

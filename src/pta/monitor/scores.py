"""What the frozen zero-shot model says of a block of samples: numbers that learning cannot move."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pta.core.classifier import ZeroShotClassifier

BLOCK = 64
"""Samples between two looks at the alarms. All is computed in these blocks, whatever the batches are."""


class BlockScores(NamedTuple):
    """Of B samples."""

    probabilities: Tensor  # B×C, float32
    labels: NDArray[np.int64]
    ranked: NDArray[np.float64]  # B×2: log-odds of the top class, which order samples by confidence; top cosine
    shown: NDArray[np.float64]  # B×2: confidence and top cosine


@torch.no_grad()
def scored(classifier: ZeroShotClassifier, features: Tensor) -> BlockScores:
    """The scores of B×d unit features, computed on the host; sums that decide are in float64."""
    z = features @ classifier.anchors.T
    top = z.max(dim=1, keepdim=True)
    odds = torch.exp((z - top.values) * classifier.scale)
    others = (odds.sum(dim=1, dtype=torch.float64) - 1).clamp_min(1e-16)  # the top class itself counts 1
    ranked = torch.stack([-others.log(), top.values[:, 0].double()], dim=1)
    shown = torch.stack([1 / (1 + others), top.values[:, 0].double()], dim=1)
    return BlockScores(odds / odds.sum(dim=1, keepdim=True), top.indices[:, 0].numpy(), ranked.numpy(), shown.numpy())

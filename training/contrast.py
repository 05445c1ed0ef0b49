"""What contrastive training of any dual encoder needs: captions, the loss, the optimiser and its rate."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pta.models import Encoder

WARM_UP = 0.05  # of all steps
WEIGHT_DECAY = 0.05


@dataclass(frozen=True)
class CaptionBank:
    """Tokenised captions of every class: ids and mask, both classes × captions × length."""

    ids: Tensor
    mask: Tensor

    @classmethod
    def of(cls, encoder: Encoder, captions: Sequence[Sequence[str]]) -> "CaptionBank":
        """The captions of each class, as many of one as of another."""
        ids, mask = encoder.tokenize([text for of_class in captions for text in of_class])
        shape = (len(captions), len(captions[0]), -1)
        return cls(ids.reshape(shape), mask.reshape(shape))

    def sample(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        """One caption for each label."""
        which = torch.randint(self.ids.shape[1], labels.shape, device=labels.device)
        return self.ids[labels, which], self.mask[labels, which]


def contrastive_loss(features: Tensor, text_features: Tensor, scale: Tensor, labels: Tensor) -> Tensor:
    """CLIP's loss in both directions, with all pairs of one class as positives that share the target."""
    logits = scale * features @ text_features.T
    same_class = (labels[:, None] == labels).float()
    targets = same_class / same_class.sum(1, keepdim=True)  # symmetric, so it serves both directions
    return (cross_entropy(logits, targets) + cross_entropy(logits.T, targets)) / 2


def optimiser_of(encoder: nn.Module, rate: float) -> torch.optim.Optimizer:
    """AdamW, with weight decay for matrices alone."""
    decayed = [p for p in encoder.parameters() if p.ndim > 1]
    others = [p for p in encoder.parameters() if p.ndim <= 1]
    return torch.optim.AdamW(
        [{"params": decayed, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}],
        lr=rate,
        betas=(0.9, 0.98),
    )


def warm_cosine(done: float, step: float) -> float:
    """The share of the peak rate when a share of the work is done: a short linear rise, a cosine down to zero."""
    return min(1.0, (done + step) / WARM_UP) * (1 + math.cos(math.pi * min(1.0, done))) / 2

"""What the classifier alone says about a batch, as methods that decide by it need it: the same in any batch."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pta.classifier import ZeroShotClassifier
from pta.samples import Samples


@dataclass(frozen=True)
class ZeroShot:
    """Zero-shot quantities of B samples.

    Probabilities and entropies are computed in float64: float32 logits of one sample differ in the last bits between
    a batch and a single sample, and must not decide whether it is learnt from.

    Attributes:
        logits: z, B×C, in the classifier's precision.
        probabilities: p, B×C, float64: softmax(z), or, where features are the mean of views, the mean of theirs.
        entropy: of p, B, float64, in nats.
        labels: B, the class with the largest z.
    """

    logits: Tensor
    probabilities: Tensor
    entropy: Tensor
    labels: Tensor

    @classmethod
    def of(cls, classifier: ZeroShotClassifier, samples: Samples) -> "ZeroShot":
        """The zero-shot quantities of samples that are in the classifier's precision."""
        exact = exact_logits(classifier, samples.features)
        if samples.surest is None:
            p = exact.softmax(dim=1)
        else:
            p = exact_logits(classifier, samples.surest).softmax(dim=2).mean(dim=1)
        return cls(exact.to(samples.features.dtype), p, entropy_of(p), exact.argmax(dim=1))


def exact_logits(classifier: ZeroShotClassifier, features: Tensor) -> Tensor:
    """z of …×d features in float64, whose rounding a batch does not show."""
    return classifier.scores(features.double() @ classifier.anchors.double().T)


def entropy_of(probabilities: Tensor) -> Tensor:
    """−Σ p ln p over the last dimension, in nats."""
    entropy: Tensor = torch.special.entr(probabilities).sum(dim=-1)
    return entropy

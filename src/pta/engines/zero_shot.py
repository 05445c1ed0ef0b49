"""What the classifier alone says about a batch, as methods that decide by it need it: the same in any batch."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pta.classifier import ZeroShotClassifier
from pta.samples import Samples

_NUMBERS_AT_ONCE = 2**22  # 32 MiB in float64, of which a method holds a few
_MOST_AT_ONCE = 1024


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
        if samples.most_confident is None:
            p = exact.softmax(dim=1)
        else:
            p = torch.zeros_like(exact)
            for views in samples.most_confident.unbind(
                1
            ):  # one view of each sample at a time, so that memory is that of one
                p += exact_logits(classifier, views).softmax(dim=1)
            p /= samples.most_confident.shape[1]
        return cls(exact.to(samples.features.dtype), p, entropy_of(p), exact.argmax(dim=1))


def exact_logits(classifier: ZeroShotClassifier, features: Tensor) -> Tensor:
    """z of …×d features in float64, whose rounding a batch does not show."""
    return classifier.scores(features.double() @ classifier.anchors.double().T)


def samples_at_once(classifier: ZeroShotClassifier, views: int = 1) -> int:
    """How many samples of so many views may be scored together, as `Adapter.at_once`; more classes leave fewer."""
    numbers = views * max(classifier.classes, classifier.dim)
    return min(_MOST_AT_ONCE, max(1, _NUMBERS_AT_ONCE // numbers))


def entropy_of(probabilities: Tensor) -> Tensor:
    """−Σ p ln p over the last dimension, in nats."""
    entropy: Tensor = torch.special.entr(probabilities).sum(dim=-1)
    return entropy

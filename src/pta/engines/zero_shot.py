"""What the classifier alone says about a batch: the same for a sample in any batch."""

from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pta.core.classifier import ZeroShotClassifier
from pta.core.samples import Samples
from pta.engines.gpu import processors
from pta.engines.local_prior import LocalPrior

_NUMBERS_AT_ONCE = 2**22  # 32 MiB in float64, of which a method holds a few
_MOST_AT_ONCE = 1024


class ZeroShot:
    """Zero-shot quantities of B samples, each computed when it is asked for.

    What decides is computed in float64: float32 logits of one sample differ in the last bits between a batch and a
    single sample, and must not decide whether it is learned from.
    """

    def __init__(self, classifier: ZeroShotClassifier, samples: Samples, log_prior: Tensor | None = None) -> None:
        self.classifier = classifier
        self.samples = samples
        self.log_prior = log_prior  # B×C, float64; added to z wherever a method sees it

    @property
    def logits(self) -> Tensor:
        """z, B×C, in the classifier's precision: computed anew each time, so that the caller may write to it."""
        if self.log_prior is None:
            return self.classifier.logits(self.samples.features)
        return self.exact_logits.to(self.classifier.anchors.dtype, copy=True)

    def put_prior(self, prior: LocalPrior) -> None:
        """Add the prior of these samples, in order, to z; it learns them."""
        if processors.triton_runs_on(self.text_logits.device):
            from pta.engines.gpu.triton_prior import learn_on_gpu

            vars(self).update(learn_on_gpu(self.text_logits, *vars(prior).values())._asdict())
        else:
            self.log_prior = prior.learn(self.text_probabilities)

    @cached_property
    def exact_logits(self) -> Tensor:
        """z, B×C, float64."""
        return self._shifted(self.text_logits)

    @cached_property
    def softmax(self) -> Tensor:
        """The softmax of z, B×C, float64."""
        return self.exact_logits.softmax(dim=1)

    def exact_logits_of(self, rows: NDArray[np.int64]) -> Tensor:
        """z of some of the samples, float64."""
        if self.log_prior is None:
            return exact_logits(self.classifier, self.samples.features[rows])
        return self.exact_logits[rows]

    @cached_property
    def text_logits(self) -> Tensor:
        """z without the prior, B×C, float64."""
        return exact_logits(self.classifier, self.samples.features)

    @cached_property
    def text_probabilities(self) -> Tensor:
        """softmax(z) without the prior, B×C, float64."""
        return self.text_logits.softmax(dim=1)

    @cached_property
    def view_logits(self) -> Tensor:
        """z of every view, B×V×C, float64."""
        assert self.samples.views is not None  # a method asks for them only if it needs views
        z = exact_logits(self.classifier, self.samples.views)
        return z if self.log_prior is None else z + self.log_prior[:, None]

    @cached_property
    def probabilities(self) -> Tensor:
        """p, B×C, float64: softmax(z), or, where features are the mean of views, the mean of theirs."""
        if self.samples.most_confident is None:
            return self.softmax
        p = torch.zeros_like(self.exact_logits)
        for views in self.samples.most_confident.unbind(1):  # one view of each sample at a time bounds memory
            p += self._shifted(exact_logits(self.classifier, views)).softmax(dim=1)
        return p / self.samples.most_confident.shape[1]

    @cached_property
    def entropy(self) -> Tensor:
        """Entropy of p, B, float64, in nats."""
        return entropy_of(self.probabilities)

    @cached_property
    def labels(self) -> Tensor:
        """B, the class with the largest z."""
        return self.exact_logits.argmax(dim=1)

    def _shifted(self, z: Tensor) -> Tensor:
        return z if self.log_prior is None else z + self.log_prior


def exact_logits(classifier: ZeroShotClassifier, features: Tensor) -> Tensor:
    """z of …×d features in float64, whose rounding a batch does not show."""
    if features.ndim == 2 and len(features) == 1 and processors.triton_runs_on(features.device):
        from pta.engines.gpu.triton_touches import exact_logits_of_one

        return exact_logits_of_one(classifier, features)
    return classifier.scores(features.double() @ classifier.exact_anchors.T)


def samples_at_once(classifier: ZeroShotClassifier, views: int = 1) -> int:
    """How many samples of so many views may be scored together, as `Adapter.max_batch`; more classes leave fewer."""
    numbers = views * max(classifier.classes, classifier.dim)
    return min(_MOST_AT_ONCE, max(1, _NUMBERS_AT_ONCE // numbers))


def entropy_of(probabilities: Tensor) -> Tensor:
    """−Σ p ln p over the last dimension, in nats."""
    return torch.special.entr(probabilities).sum(dim=-1)

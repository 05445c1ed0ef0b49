"""OrderWatch: notices without labels that a stream is sorted by class."""

import torch

from pta.core.classifier import ZeroShotClassifier
from pta.core.samples import Samples
from pta.engines.local_prior import LocalPrior
from pta.engines.zero_shot import ZeroShot
from pta.methods import Adapter

_WATCHED = 4096  # samples; a stream that is sorted shows it within hundreds


class OrderWatch:
    """The order statistic of the local prior over the first samples of a stream, on the host."""

    def __init__(self, classifier: ZeroShotClassifier) -> None:
        self._classifier = classifier.to(device=torch.device("cpu"))
        self._prior = LocalPrior.fresh(self._classifier)
        self._left = _WATCHED

    def add(self, samples: Samples) -> bool:
        """Count the next samples; returns whether they show for the first time that the stream is sorted."""
        if self._left <= 0:
            return False
        self._left -= len(samples)
        self._prior.learn(ZeroShot(self._classifier, samples).text_probabilities)
        if not self._prior.is_ordered:
            return False
        self._left = 0
        return True


def suffers_from_order(adapter: Adapter) -> bool:
    """Whether a method learns and runs without the prior that a sorted stream needs."""
    return adapter.parameters.get("prior") == "none" and adapter.state_bytes > 0

"""A step on one sample without Python between its parts: the two products push Python's own code out of the cache."""

from operator import is_
from typing import Self

import numpy as np
import torch
from torch import Tensor

from pta.core.classifier import ZeroShotClassifier
from pta.core.host_readable import is_host_readable
from pta.core.plain import plain_tensor
from pta.core.samples import Samples
from pta.engines import numba_is_installed
from pta.engines.pta.prototypes import Prototypes
from pta.engines.pta.rule import Rule
from pta.errors import InvalidSamples


class CompiledStep:
    """The step on a state that stays where it is in memory, on a CPU with numba."""

    def __init__(self, classifier: ZeroShotClassifier, prototypes: Prototypes, seen: Tensor, rule: Rule) -> None:
        from pta.engines.pta.numba_step import step

        self._step = step
        self._tensors = classifier.anchors, *vars(prototypes).values(), seen
        self._shape, self._dtype = (1, classifier.dim), classifier.anchors.dtype
        numbers = classifier.scale, classifier.bias, rule.threshold, rule.h, rule.w, prototypes.arrived_within
        switches = rule.anchor == "recursive", rule.order == "predict-first", rule.weight == "raw", rule.renormalise
        self._arguments = *(tensor.numpy() for tensor in self._tensors), *numbers, *switches

    @classmethod
    def on(
        cls, classifier: ZeroShotClassifier, prototypes: Prototypes, seen: Tensor, rule: Rule, last: Self | None
    ) -> Self | None:
        """The last step, if the state lies where it was; else a new one, if state and anchors can be compiled for."""
        tensors = classifier.anchors, *vars(prototypes).values(), seen
        if last is not None and all(map(is_, last._tensors, tensors)):
            return last
        same_precision = prototypes.knowledge.dtype == classifier.anchors.dtype
        in_order = classifier.anchors.is_contiguous() and all(map(is_host_readable, tensors))
        return cls(classifier, prototypes, seen, rule) if same_precision and in_order and numba_is_installed() else None

    def __call__(self, samples: object) -> Tensor | None:
        """Learn one sample and give its logits, 1×C; or give None and learn nothing, if `Adapter.step` has to do it.

        It has to do several samples, what must be converted or refused, and touches that float64 decides.
        """
        if isinstance(samples, Samples):
            features, normalise = samples.features, False
        elif isinstance(samples, Tensor):
            features, normalise = plain_tensor("features", samples, InvalidSamples), True
        else:
            return None
        alike = features.shape == self._shape and features.dtype == self._dtype
        if not (alike and is_host_readable(features) and features.is_contiguous()):
            return None
        logits = np.empty((1, len(self._tensors[0])), self._arguments[0].dtype)
        learned = self._step(features.detach().numpy(), normalise, logits, *self._arguments)
        return torch.from_numpy(logits) if learned else None

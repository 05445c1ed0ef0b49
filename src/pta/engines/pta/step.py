"""The rule for a single sample on the CPU, for latency: only the rows that move are read and written.

In numpy, whose calls cost a third of torch's on arrays this small; or, from the feature to the logits, in one compiled
call (`CompiledStep`), because the two products push Python's own code out of the cache.
"""

from operator import is_
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pta.core.classifier import ZeroShotClassifier
from pta.core.plain import is_host_readable, plain_tensor
from pta.core.samples import Samples
from pta.engines.gpu.processors import numba_is_installed
from pta.engines.pta.rule import Prototypes, Rule
from pta.engines.pta.touches import Touches
from pta.errors import InvalidSamples

Array = NDArray[np.floating]


def advance_by_step(prototypes: Prototypes, anchors: Tensor, features: Tensor, touches: Touches, rule: Rule) -> Tensor:
    """Learn one sample (features is 1×d); give its cosine with every class's R, 1×C."""
    before = features @ prototypes.anchored.T if rule.order == "predict-first" else None
    f, knowledge, anchored = features.numpy(), prototypes.knowledge.numpy(), prototypes.anchored.numpy()
    length, touched, resting = prototypes.length.numpy(), prototypes.touched.numpy(), prototypes.resting.numpy()
    recursive = rule.anchor == "recursive"
    moving = ~resting if recursive else np.zeros_like(resting)
    moving[touches.classes] = True
    touched[touches.classes] = True
    rows = np.flatnonzero(moving)
    log_keep = np.zeros(len(rows))
    log_keep[np.searchsorted(rows, touches.classes)] = rule.log_decay(touches.probabilities)

    def column(scalars: NDArray[np.float64]) -> NDArray[np.floating]:
        return scalars.astype(f.dtype)[:, None]

    R, pull = anchored[rows], rule.w * (length[rows] if recursive else np.ones(len(rows)))
    P = column(np.exp(log_keep)) * knowledge[rows] - column(np.expm1(log_keep)) * f
    mixed = column(pull) * (R if recursive else anchors.numpy()[rows]) + f.dtype.type(1 - rule.w) * P
    norm = _lengths(mixed)
    with np.errstate(divide="ignore", invalid="ignore"):
        knowledge[rows] = P
        anchored[rows] = np.where(norm[:, None] > 0, mixed / column(norm), R)
        if recursive:
            size = _lengths(P)
            # The way left to P/‖P‖ shrinks by pull/norm; measured before the step it stands out of the rounding.
            left = _lengths(R - P / column(size)) * pull / norm
            goal, within = norm if rule.renormalise else size, prototypes.arrived_within
            resting[rows] = (left <= within) & (np.abs(norm - goal) <= within * goal) | (size == 0)
    if recursive and not rule.renormalise:
        length[rows] = norm
        length[~touched & ~moving] *= rule.w
    return features @ prototypes.anchored.T if before is None else before


def _lengths(rows: NDArray[np.floating]) -> NDArray[np.float64]:
    """The length of each row in float64, whose squares do not underflow."""
    return np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))


class CompiledStep:
    """The rule on a state that stays where it is in memory, on a CPU with numba."""

    def __init__(self, classifier: ZeroShotClassifier, prototypes: Prototypes, seen: Tensor, rule: Rule) -> None:
        from pta.engines.pta import numba_loops

        self._loops, self._rule = numba_loops, rule
        self._classifier, self._prototypes, self._seen = classifier, prototypes, seen
        self._tensors = classifier.anchors, *vars(prototypes).values(), seen
        self._shape, self._dtype = (1, classifier.anchors.shape[1]), classifier.anchors.dtype
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
        can_be_compiled = same_precision and is_host_readable(*tensors) and numba_is_installed()
        return cls(classifier, prototypes, seen, rule) if can_be_compiled else None

    def __call__(self, samples: object) -> Tensor | None:
        """Learn one sample and give its logits, 1×C; or give None and learn nothing, if `Adapter.step` has to do it.

        It has to do several samples, and what must be converted or refused.
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
        learned = self._loops.step(features.detach().numpy(), normalise, logits, *self._arguments)
        return torch.from_numpy(logits) if learned else None

    def learn(self, features: Array, touches: Touches, logits: Array | None = None) -> None:
        """Learn unit features by their touches, and add to their zero-shot logits, if given, the scores against R.

        The state has the same bits with and without logits.
        """
        if len(features) == 1:
            known, z = (touches.classes, touches.probabilities), features if logits is None else logits
            self._loops.learn_one(features, *known, z, logits is not None, *self._arguments)
        else:
            self._loops.learn_by_numba(self._prototypes, self._classifier, features, touches, self._rule, logits)
            self._seen.add_(len(features))

    def add_scores(self, features: Array, logits: Array) -> None:
        """Add to zero-shot logits the scores against R, and learn nothing."""
        R, touched = self._prototypes.anchored.numpy(), self._prototypes.touched.numpy()
        self._loops.add_scores(features, R, touched, self._classifier.scale, self._classifier.bias, logits)

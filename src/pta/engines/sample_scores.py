"""What a classifier says of samples, and what logits mean: compiled, or one sample at a time where there is no numba.

The bits of a sample depend on that sample alone, not on its batch.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pta.core.classifier import ZeroShotClassifier
from pta.core.samples import Samples
from pta.engines.gpu import processors
from pta.engines.pta.rule import Rule
from pta.engines.pta.touches import Touches, find_touches
from pta.engines.zero_shot import ZeroShot, entropy_of

Column = NDArray[np.generic]
Columns = tuple[Column, Column, Column]
"""To be filled for B samples: label, its probability, entropy."""


class SampleTouches(NamedTuple):
    """The touches of B samples, one sample after another."""

    classes: NDArray[np.int64]
    probabilities: NDArray[np.float64]
    begin: NDArray[np.int64]  # B+1, where those of each sample begin

    @property
    def by_class(self) -> Touches:
        """The same as engines take them."""
        order, count = np.argsort(self.classes, kind="stable"), len(self.begin) - 1
        samples = np.repeat(np.arange(count), np.diff(self.begin))
        return Touches(samples[order], self.classes[order], self.probabilities[order], count)


def score_samples(
    unit: NDArray[np.float32], classifier: ZeroShotClassifier, rule: Rule | None, columns: Columns
) -> tuple[NDArray[np.float32], SampleTouches]:
    """Zero-shot logits and touches of unit features, B×d, in float32 whatever the precision of the anchors."""
    if not processors.numba_is_installed():
        return _score_one_by_one(unit, classifier.to(dtype=torch.float32), rule, columns)
    from pta.engines.pta.numba_loops import describe_zero_shot

    text = classifier.anchors.float().numpy()
    z = np.empty((len(unit), len(text)), np.float32)
    numbers = classifier.scale, classifier.bias, np.inf if rule is None else rule.threshold
    return z, SampleTouches(*describe_zero_shot(unit, text, *numbers, z, *columns))


def _score_one_by_one(
    unit: NDArray[np.float32], classifier: ZeroShotClassifier, rule: Rule | None, columns: Columns
) -> tuple[NDArray[np.float32], SampleTouches]:
    classes, probabilities, begin, logits = [np.empty(0, np.int64)], [np.empty(0)], [0], []
    for row in unit:
        zero_shot = ZeroShot(classifier, Samples.unchecked(torch.from_numpy(row[None]).clone()))
        logits.append(z := zero_shot.logits)
        if rule is not None:
            found = find_touches(zero_shot, z, rule)
            classes.append(found.classes)
            probabilities.append(found.probabilities)
        begin.append(begin[-1] + len(classes[-1]))
    describe_logits(torch.cat(logits), 1.0, columns)
    touches = SampleTouches(np.concatenate(classes), np.concatenate(probabilities), np.array(begin))
    return torch.cat(logits).numpy(), touches


def describe_logits(logits: Tensor, factor: float, columns: Columns) -> NDArray[np.floating]:
    """The softmax of logits times a factor, B×C."""
    if processors.numba_is_installed():
        from pta.engines.pta.numba_loops import describe

        chances = np.empty(logits.shape, np.float32)
        describe(logits.numpy(), factor, chances, *columns)
        return chances
    spread = (logits.double() * factor).softmax(dim=1)
    columns[0][:] = logits.argmax(dim=1)
    columns[1][:] = spread.gather(1, logits.argmax(dim=1, keepdim=True))[:, 0]
    columns[2][:] = entropy_of(spread)
    return spread.numpy()

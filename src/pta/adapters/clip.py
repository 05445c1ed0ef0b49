"""CLIP: zero-shot classification as it comes, the baseline of every comparison.

Learning Transferable Visual Models From Natural Language Supervision (ICML 2021), https://arxiv.org/abs/2103.00020
The loop: `pta.reference.clip`.

1. Score the feature against every class's text anchor: z = scale·T·f + bias.
"""

from torch import Tensor

from pta.adapters.adapter import Adapter, register
from pta.classifier import ZeroShotClassifier
from pta.samples import Samples


@register
class CLIP(Adapter):
    """The zero-shot classifier itself; keeps nothing, learns nothing.

    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"])
    >>> CLIP(classifier).step([[0.0, 1.0]])
    tensor([[  0., 100.]])
    """

    name = "clip"
    recordable = True

    def __init__(self, classifier: ZeroShotClassifier) -> None:
        super().__init__(classifier)

    def _step(self, samples: Samples) -> Tensor:
        return self.classifier.logits(samples.features)

    _predict = _step

"""CLIP: zero-shot classification as it comes, the baseline of every comparison.

Learning Transferable Visual Models From Natural Language Supervision (ICML 2021), https://arxiv.org/abs/2103.00020

1. Score the feature against every class's text anchor: z = scale·T·f + bias.
"""

from torch import Tensor

from pta.core.parameters import Prior, prior_in_front
from pta.core.samples import Samples
from pta.methods.adapter import Adapter


class CLIP(Adapter):
    """The zero-shot classifier itself; it learns nothing.

    The loop: `pta.reference.clip.clip_loop`.

    >>> from pta import ZeroShotClassifier
    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"])
    >>> CLIP(classifier).step([[0.0, 1.0]])
    tensor([[  0., 100.]])
    """

    name = "clip"
    may_fail = False
    max_batch = 1024
    prior: Prior = prior_in_front()

    def _step(self, samples: Samples) -> Tensor:
        return self.zero_shot(samples).logits

    _predict = _step

"""ZERO: Frustratingly Easy Test-Time Adaptation of Vision-Language Models (NeurIPS 2024).

https://arxiv.org/abs/2405.18330

Keeps nothing from sample to sample: a sample's most confident views vote, each with one vote for one class.

For each sample with V views:
1. Zero-shot probabilities of every view, and their entropy.
2. The int(keep·V) views of lowest entropy, at least one, vote: each for its most probable class.
3. If classes tie for the most votes, the other views are asked in the order of their entropy; the first whose most
   probable class is one of these gives it one more vote. If there is none, the most confident view that voted does.
4. Answer: the logarithm of the shares of votes.

The steps are the paper's algorithm. The released program runs in float16 and divides by float16's machine epsilon
where the paper sets the temperature to zero, so that a view whose classes are close splits its vote
(`temperature="float16"`). Where no other view breaks a tie it masks the wrong classes, which is not imitated.
An earlier version of the program asked the other views in the order they came; the present one does as step 3 says.
That at least one view votes is our choice; in the program none votes if int(keep·V) is 0.
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from pta.core.parameters import choice, number
from pta.core.samples import Samples
from pta.engines.prompts.view_entropy import by_entropy, number_kept
from pta.engines.zero_shot import samples_at_once
from pta.methods.adapter import Adapter

Temperature = Literal["zero", "float16"]

_NO_VOTES = 1e-12  # the share that stands for none, whose logarithm is finite


class ZERO(Adapter):
    """Majority vote of a sample's most confident augmented views.

    The loop: `pta.reference.zero.zero_loop`.

    Logits are logarithms of the shares of votes, where a class without a vote has 10⁻¹².

    With `temperature="float16"` features, anchors, cosines and scaled cosines are rounded to float16. A view's votes
    are then the float32 softmax of its rounded cosines over 2⁻¹⁰, summed in float32. Entropies are those of the rounded
    scaled cosines, in float64.

    >>> from pta import ZeroShotClassifier
    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"])
    >>> views = torch.tensor([[[0.7, 0.8], [0.8, 0.1], [0.9, 0.2], [0.1, 0.7], [0.6, 0.5]]])
    >>> ZERO(classifier, keep=0.6).step(Samples.of(views[:, 0], views=views)).exp()
    tensor([[0.6667, 0.3333]])
    """

    name = "zero"
    needs = frozenset({"features", "views"})
    may_fail = False
    keep: float = number(0.3, 0.0, 1.0, "share of the views that vote")
    temperature: Temperature = choice(
        "zero", Temperature, "zero: each view has one vote; float16: votes are split, as in the released program"
    )

    def _declare_state(self) -> None:
        self.max_batch = samples_at_once(self.classifier, views=64)

    def _step(self, samples: Samples) -> Tensor:
        scores = z = self.zero_shot(samples).view_logits if self.temperature == "zero" else self._cosines(samples)
        if self.temperature == "float16":
            z = (scores * self.classifier.scale).double()
        order = by_entropy(z)
        kept = number_kept(order.shape[1], self.keep)
        voting = scores.take_along_dim(order[:, :kept, None], dim=1)  # step 2
        if self.temperature == "zero":
            votes = one_hot(voting.argmax(dim=2), self.classifier.classes).sum(dim=1)
        else:
            votes = (voting / torch.finfo(torch.float16).eps).float().softmax(dim=2).sum(dim=1)
        others_first = order.roll(-kept, dims=1)
        votes = _with_ties_broken(votes, scores.argmax(dim=2).take_along_dim(others_first, dim=1))
        shares = votes.double() / votes.sum(dim=1, keepdim=True)
        return shares.clamp_min(_NO_VOTES).log().to(samples.features.dtype)

    _predict = _step

    def _cosines(self, samples: Samples) -> Tensor:
        """What the released program's views vote by, B×V×C, in float16."""
        views, anchors = (rows.half().double() for rows in (samples.tensors()["views"], self.classifier.anchors))
        return (views @ anchors.T).half()


def _with_ties_broken(votes: Tensor, asked: Tensor) -> Tensor:
    """Step 3: one more vote where classes tie for the most, by the first of the asked labels that is one of them."""
    tied = votes == votes.amax(dim=1, keepdim=True)
    asked = torch.cat([asked, votes.argmax(dim=1, keepdim=True)], dim=1)  # classes can tie by split votes alone
    first = tied.gather(1, asked).int().argmax(dim=1, keepdim=True)
    more = (tied.sum(dim=1, keepdim=True) > 1).to(votes.dtype)
    return votes.scatter_add(1, asked.gather(1, first), more)

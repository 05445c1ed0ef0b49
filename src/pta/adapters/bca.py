"""BCA: Bayesian Test-Time Adaptation for Vision-Language Models (CVPR 2025).

https://arxiv.org/abs/2503.09248
The loop: `pta.reference.bca`.

Keeps a centre μ_m a class (the text anchor at first) and a table Π, whose row Π_m says which classes the samples that
were nearest to centre m turned out to be (the identity at first), both as running means.

For each sample with feature f:
1. Likelihood of the centres and posterior of the classes: q = softmax(scale·μ·f), r = Πᵀ·q.
2. Answer: ln r.
3. The class that learns is m = argmax r; how sure it is, v = max r.
4. If v > centre_threshold: μ_m ← (n₁·μ_m + f)/(n₁+1), scaled to unit length; n₁ ← n₁+1 (centre_count at first).
5. If v > prior_threshold: Π_m ← (n₂·Π_m + r)/(n₂+1); n₂ ← n₂+1 (prior_count at first).

Uncertain: the authors' program could not be had. The steps are those of two independent ports, the constants those of
one of them, for all datasets. The paper can be read to mean m = argmax q in step 3 (`update="likelihood"`).
Where samples come as the mean of their most confident views, these were chosen with the text anchors; BCA would choose them
with the centres as they are by then. With centre_count = 20000 a sample moves a centre by 0.00005 at most.
"""

from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pta.adapters.adapter import Adapter, register
from pta.classifier import ZeroShotClassifier
from pta.engines.host_readable import is_host_readable
from pta.engines.rule import Order
from pta.parameters import require_choice, require_count, require_number
from pta.samples import Samples

Update = Literal["posterior", "likelihood"]

_LARGEST_COUNT = 2**31


@register
class BCA(Adapter):
    """Bayesian class adaptation: running means of centres and of what they turn out to mean.

    Args:
        classifier: its anchors are the first centres.
        centre_threshold: τ₁, the posterior above which a sample moves a centre.
        centre_count: N₁, how many samples a text anchor weighs in the mean.
        prior_threshold: τ₂, the posterior above which a sample changes the prior.
        prior_count: N₂, how many samples the first prior weighs in the mean.
        update: the class that learns is the most probable by the "posterior" (both ports) or by the "likelihood".
        order: answer a sample before learning from it ("predict-first") or after ("update-first").

    Logits are logarithms of the posterior. The table is dense and takes 8·C² bytes from the start: 8 MB for 1000
    classes, 3.8 GB for 21,841. While few of its rows have changed, a sample takes the time of these alone on a CPU.

    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"])
    >>> BCA(classifier).step([[0.8, 0.6], [0.1, 0.9]]).argmax(dim=1)
    tensor([0, 1])
    """

    name = "bca"
    recordable = True
    at_once = 128  # a moved centre is scored again for the samples that are left of this many
    centres: Tensor
    priors: Tensor
    centre_counts: Tensor
    prior_counts: Tensor

    def __init__(
        self,
        classifier: ZeroShotClassifier,
        *,
        centre_threshold: float = 0.05,
        centre_count: int = 20000,
        prior_threshold: float = 0.65,
        prior_count: int = 1,
        update: Update = "posterior",
        order: Order = "predict-first",
    ) -> None:
        self.centre_threshold = require_number("centre_threshold", centre_threshold, 0.0, 1.0)
        self.prior_threshold = require_number("prior_threshold", prior_threshold, 0.0, 1.0)
        first_centre = require_count("centre_count", centre_count, 0, _LARGEST_COUNT)
        self.prior_count = require_count("prior_count", prior_count, 0, _LARGEST_COUNT)
        require_choice("update", update, get_args(Update))
        require_choice("order", order, get_args(Order))
        self.update = update
        self.order = order
        super().__init__(
            classifier,
            centre_threshold=self.centre_threshold,
            centre_count=first_centre,
            prior_threshold=self.prior_threshold,
            prior_count=self.prior_count,
            update=update,
            order=order,
        )
        self.add_state("centres", lambda: self.classifier.anchors.clone())
        self.add_state("priors", self._first_priors)
        self.add_state("centre_counts", lambda: self._counts(first_centre))
        self.add_state("prior_counts", lambda: self._counts(self.prior_count))

    def _first_priors(self) -> Tensor:
        return torch.eye(self.classifier.classes, dtype=torch.float64, device=self.classifier.anchors.device)

    def _counts(self, first: int) -> Tensor:
        return self.classifier.anchors.new_full((self.classifier.classes,), first, dtype=torch.int64)

    def _step(self, samples: Samples) -> Tensor:
        f = samples.features.double()
        z = self._scores(f, self.centres)
        posteriors = torch.empty_like(z)
        for t in range(len(f)):
            q = z[t].softmax(dim=0)
            r = self._posterior(q)
            m = (r if self.update == "posterior" else q).argmax(dim=0, keepdim=True)
            v = r.amax(dim=0, keepdim=True)
            self._move_centre(m, f[t], v > self.centre_threshold)
            z[t:].index_copy_(1, m, self._scores(f[t:], self.centres.index_select(0, m)))
            self._change_prior(m, r, v > self.prior_threshold)
            posteriors[t] = r if self.order == "predict-first" else self._posterior(z[t].softmax(dim=0))
        return _logarithm(posteriors).to(samples.features.dtype)

    def _predict(self, samples: Samples) -> Tensor:
        q = self._scores(samples.features.double(), self.centres).softmax(dim=1)
        return _logarithm(self._posterior(q)).to(samples.features.dtype)

    def _scores(self, f: Tensor, centres: Tensor) -> Tensor:
        return self.classifier.scale * (f @ centres.double().t())

    def _posterior(self, q: Tensor) -> Tensor:
        """Πᵀ·q, where the rows that have not changed, those of the identity, need not be multiplied."""
        if not is_host_readable(self.prior_counts):
            return q @ self.priors
        changed = (self.prior_counts > self.prior_count).nonzero()[:, 0]
        if 4 * len(changed) > len(self.priors):  # then picking them takes longer than multiplying all
            return q @ self.priors
        return q.index_fill(-1, changed, 0.0) + q[..., changed] @ self.priors[changed]

    def _move_centre(self, m: Tensor, f: Tensor, sure: Tensor) -> None:
        centre = self.centres.index_select(0, m)
        moved = normalize(self.centre_counts.index_select(0, m) * centre.double() + f, dim=1)
        self.centres.index_copy_(0, m, torch.where(sure, moved.to(centre.dtype), centre))
        self.centre_counts.index_add_(0, m, sure.long())

    def _change_prior(self, m: Tensor, r: Tensor, sure: Tensor) -> None:
        prior, n = self.priors.index_select(0, m), self.prior_counts.index_select(0, m)
        self.priors.index_copy_(0, m, torch.where(sure, (n * prior + r) / (n + 1), prior))
        self.prior_counts.index_add_(0, m, sure.long())


def _logarithm(probabilities: Tensor) -> Tensor:
    return probabilities.clamp_min(torch.finfo(probabilities.dtype).tiny).log()

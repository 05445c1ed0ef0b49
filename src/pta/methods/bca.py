"""BCA: Bayesian Test-Time Adaptation for Vision-Language Models (CVPR 2025).

https://arxiv.org/abs/2503.09248

Keeps a centre μ_m per class (the text anchor at first) and a table Π, whose row Π_m says which classes the samples that
were nearest to centre m turned out to be (the identity at first), both as running means.

For each sample with feature f:
1. Likelihood of the centres and posterior of the classes: q = softmax(scale·μ·f), r = Πᵀ·q.
2. Answer: ln r.
3. The class that learns is m = argmax r, with the confidence v = max r.
4. If v > centre_threshold: μ_m ← (n₁·μ_m + f)/(n₁+1), scaled to unit length; n₁ ← n₁+1 (centre_count at first).
5. If v > prior_threshold: Π_m ← (n₂·Π_m + r)/(n₂+1); n₂ ← n₂+1 (prior_count at first).

Uncertain: the authors' program could not be had. The steps are those of two independent ports, the constants those of
one of them, for all datasets. The paper can be read to mean m = argmax q in step 3 (`update="likelihood"`).
Where samples are the mean of their most confident views, these were chosen with the text anchors; BCA would choose them
with the present centres. With centre_count = 20000 a sample moves a centre by 0.00005 at most.
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pta.core.parameters import Order, Prior, choice, count, learning_order, number, prior_in_front
from pta.core.plain import is_host_readable
from pta.core.samples import Samples
from pta.methods.adapter import Adapter
from pta.methods.state import DISTRIBUTIONS, LARGEST_COUNT, UNIT_BALL, between, full, identity, text_anchors

Update = Literal["posterior", "likelihood"]

_LARGEST_COUNT = 2**31


class BCA(Adapter):
    """Bayesian class adaptation: running means of class centres and of their class priors.

    The loop: `pta.reference.bca.bca_loop`.

    Logits are logarithms of the posterior. The table is dense and takes 8·C² bytes from the start: 8 MB for 1000
    classes, 3.8 GB for 21,841. While few of its rows have changed, a sample takes the time of these alone on a CPU.
    A batch can differ from a loop after a sample whose two largest posteriors, or the largest and a threshold, are
    equal up to the rounding of float64: rounding then decides what is learned.

    >>> from pta import ZeroShotClassifier
    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"])
    >>> BCA(classifier).step([[0.8, 0.6], [0.1, 0.9]]).argmax(dim=1)
    tensor([0, 1])
    """

    name = "bca"
    may_fail = False
    prototypes_in, counts_in = "centres", "centre_counts"
    fixed_classes = "it keeps a distribution over the classes per class"
    max_batch = 128  # a moved centre is scored again for the samples that are left of this many
    centre_threshold: float = number(0.05, 0.0, 1.0, "τ₁, a sample with a larger posterior updates a centre")
    centre_count: int = count(20000, 0, _LARGEST_COUNT, "N₁, weight of the text anchor in the mean, in samples")
    prior_threshold: float = number(0.65, 0.0, 1.0, "τ₂, a sample with a larger posterior changes the prior")
    prior_count: int = count(1, 0, _LARGEST_COUNT, "N₂, weight of the first prior in the mean, in samples")
    update: Update = choice("posterior", Update, "the quantity whose largest class is updated (ports: posterior)")
    order: Order = learning_order("predict-first")
    prior: Prior = prior_in_front()

    def _declare_state(self) -> None:
        C = self.classifier.classes
        self.centres = self.add_state("centres", text_anchors, UNIT_BALL)
        self.priors = self.add_state("priors", identity(C), DISTRIBUTIONS)
        n, m, whole = self.centre_count, self.prior_count, torch.int64
        self.centre_counts = self.add_state("centre_counts", full(n, C, dtype=whole), between(n, LARGEST_COUNT))
        self.prior_counts = self.add_state("prior_counts", full(m, C, dtype=whole), between(m, LARGEST_COUNT))

    def _step(self, samples: Samples) -> Tensor:
        features, prior = samples.features.double(), self._log_prior(samples)
        z = self._scores(features, self.centres) + prior
        posteriors = torch.empty_like(z)
        for t, f in enumerate(features):
            q = z[t].softmax(dim=0)
            r = self._posterior(q)
            m = (r if self.update == "posterior" else q).argmax(dim=0, keepdim=True)
            v = r.amax(dim=0, keepdim=True)
            mu, n = self.centres.index_select(0, m).double(), self.centre_counts.index_select(0, m)
            _update_row(self.centres, self.centre_counts, m, v > self.centre_threshold, normalize(n * mu + f, dim=1))
            moved = self._scores(features[t:], self.centres.index_select(0, m)) + prior[t:].index_select(1, m)
            z[t:].index_copy_(1, m, moved)
            pi, n = self.priors.index_select(0, m), self.prior_counts.index_select(0, m)
            _update_row(self.priors, self.prior_counts, m, v > self.prior_threshold, (n * pi + r) / (n + 1))
            posteriors[t] = r if self.order == "predict-first" else self._posterior(z[t].softmax(dim=0))
        return _logarithm(posteriors).to(samples.features.dtype)

    def _predict(self, samples: Samples) -> Tensor:
        z = self._scores(samples.features.double(), self.centres) + self._log_prior(samples)
        q = z.softmax(dim=1)
        return _logarithm(self._posterior(q)).to(samples.features.dtype)

    def _scores(self, f: Tensor, centres: Tensor) -> Tensor:
        return self.classifier.scale * (f @ centres.double().t())

    def _log_prior(self, samples: Samples) -> Tensor:
        """What a prior adds to the scores of the centres, which are zero-shot's at first, B×C."""
        found = self.zero_shot(samples).log_prior
        return self.priors.new_zeros(len(samples), len(self.priors)) if found is None else found

    def _posterior(self, q: Tensor) -> Tensor:
        """Πᵀ·q; on a CPU the rows of Π that have not changed are not multiplied: they are those of the identity."""
        changed = self.prior_counts > self.prior_count
        if is_host_readable(changed):
            rows = changed.nonzero()[:, 0]
            if 4 * len(rows) <= len(changed):  # with more, picking them takes longer than multiplying all
                return q.index_fill(-1, rows, 0.0) + q[..., rows] @ self.priors[rows]
        return q @ self.priors


def _update_row(means: Tensor, counts: Tensor, row: Tensor, condition: Tensor, new: Tensor) -> None:
    """If a condition holds, replace a row of C×n means and count one more of C in it; all but the former are of one."""
    means.index_copy_(0, row, torch.where(condition, new.to(means.dtype), means.index_select(0, row)))
    counts.index_add_(0, row, condition.long())


def _logarithm(probabilities: Tensor) -> Tensor:
    return probabilities.clamp_min(torch.finfo(probabilities.dtype).tiny).log()

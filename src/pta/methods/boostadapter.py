"""BoostAdapter: Improving Vision-Language Test-Time Adaptation via Regional Bootstrapping (NeurIPS 2024).

https://arxiv.org/abs/2410.15430, https://github.com/taolinzhang/BoostAdapter

Keeps the caches of TDA (`pta.methods.tda`). While a sample is scored, its own most confident views are in the positive
cache too.

For each sample with feature f, V views (the image itself first) and what TDA computes of f:
1. (f, e) enters the positive cache Q as in TDA.
2. If it is as uncertain as TDA asks, it enters the negative cache, where the oldest of more than two goes.
3. A copy Q′ of Q gets the int(V·share) views with the smallest entropies, the most confident first, each under the
   class and with the entropy that it has alone, with δ more slots per class.
4. Score as in TDA, with Q′ in the place of Q.

The image itself is among the views that are chosen from, so it may be in Q′ twice.
With a single view int(V·share) is 0: then this is TDA with the newest negatives, as in the authors' runs on ImageNet.
`share=0` is the same and needs no views.
On ImageNet-A, -V2, -R and -Sketch the authors' f is the mean of the most confident views (`pta eval --views`).
The released program drops the oldest negatives where TDA drops those with the largest entropy, by a flag left at its
default; `negatives` is the switch.
The authors choose δ for each dataset (0 to 3); the default is that of their program's option, 0.

Q′ is Q but for the classes of the views, so a batch is scored as in TDA, and then these few classes again.
"""

from typing import Literal

import torch
from torch import Tensor

from pta.core.parameters import choice, count, number
from pta.core.samples import Samples
from pta.engines.caches.admission import EMPTY, CacheUpdate
from pta.engines.caches.affinity import affinity, best, best_of_classes
from pta.engines.zero_shot import entropy_of, samples_at_once
from pta.errors import InvalidSamples
from pta.methods.state import LARGEST_COUNT, Bound, between
from pta.methods.tda import TDA

Negatives = Literal["newest", "most-confident"]


class BoostAdapter(TDA):
    """TDA that also caches each sample's own most confident views, for that sample alone.

    The loop: `pta.reference.boostadapter.boostadapter_loop`.

    With `share=0` samples need no views.

    >>> from pta import ZeroShotClassifier
    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"], scale=10.0)
    >>> views = torch.tensor([[[0.8, 0.6], [1.0, 0.0]]])
    >>> BoostAdapter(classifier, delta=1, share=0.5).step(Samples.of([[0.8, 0.6]], views=views))
    tensor([[10.6188,  5.8830]])
    """

    name = "boostadapter"
    takes_labels = False
    needs = frozenset({"features", "views"})
    needed_unless = (("views", "share", 0),)
    delta: int = count(0, 0, 1000, "δ, slots per class for views beyond positive_slots")
    share: float = number(0.1, 0.0, 1.0, "share of a sample's views that is cached, those with the lowest entropy")
    negatives: Negatives = choice(
        "newest", Negatives, "which samples the negative cache keeps: newest (released) or most-confident (as in TDA)"
    )

    def _declare_state(self) -> None:
        super()._declare_state()
        if self.share > 0:
            self.max_batch = samples_at_once(self.classifier, views=64)

    def require(self, samples: Samples) -> None:
        """Refuse samples without views, or with so few that none would be chosen; a single one is the image itself."""
        super().require(samples)
        if self.share == 0 or samples.views is None:
            return
        views = samples.views.shape[1]
        if views > 1 and self._chosen_of(views) == 0:
            raise InvalidSamples(
                f"of {views} views none is chosen at share={self.share:g}; boostadapter needs more, "
                "as pta extract --views 64 makes, or share=0 for none"
            )

    def _chosen_of(self, views: int) -> int:
        return int(views * self.share)

    def _negative_scores_of(self, entropy: Tensor) -> Tensor:
        if self.negatives == "most-confident":
            return entropy
        return -(self.seen + torch.arange(len(entropy), device=entropy.device)).to(entropy.dtype)

    def _bound_of_negative_scores(self) -> Bound:
        newest = self.negatives == "newest"
        return between(-LARGEST_COUNT, 0.0) if newest else super()._bound_of_negative_scores()

    def _for(self, samples: Samples, positive: CacheUpdate, times: Tensor) -> Tensor:
        """As in TDA, but under the classes of each sample's n chosen views the affinities are those to Q′."""
        total = super()._for(samples, positive, times)
        if samples.views is None or (n := self._chosen_of(samples.views.shape[1])) == 0:
            return total
        z = self.zero_shot(samples).view_logits
        entropies, chosen = (found[:, :n] for found in entropy_of(z.softmax(dim=2)).sort(dim=1, stable=True))
        classes = z.argmax(dim=2).gather(1, chosen)
        views = samples.views.gather(1, chosen[:, :, None].expand(-1, -1, samples.dim))

        f, beta = samples.features, self.positive_beta
        q = best_of_classes(f, positive, times, self.positive_keys, self.positive_scores, classes, beta)
        same = classes[:, :, None] == classes[:, None]
        near_views = affinity(torch.einsum("bd,bnd->bn", f, views), beta)[:, None].expand(same.shape)
        own = torch.where(same, entropies[:, None], EMPTY), near_views
        scores, near = best(self.positive_slots + self.delta, q, own)
        return total.scatter(1, classes, (near * (scores < EMPTY)).sum(dim=2))

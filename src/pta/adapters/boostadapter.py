"""BoostAdapter: Improving Vision-Language Test-Time Adaptation via Regional Bootstrapping (NeurIPS 2024).

https://arxiv.org/abs/2410.15430, https://github.com/taolinzhang/BoostAdapter
The loop: `pta.reference.boostadapter`.

Keeps the caches of TDA (`pta.adapters.tda`), and for the time of one sample adds that sample's own most confident views to the
positive one.

For each sample with feature f, V views (the image itself first) and what TDA computes of f:
1. (f, e) enters the positive cache Q as in TDA.
2. If it is as doubtful as TDA asks, it enters the negative cache, where the oldest of more than two goes.
3. A copy Q′ of Q gets the int(V·share) views with the smallest entropies, the most confident first, each under the class and
   with the entropy that it has alone, with δ more slots for each class.
4. Score as in TDA, with Q′ in the place of Q.

The image itself is among the views that are chosen from, so it may be in Q′ twice.
With a single view int(V·share) is 0: then this is TDA with the newest negatives, as in the authors' runs on ImageNet.
`share=0` is the same and needs no views.
On ImageNet-A, -V2, -R and -Sketch the authors' f is the mean of the most confident views (`pta eval --views`).
The released program drops the oldest negatives where TDA drops those in most doubt, by a flag left at its default;
`negatives` is the switch.
The authors choose δ for each dataset (0 to 3); the default is that of their program's option, 0.

Q′ is Q but for the classes of the views, so a batch is scored as in TDA, and then these few classes again.
"""

from typing import Literal, get_args

import torch
from torch import Tensor

from pta.adapters.adapter import register
from pta.adapters.tda import TDA, EntropyBase, affinity
from pta.classifier import ZeroShotClassifier
from pta.engines.admission import EMPTY, Admission
from pta.engines.rule import Order
from pta.engines.zero_shot import entropy_of, exact_logits, samples_at_once
from pta.errors import InvalidSamples
from pta.parameters import require_choice, require_count, require_number
from pta.samples import Samples

Negatives = Literal["newest", "most-confident"]

_MOST_MORE_SLOTS = 1000


@register
class BoostAdapter(TDA):
    """TDA that also caches each sample's own most confident views, for that sample alone.

    Args:
        classifier: the zero-shot classifier that decides what is cached, and where.
        delta: δ, how many slots a class has for views beyond `positive_slots`.
        share: the share of a sample's views that are cached, those with the smallest entropies; without any, samples
            need no views.
        negatives: what stays in the negative cache: the "newest" samples (released) or the "most-confident", as in TDA.
        positive_alpha: this and all others as in TDA.

    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"], scale=10.0)
    >>> views = torch.tensor([[[0.8, 0.6], [1.0, 0.0]]])
    >>> BoostAdapter(classifier, delta=1, share=0.5).step(Samples.of([[0.8, 0.6]], views=views))
    tensor([[10.6188,  5.8830]])
    """

    name = "boostadapter"
    needs = frozenset({"features", "views"})
    seen: Tensor

    def __init__(
        self,
        classifier: ZeroShotClassifier,
        *,
        delta: int = 0,
        share: float = 0.1,
        negatives: Negatives = "newest",
        positive_alpha: float = 2.0,
        positive_beta: float = 5.0,
        positive_slots: int = 3,
        negative_alpha: float = 0.117,
        negative_beta: float = 1.0,
        negative_slots: int = 2,
        min_entropy: float = 0.2,
        max_entropy: float = 0.5,
        entropy_base: EntropyBase = "log2",
        min_probability: float = 0.03,
        max_probability: float = 1.0,
        order: Order = "update-first",
    ) -> None:
        super().__init__(
            classifier,
            positive_alpha=positive_alpha,
            positive_beta=positive_beta,
            positive_slots=positive_slots,
            negative_alpha=negative_alpha,
            negative_beta=negative_beta,
            negative_slots=negative_slots,
            min_entropy=min_entropy,
            max_entropy=max_entropy,
            entropy_base=entropy_base,
            min_probability=min_probability,
            max_probability=max_probability,
            order=order,
        )
        require_choice("negatives", negatives, get_args(Negatives))
        self.parameters |= {
            "delta": require_count("delta", delta, 0, _MOST_MORE_SLOTS),
            "share": require_number("share", share, 0.0, 1.0),
            "negatives": negatives,
        }
        if share == 0:
            self.needs = frozenset({"features"})
        else:
            self.at_once = samples_at_once(classifier, views=64)
        self.add_state("seen", lambda: self.classifier.anchors.new_zeros((), dtype=torch.int64), per_class=False)

    def require(self, samples: Samples) -> None:
        """Refuse samples without views, or with so few that none would be chosen; a single one is the image itself."""
        super().require(samples)
        if "views" in self.needs and samples.views is not None:
            count = samples.views.shape[1]
            if count > 1 and int(count * self.parameters["share"]) == 0:
                raise InvalidSamples(
                    f"of {count} views none is chosen at share={self.parameters['share']:g}; boostadapter needs more, "
                    "as pta extract --views 64 makes, or share=0 for none"
                )

    def _step(self, samples: Samples) -> Tensor:
        logits = super()._step(samples)
        self.seen += len(samples)
        return logits

    def _negative_scores_of(self, entropy: Tensor) -> Tensor:
        if self.parameters["negatives"] == "most-confident":
            return entropy
        return -(self.seen + torch.arange(len(entropy), device=entropy.device)).to(entropy.dtype)

    def _for(self, samples: Samples, cache: Admission, times: Tensor) -> Tensor:
        """As in TDA, but for the classes of each sample's n most confident views, which are counted in Q′."""
        total = super()._for(samples, cache, times)
        if samples.views is None or (n := int(samples.views.shape[1] * self.parameters["share"])) == 0:
            return total
        f, beta, slots = samples.features, self.parameters["positive_beta"], self.parameters["positive_slots"]
        z = exact_logits(self.classifier, samples.views)
        entropies, most_confident = (found[:, :n] for found in entropy_of(z.softmax(dim=2)).sort(dim=1, stable=True))
        classes = z.argmax(dim=2).gather(1, most_confident)
        views = samples.views.gather(1, most_confident[:, :, None].expand(-1, -1, samples.dim))

        # Q of these classes: the best of what was there before the batch and what came until now, B×n×M
        new, _ = cache.new_at(times)
        came = (cache.classes[new] == classes[:, :, None]) & (cache.arrives[new] <= times[:, None, None])
        near_old = affinity(torch.einsum("bd,bnmd->bnm", f, self.positive_keys[classes]), beta)
        near_new = affinity(f @ f[cache.arrives[new]].T, beta)[:, None].expand(came.shape)
        scores, near = _best(
            slots,
            (self.positive_scores[classes], near_old),
            (torch.where(came, cache.scores[new], EMPTY), near_new),
        )
        # Q′: and the views of the same class
        same = classes[:, :, None] == classes[:, None]
        near_views = affinity(torch.einsum("bd,bnd->bn", f, views), beta)[:, None].expand(same.shape)
        scores, near = _best(
            slots + self.parameters["delta"],
            (scores, near),
            (torch.where(same, entropies[:, None], EMPTY), near_views),
        )
        return total.scatter(1, classes, (near * (scores < EMPTY)).sum(dim=2))


def _best(slots: int, *items: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Scores and affinities of the items with the smallest scores in the last dimension, the first of equal ones."""
    scores, near = (torch.cat(parts, dim=-1) for parts in zip(*items, strict=True))
    scores, order = scores.sort(dim=-1, stable=True)
    return scores[..., :slots], near.gather(-1, order[..., :slots])

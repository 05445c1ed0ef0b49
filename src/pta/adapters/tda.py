"""TDA: Efficient Test-Time Adaptation of Vision-Language Models (CVPR 2024).

https://arxiv.org/abs/2403.18293, https://github.com/kdiAAA/TDA
The loop: `pta.reference.tda`.

Keeps two caches of features under the zero-shot class: the most confident samples of every class, which speak for it, and some
samples in doubt, which speak against all the classes that they could be.

For each sample with feature f:
1. Zero-shot logits, probabilities and their entropy: z = scale·T·f, p = softmax(z), e = H(p) in nats, ŷ = arg max z.
   Where f is the mean of views, p is the mean of theirs.
2. (f, e) enters the positive cache of ŷ: while one of three slots is free, or in the place of the largest entropy there
   if e is smaller.
3. If 0.2 < e/log₂C < 0.5, (f, e, p) enters the negative cache of ŷ, which has two slots, in the same way.
4. Score: z + α₊ Σ e^(−β₊(1−⟨f,k⟩))·1_c over all (k, c) of the positive cache
           − α₋ Σ e^(−β₋(1−⟨f,k⟩))·m(q) over all (k, q) of the negative one, m(q)_c = 1 where 0.03 < q_c < 1, else 0.

A sample is scored with itself in the cache, so a sure one gives the full α₊ to ŷ.
The released program measures e in nats and divides by the logarithm of C to base 2, so that e/log₂C ends at 0.69: the
bounds 0.2 and 0.5 are meant for that; `entropy_base` is the switch.
The authors choose α₊ and β₊ for each dataset on its test set; the defaults are those for ImageNet.
On the variants of ImageNet the released program takes means of views, which the paper does not mention.
The paper's gain is over its own row for CLIP, which is below what the program gives without caches.

What enters a cache depends on zero-shot quantities alone, and an item is in it from one sample until another. So a
batch is computed exactly, by matrix products with what was in the caches and with the batch itself, masked by times.
Of q only m(q) is ever needed, and of that only the numbers of the few classes where it is 1: at most 33, as many as
can have more than 0.03.
"""

import math
from functools import partial
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from pta.adapters.adapter import Adapter, register
from pta.classifier import ZeroShotClassifier
from pta.engines.admission import EMPTY, Admission, admit, picked
from pta.engines.rule import Order
from pta.engines.zero_shot import ZeroShot, samples_at_once
from pta.parameters import require_choice, require_count, require_number
from pta.samples import Samples

EntropyBase = Literal["log2", "ln"]

_LOGARITHMS = {"log2": math.log2, "ln": math.log}
_MOST = 1e6  # of α and β
_MOST_SLOTS = 1000


@register
class TDA(Adapter):
    """Training-free dynamic adapter: caches of sure and of doubtful samples.

    Args:
        classifier: the zero-shot classifier that decides what is cached, and where.
        positive_alpha: α₊, the weight of the positive cache.
        positive_beta: β₊, how fast its affinity falls with the distance.
        positive_slots: its samples for each class; 0 for no such cache.
        negative_alpha: α₋, the weight of the negative cache.
        negative_beta: β₋, how fast its affinity falls with the distance.
        negative_slots: its samples for each class; 0 for no such cache.
        min_entropy: samples with a larger entropy, as a share of the logarithm of C,
        max_entropy: and a smaller one than this enter the negative cache.
        entropy_base: the logarithm of C: "log2" (released, the largest share is then 0.69) or "ln".
        min_probability: a negative sample speaks against the classes with a larger probability than this
        max_probability: and a smaller one than this.
        order: learn a sample before scoring it ("update-first") or after ("predict-first").

    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"], scale=10.0)
    >>> TDA(classifier).step([[0.8, 0.6], [1.0, 0.0]])
    tensor([[ 9.8830,  5.8830], [12.6400, -0.0958]])
    """

    name: ClassVar[str] = "tda"
    recordable = True
    positive_keys: Tensor
    positive_scores: Tensor
    negative_keys: Tensor
    negative_scores: Tensor
    negative_classes: Tensor

    def __init__(
        self,
        classifier: ZeroShotClassifier,
        *,
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
        require_choice("entropy_base", entropy_base, get_args(EntropyBase))
        require_choice("order", order, get_args(Order))
        super().__init__(
            classifier,
            positive_alpha=require_number("positive_alpha", positive_alpha, 0.0, _MOST),
            positive_beta=require_number("positive_beta", positive_beta, 0.0, _MOST),
            positive_slots=require_count("positive_slots", positive_slots, 0, _MOST_SLOTS),
            negative_alpha=require_number("negative_alpha", negative_alpha, 0.0, _MOST),
            negative_beta=require_number("negative_beta", negative_beta, 0.0, _MOST),
            negative_slots=require_count("negative_slots", negative_slots, 0, _MOST_SLOTS),
            min_entropy=require_number("min_entropy", min_entropy, 0.0, 1.0),
            max_entropy=require_number("max_entropy", max_entropy, 0.0, 1.0),
            entropy_base=entropy_base,
            min_probability=require_number("min_probability", min_probability, 0.0, 1.0),
            max_probability=require_number("max_probability", max_probability, 0.0, 1.0),
            order=order,
        )
        self.at_once = samples_at_once(classifier)
        C, d, dtype = classifier.classes, classifier.dim, classifier.anchors.dtype
        K = int(min(C, 1 / min_probability)) if min_probability else C
        for cache, slots in (("positive", positive_slots), ("negative", negative_slots)):
            self.add_state(f"{cache}_keys", partial(self._filled, 0, (C, slots, d), dtype))
            self.add_state(f"{cache}_scores", partial(self._filled, EMPTY, (C, slots), torch.float64))
        self.add_state("negative_classes", partial(self._filled, C, (C, negative_slots, K), torch.int32))

    def _filled(self, value: float, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return self.classifier.anchors.new_full(shape, value, dtype=dtype)

    def _step(self, samples: Samples) -> Tensor:
        f, seen = samples.features, ZeroShot.of(self.classifier, samples)
        all_rows = torch.arange(len(f), device=f.device)
        is_doubtful = self._is_doubtful(seen.entropy)
        doubtful = all_rows[picked(is_doubtful)]
        against = self._could_be(seen.probabilities[doubtful])
        scores = torch.where(is_doubtful, self._negative_scores_of(seen.entropy), EMPTY)[doubtful]
        positive = admit(self.positive_scores, all_rows, seen.labels, seen.entropy, len(f))
        negative = admit(self.negative_scores, doubtful, seen.labels[doubtful], scores, len(f))
        logits = self._score(samples, seen.logits, positive, negative, against)
        positive.store(self.positive_keys, f)
        positive.store(self.positive_scores, seen.entropy)
        negative.store(self.negative_keys, f[doubtful])
        negative.store(self.negative_scores, scores)
        negative.store(self.negative_classes, against)
        return logits

    def _predict(self, samples: Samples) -> Tensor:
        z = self.classifier.logits(samples.features)
        none, against = self.positive_scores.new_empty(0), self.negative_classes.flatten(0, 1)[:0]
        positive, negative = (
            admit(scores, none.long(), none.long(), none, len(samples))
            for scores in (self.positive_scores, self.negative_scores)
        )
        return self._score(samples, z, positive, negative, against)

    def _is_doubtful(self, entropy: Tensor) -> Tensor:
        share = entropy / _LOGARITHMS[self.parameters["entropy_base"]](self.classifier.classes)
        between: Tensor = (self.parameters["min_entropy"] < share) & (share < self.parameters["max_entropy"])
        return between

    def _could_be(self, q: Tensor) -> Tensor:
        """The classes c with m(q)_c = 1 of E samples, E×K, ascending, then C in the places that are left."""
        between = (self.parameters["min_probability"] < q) & (q < self.parameters["max_probability"])
        classes = torch.arange(q.shape[1], dtype=torch.int32, device=q.device)
        return torch.where(between, classes, q.shape[1]).topk(self.negative_classes.shape[2], largest=False).values

    def _negative_scores_of(self, entropy: Tensor) -> Tensor:
        """What a sample's place in the negative cache depends on: the smallest stay."""
        return entropy

    def _score(self, samples: Samples, z: Tensor, positive: Admission, negative: Admission, against: Tensor) -> Tensor:
        first = 0 if self.parameters["order"] == "update-first" else -1
        times = torch.arange(first, first + len(samples), device=z.device)
        z = z.add(self._for(samples, positive, times), alpha=self.parameters["positive_alpha"])
        return z.sub_(self._against(samples, negative, against, times), alpha=self.parameters["negative_alpha"])

    def _for(self, samples: Samples, cache: Admission, times: Tensor) -> Tensor:
        """The affinities of B samples to what is in the positive cache at these times, summed by class, B×C."""
        f, beta = samples.features, self.parameters["positive_beta"]
        new, present = cache.new_at(times)
        total = self._spread(affinity(f[cache.arrives[new]] @ f.T, beta) * present, cache.classes[new, None])
        for m, rows, present in cache.old_at(times):
            total[rows] += affinity(self.positive_keys[rows, m] @ f.T, beta) * present
        return total.T

    def _against(self, samples: Samples, cache: Admission, classes: Tensor, times: Tensor) -> Tensor:
        """The affinities to what is in the negative cache, summed over the classes each of them could be, B×C."""
        f, beta = samples.features, self.parameters["negative_beta"]
        new, present = cache.new_at(times)
        total = self._spread(affinity(f[cache.arrives[new]] @ f.T, beta) * present, classes[new])
        for m, rows, present in cache.old_at(times):
            near = affinity(self.negative_keys[rows, m] @ f.T, beta) * present
            total += self._spread(near, self.negative_classes[rows, m])
        return total.T

    def _spread(self, near: Tensor, classes: Tensor) -> Tensor:
        """The n×B affinities of n items, each added to its classes, n×K, of which C is none; C×B.

        As bags of items, which are added in the same order every time, and never laid out n·K×B.
        """
        C, K, flat = self.classifier.classes, classes.shape[1], classes.flatten()
        pairs = torch.arange(len(flat), device=near.device)[picked(flat < C)]
        found = flat[pairs].long()
        some = found < C
        by_class, order = torch.where(some, found, pairs % C).sort()  # none is any, without weight: bags stay small
        starts = torch.searchsorted(by_class, torch.arange(C, device=near.device))
        weights = some[order].to(near.dtype)
        return embedding_bag(pairs[order] // K, near, starts, mode="sum", per_sample_weights=weights)


def affinity(cosines: Tensor, beta: float) -> Tensor:
    """e^(−β(1−⟨f,k⟩)) in the place of ⟨f,k⟩."""
    return cosines.sub_(1).mul_(beta).exp_()

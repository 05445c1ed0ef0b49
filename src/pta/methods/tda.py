"""TDA: Efficient Test-Time Adaptation of Vision-Language Models (CVPR 2024).

https://arxiv.org/abs/2403.18293, https://github.com/kdiAAA/TDA

Keeps two caches of features under the zero-shot class: the positive one holds the most confident samples of each class,
which raise its logit; the negative one holds uncertain samples, which lower the logits of all classes they could be.

For each sample with feature f:
1. Zero-shot logits, probabilities and their entropy: z = scale·T·f, p = softmax(z), e = H(p) in nats, ŷ = arg max z.
   Where f is the mean of views, p is the mean of theirs.
2. (f, e) enters the positive cache of ŷ: while one of three slots is free, or in the place of the largest entropy there
   if e is smaller.
3. If 0.2 < e/log₂C < 0.5, (f, e, p) enters the negative cache of ŷ, which has two slots, in the same way.
4. Score: z + α₊ Σ e^(−β₊(1−⟨f,k⟩))·1_c over all (k, c) of the positive cache
           − α₋ Σ e^(−β₋(1−⟨f,k⟩))·m(q) over all (k, q) of the negative one, m(q)_c = 1 where 0.03 < q_c < 1, else 0.

A labelled sample is scored in the same way. Then, in the place of steps 2 and 3, it enters the positive cache of its
label with e = 0, as one whose p is certain; of such ones the older stay.

A sample is scored with itself in the cache, so a confident one gives the full α₊ to ŷ.
The released program measures e in nats and divides by the logarithm of C to base 2, so that e/log₂C is at most 0.69.
The bounds 0.2 and 0.5 are meant for that; `entropy_base` is the switch.
The authors choose α₊ and β₊ for each dataset on its test set; the defaults are those for ImageNet.
On the variants of ImageNet the released program takes means of views, which the paper does not mention.
The paper's gain is over its own row for CLIP, which is below what the program gives without caches.

What enters a cache depends on zero-shot quantities alone, so a batch is computed exactly
(`pta.engines.caches.affinity`). Of q only m(q) is ever needed, and of that only the numbers of the few classes where
it is 1: at most 33, as many as can have more than 0.03.
"""

import math
from typing import Literal

import torch
from torch import Tensor

from pta.core.parameters import Order, Prior, choice, count, learning_order, number, prior_in_front
from pta.core.samples import Samples
from pta.engines.caches.admission import EMPTY, CacheUpdate, admit, admit_nothing
from pta.engines.caches.affinity import affinity_per_class, affinity_per_listed_class
from pta.engines.zero_shot import samples_at_once
from pta.methods.adapter import Adapter
from pta.methods.state import UNIT_BALL, Bound, between, doubles, entropies, full, slots_of

EntropyBase = Literal["log2", "ln"]

_LOGARITHMS = {"log2": math.log2, "ln": math.log}
MOST = 1e6  # of α and β
MOST_SLOTS = 1000


class TDA(Adapter):
    """Training-free dynamic adapter: caches of confident and of uncertain samples.

    The loop: `pta.reference.tda.tda_loop`.

    >>> from pta import ZeroShotClassifier
    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"], scale=10.0)
    >>> TDA(classifier).step([[0.8, 0.6], [1.0, 0.0]])
    tensor([[ 9.8830,  5.8830], [12.6400, -0.0958]])
    """

    name = "tda"
    may_fail = False
    loses_frozen = True
    takes_labels = True
    fixed_classes = "the size of its negative cache depends on the number of classes"
    positive_alpha: float = number(2.0, 0.0, MOST, "α₊, weight of the positive cache")
    positive_beta: float = number(5.0, 0.0, MOST, "β₊, how fast affinity to the positive cache falls with distance")
    positive_slots: int = count(3, 0, MOST_SLOTS, "samples per class in the positive cache; 0 for no such cache")
    negative_alpha: float = number(0.117, 0.0, MOST, "α₋, weight of the negative cache")
    negative_beta: float = number(1.0, 0.0, MOST, "β₋, how fast affinity to the negative cache falls with distance")
    negative_slots: int = count(2, 0, MOST_SLOTS, "samples per class in the negative cache; 0 for no such cache")
    min_entropy: float = number(0.2, 0.0, 1.0, "lower bound (share of the logarithm of C) for the negative cache")
    max_entropy: float = number(0.5, 0.0, 1.0, "upper bound (share of the logarithm of C) for the negative cache")
    entropy_base: EntropyBase = choice("log2", EntropyBase, "the logarithm of C; log2 is the released program's")
    min_probability: float = number(0.03, 0.0, 1.0, "lower bound on probabilities that a negative sample lowers")
    max_probability: float = number(1.0, 0.0, 1.0, "upper bound on probabilities that a negative sample lowers")
    order: Order = learning_order("update-first")
    prior: Prior = prior_in_front()

    def _declare_state(self) -> None:
        self.max_batch = samples_at_once(self.classifier)
        (C, d), M, N = self.classifier.anchors.shape, self.positive_slots, self.negative_slots
        K = int(min(C, 1 / self.min_probability)) if self.min_probability else C
        self.positive_keys = self.add_state("positive_keys", full(0.0, C, M, d), UNIT_BALL)
        self.positive_scores = self.add_state("positive_scores", doubles(EMPTY, C, M), slots_of(entropies(C)))
        self.negative_keys = self.add_state("negative_keys", full(0.0, C, N, d), UNIT_BALL)
        lowest = slots_of(self._bound_of_negative_scores())
        self.negative_scores = self.add_state("negative_scores", doubles(EMPTY, C, N), lowest)
        classes = full(C, C, N, K, dtype=torch.int32)
        self.negative_classes = self.add_state("negative_classes", classes, between(0, C))

    def _step(self, samples: Samples) -> Tensor:
        logits, positive, negative, against = self._answered(samples)
        self._keep(samples, positive)
        negative.store(self.negative_keys, samples.features[negative.samples])
        negative.store(self.negative_scores, negative.scores)
        negative.store(self.negative_classes, against)
        return logits

    def _step_labelled(self, samples: Samples, label: int) -> Tensor:
        logits, *_ = self._answered(samples)
        certain = self.positive_scores.new_zeros(1)
        self._keep(samples, self._admit(torch.full_like(certain, label, dtype=torch.int64), certain))
        return logits

    def _answered(self, samples: Samples) -> tuple[Tensor, CacheUpdate, CacheUpdate, Tensor]:
        """The logits, what enters either cache, and the classes that a negative sample lowers."""
        f, zero_shot = samples.features, self.zero_shot(samples)
        p, e, labels = zero_shot.probabilities, zero_shot.entropy, zero_shot.labels  # step 1
        positive = self._admit(labels, e)  # step 2
        share = e / _LOGARITHMS[self.entropy_base](self.classifier.classes)
        uncertain = (self.min_entropy < share) & (share < self.max_entropy)
        negative = admit(self.negative_scores, labels, self._negative_scores_of(e), uncertain)  # step 3
        # the classes c with m(q)_c = 1 of E samples, E×K, ascending, then C in the places that are left
        q, (C, _, K) = p[negative.samples], self.negative_classes.shape
        listed = (self.min_probability < q) & (q < self.max_probability)
        classes = torch.arange(C, dtype=torch.int32, device=q.device)
        against = torch.where(listed, classes, C).topk(K, largest=False).values
        logits = self._score(samples, zero_shot.exact_logits.to(f.dtype), positive, negative, against)
        return logits, positive, negative, against

    def _predict(self, samples: Samples) -> Tensor:
        positive = admit_nothing(self.positive_scores, len(samples))
        negative = admit_nothing(self.negative_scores, len(samples))
        against_nothing = self.negative_classes.flatten(0, 1)[:0]
        return self._score(samples, self.zero_shot(samples).logits, positive, negative, against_nothing)

    def _admit(self, labels: Tensor, entropy: Tensor) -> CacheUpdate:
        """Step 2: which samples enter the positive cache, and when."""
        return admit(self.positive_scores, labels, entropy)

    def _keep(self, samples: Samples, positive: CacheUpdate) -> None:
        """Write what is in the positive cache at the end of the batch."""
        positive.store(self.positive_keys, samples.features[positive.samples])
        positive.store(self.positive_scores, positive.scores)

    def _negative_scores_of(self, entropy: Tensor) -> Tensor:
        """What a sample's place in the negative cache depends on: the smallest stay."""
        return entropy

    def _bound_of_negative_scores(self) -> Bound:
        return entropies(self.classifier.classes)

    def _score(
        self, samples: Samples, z: Tensor, positive: CacheUpdate, negative: CacheUpdate, against: Tensor
    ) -> Tensor:
        """Step 4, for each sample with the caches as they are when it is scored."""
        f, first = samples.features, -1 if self.order == "predict-first" else 0
        times = torch.arange(first, first + len(f), device=f.device)
        z = z.add(self._for(samples, positive, times), alpha=self.positive_alpha)
        keys, listed, beta = self.negative_keys, self.negative_classes, self.negative_beta
        cost = affinity_per_listed_class(f, negative, times, keys, listed, against, beta)
        return z.sub_(cost, alpha=self.negative_alpha)

    def _for(self, samples: Samples, positive: CacheUpdate, times: Tensor) -> Tensor:
        """The affinities to the positive cache, summed per class, B×C."""
        f = samples.features
        return affinity_per_class(f, f, positive, times, self.positive_keys, self.positive_beta)

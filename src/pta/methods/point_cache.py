"""Point-Cache: Test-time Dynamic and Hierarchical Cache for Robust and Generalizable Point Cloud Analysis (CVPR 2025).

https://arxiv.org/abs/2503.12150, https://github.com/auniquesun/Point-Cache

Keeps the caches of TDA (`pta.methods.tda`), and beside every key of the positive cache the local features of the same
sample.

For each cloud with feature f, local features p_1 … p_P with mean p̄, and what TDA computes of f:
1. (f, p_1 … p_P, e) enters the positive cache of ŷ as in TDA.
2. If it is as uncertain as TDA asks, (f, e, p) enters the negative cache as in TDA.
3. Score as in TDA, and + α₊ Σ e^(−β₊(1−⟨p̄,k⟩))·1_c over all local features k of the positive cache.

The mean p̄ is not scaled to unit length. `local_features=0` is the global cache alone.
With `prefill`, as published, the test set is run through once before the test: the first clouds of each predicted class
are put into the positive cache, whatever their entropy, until it is full. The answers then rest on clouds that had not
come yet. They are not comparable with those of methods that see each cloud when it comes.
The first cloud that comes to a class so filled is compared with the last that was put there, not with the worst.
Entropies are compared in float64, those of the released program in half precision.

A batch is computed as in TDA. What the first cloud of a filled class replaces is given a score worse than any.
"""

import torch
from torch import Tensor

from pta.core.parameters import count, number, switch
from pta.core.samples import Samples
from pta.engines.caches.admission import EMPTY, CacheUpdate, admit, rows_worth_picking
from pta.engines.caches.affinity import affinity_per_class
from pta.engines.zero_shot import samples_at_once
from pta.errors import InvalidParameter, InvalidSamples
from pta.methods.state import UNIT_BALL, between, full
from pta.methods.tda import MOST, MOST_SLOTS, TDA

_WORST = EMPTY / 2


class PointCache(TDA):
    """TDA whose positive cache also holds the local features of its samples; for point clouds.

    The loop: `pta.reference.point_cache.point_cache_loop`.

    >>> from pta import ZeroShotClassifier
    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["chair", "table"], scale=10.0)
    >>> cloud = Samples.of([[0.8, 0.6]], patches=torch.tensor([[[1.0, 0.0], [0.6, 0.8]]]))
    >>> PointCache(classifier, local_features=2).step(cloud)
    tensor([[16.2735,  5.8830]])
    """

    name = "point-cache"
    takes_labels = False
    needs = frozenset({"features", "patches"})
    needed_unless = (("patches", "local_features", 0),)
    positive_alpha: float = number(4.0, 0.0, MOST, "α₊, weight of the positive cache")
    positive_beta: float = number(3.0, 0.0, MOST, "β₊, how fast affinity to the positive cache falls with distance")
    positive_slots: int = count(3, 1, MOST_SLOTS, "samples per class in the positive cache")
    local_features: int = count(3, 0, MOST_SLOTS, "P, local features per sample, its first patches; 0 for none")
    prefill: bool = switch(False, "fill the cache with samples of the stream before the first answer (as published)")
    prior = "none"

    def _declare_state(self) -> None:
        super()._declare_state()
        self.max_batch = samples_at_once(self.classifier, views=1 + self.local_features)
        self.wants_preview = self.prefill
        (C, d), M, P = self.classifier.anchors.shape, self.positive_slots, self.local_features
        self.local_keys = self.add_state("local_keys", full(0.0, C, M, P, d), UNIT_BALL)
        # Of a class that was filled in advance the slot of the last that was put there, until one comes; else M.
        self.last_filled = self.add_state("last_filled", full(M, C, dtype=torch.int64), between(0, M))
        self.previewed = self.add_counter("previewed")

    def require(self, samples: Samples) -> None:
        """Refuse samples without patches, or with too few."""
        super().require(samples)
        if samples.patches is not None and samples.patches.shape[1] < self.local_features:
            raise InvalidSamples(
                f"point-cache keeps {self.local_features} local features, but the samples have "
                f"{samples.patches.shape[1]} patches; choose fewer: --set point-cache.local_features=…"
            )

    @torch.no_grad()
    def preview(self, samples: object) -> None:
        """Put the first samples of each predicted class into free slots of the positive cache."""
        if not self.prefill or self.position:
            raise InvalidParameter(
                "point-cache looks at samples before the first step only, and only with prefill=True"
            )
        for part in self._parts(self.checked(samples)):
            self._fill(part.to(self.classifier.anchors))
            self.previewed += len(part)

    def remarks(self) -> list[str]:
        """That samples were seen before the first was answered."""
        said = "point-cache saw {:,} samples before it answered the first; online methods do not"
        return [said.format(int(self.previewed))] if self.previewed else []

    def _fill(self, samples: Samples) -> None:
        zero_shot = self.zero_shot(samples)
        labels, M = zero_shot.labels, self.positive_slots
        same = (labels[:, None] == labels).tril(-1)
        place = (self.positive_scores < EMPTY).sum(dim=1)[labels] + same.sum(dim=1)
        enters = (place < M).nonzero()[:, 0]
        at = labels[enters], place[enters]
        self.positive_keys[at] = samples.features[enters]
        self.local_keys[at] = self._local(samples)[enters]
        self.positive_scores[at] = zero_shot.entropy[enters]
        latest = torch.full_like(self.last_filled, -1).scatter_reduce(0, *at, "amax")
        latest = torch.where(latest < 0, self.last_filled, latest)
        moved_to = (self._sort(self.positive_scores, slice(None)) == latest[:, None]).int().argmax(dim=1)
        self.last_filled.copy_(torch.where(latest < M, moved_to, M))

    def _sort(self, scores: Tensor, rows: Tensor | slice) -> Tensor:
        """Sort the slots of some classes by these scores; gives the slots where they came from."""
        self.positive_scores[rows], order = scores[rows].sort(dim=1, stable=True)
        for keys in (self.positive_keys, self.local_keys):
            keys[rows] = keys[rows].take_along_dim(order.reshape(*order.shape, *[1] * (keys.ndim - 2)), dim=1)
        return order

    def _admit(self, labels: Tensor, entropy: Tensor) -> CacheUpdate:
        """As in TDA, but the first sample that comes to a class filled in advance competes with the last put there."""
        if not self.prefill:
            return super()._admit(labels, entropy)
        scores, last, (C, M), B = self.positive_scores, self.last_filled, self.positive_scores.shape, len(labels)
        times = torch.arange(B, device=labels.device)
        first = times.new_full((C,), B).scatter_reduce(0, labels, times, "amin")
        comes = first < B
        competes = comes & (last < M) & (scores[:, -1] < EMPTY)
        is_last = torch.arange(M, device=labels.device) == last[:, None]
        wins = competes & (entropy[first.clamp_max(B - 1)] < torch.where(is_last, scores, 0.0).sum(dim=1))
        self._sort(torch.where(is_last & wins[:, None], _WORST, scores), rows_worth_picking(wins))
        last.masked_fill_(comes, M)
        loses = (competes & ~wins)[labels] & (times == first[labels])
        return admit(self.positive_scores, labels, entropy, ~loses)

    def _keep(self, samples: Samples, positive: CacheUpdate) -> None:
        super()._keep(samples, positive)
        positive.store(self.local_keys, self._local(samples)[positive.samples])

    def _for(self, samples: Samples, positive: CacheUpdate, times: Tensor) -> Tensor:
        """The affinities to the keys and to the local features of the positive cache, summed per class, B×C."""
        total, local = super()._for(samples, positive, times), self._local(samples)
        for own, keys in zip(local.unbind(1), self.local_keys.unbind(2), strict=True):
            total = total + affinity_per_class(local.mean(dim=1), own, positive, times, keys, self.positive_beta)
        return total

    def _local(self, samples: Samples) -> Tensor:
        """The local features, B×P×d."""
        patches = samples.features[:, None] if samples.patches is None else samples.patches
        return patches[:, : self.local_features]

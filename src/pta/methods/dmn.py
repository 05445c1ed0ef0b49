"""DMN: Dual Memory Networks: A Versatile Adaptation Approach for Vision-Language Models (CVPR 2024).

https://arxiv.org/abs/2403.17589, https://github.com/YBZh/DMN

Keeps up to 50 samples per class. A class is scored by the mean of its samples and its text, weighted by how near they
are to the sample that is scored. This is the dynamic memory, the only one that needs no labels.

For each sample with feature f:
1. q = softmax(z) of the sample, q_v of each of its views. q̄ is the mean of q_v over int(keep·V) views (at least one)
   with the smallest −Σ q_v ln(q_v + 10⁻⁶). With one view it is q; where f is a mean of views, it is the mean of theirs.
2. ŷ = argmax q̄, e = −Σ q̄ ln(q̄ + 10⁻⁸).
3. (f, e) takes a free slot of ŷ, or, if there is none, that of the largest entropy there, if e is smaller.
4. For each class c, with its samples and its text anchor as keys k: r_c = Σ e^(−β(1−⟨f,k⟩))·k, scaled to unit length.
5. Answer: ln(q + λp), p = softmax(scale·⟨f, r_c⟩).

* λ was chosen on the test set by the authors, for each dataset (preset `paper`). The default is 1, for all.
* `version="tta-vlm"` is the port in that benchmark: q̄ is the softmax of the mean logits, e has 10⁻⁵ in the place of
  10⁻⁸, and in a full class the largest entropy always makes room. With `first_views=1` it is called dmn_weak there.
* The authors take 32 views, the port 64 (`first_views`). The default is the sample alone.

What enters is zero-shot, so it is known for a whole batch beforehand. ⟨f, r_c⟩ follows from the cosines of f with the
keys and of the keys with each other, without r_c. Classes that a batch does not change are computed at once.
"""

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from pta.core.parameters import choice, count, number
from pta.core.samples import Samples
from pta.engines.caches.admission import EMPTY, rows_worth_picking
from pta.engines.prompts.view_entropy import number_kept, rows_of_each
from pta.engines.zero_shot import samples_at_once
from pta.methods.first_views import OfFirstViews, views_if_several
from pta.methods.state import UNIT_BALL, between, doubles, full, or_empty

Version = Literal["official", "tta-vlm"]

_SHIFTS = {"official": 1e-8, "tta-vlm": 1e-5}


class _Changes(NamedTuple):
    """What a batch of B samples does to the memory of a class; times are numbers of samples."""

    samples: list[int]  # those that enter, ascending
    slots: list[int]  # where each of them goes
    leaves: list[int]  # when each of them is overwritten; B if it stays
    old_leaves: list[int]  # the same of what was in each of the M slots


class DMN(OfFirstViews):
    """A memory of samples per class, read by their affinity to the sample.

    The loop: `pta.reference.dmn.dmn_loop`.

    Logits are logarithms of q + λp. The state takes `slots`·C·d numbers: 102 MB for 1000 classes and d = 512.

    >>> from pta import ZeroShotClassifier
    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"], scale=10.0)
    >>> DMN(classifier).step([[0.8, 0.6], [0.6, 0.8]]).argmax(dim=1)
    tensor([0, 1])
    """

    name = "dmn"
    may_fail = False
    fixed_classes = ""
    version: Version = choice("official", Version, "the released program, or the port in tta-vlm")
    slots: int = count(50, 1, 1000, "samples per class")
    beta: float = number(5.5, 0.0, 100.0, "β, how fast the weight of a key falls with distance")
    memory_weight: float = number(1.0, 0.0, 1e6, "λ, weight of the memory's probabilities against those of the text")
    first_views: int = views_if_several()
    keep: float = number(0.1, 0.0, 1.0, "share of the views that is kept, at least one")

    def _declare_state(self) -> None:
        self.max_batch = samples_at_once(self.classifier, max(self.slots + 1, self.first_views))
        (C, d), M = self.classifier.anchors.shape, self.slots
        self.keys = self.add_state("keys", full(0.0, C, M, d), UNIT_BALL)
        entropies = or_empty(between(-1e-4, math.log(C) + 1e-4))
        self.entropies = self.add_state("entropies", doubles(EMPTY, C, M), entropies)
        self.grams: Tensor | None = None

    def _state_replaced(self) -> None:
        self.grams = None

    def _contradiction(self, state: Mapping[str, Tensor]) -> str | None:
        filled = state["entropies"] < EMPTY
        gaps = bool((filled[:, 1:] & ~filled[:, :-1]).any())
        return "a slot is taken behind one that is free" if gaps else None

    def _step(self, samples: Samples) -> Tensor:
        p = self._judged(samples)
        e = -(p * (p + _SHIFTS[self.version]).log()).sum(dim=1)  # step 2
        changes = self._changes(p.argmax(dim=1).tolist(), e.tolist())
        logits = self._read(samples, changes)
        for own, change in changes.items():
            for sample, slot in zip(change.samples, change.slots, strict=True):  # the last one of a slot stays
                self.keys[own, slot], self.entropies[own, slot] = samples.features[sample], e[sample]
            self._update_gram(own)
        return logits

    def _predict(self, samples: Samples) -> Tensor:
        return self._read(samples, {})

    def _judged(self, samples: Samples) -> Tensor:
        """Step 1: q̄."""
        zero_shot = self.zero_shot(samples)
        if self.first_views == 1:
            return zero_shot.probabilities if self.version == "official" else zero_shot.exact_logits.softmax(dim=1)
        z = zero_shot.view_logits[:, : self.first_views]
        q = z.softmax(dim=2)
        order = (q * (q + 1e-6).log()).sum(dim=2).argsort(dim=1, descending=True, stable=True)
        kept = order[:, : number_kept(self.first_views, self.keep)]
        if self.version == "official":
            return rows_of_each(q, kept).mean(dim=1)
        return rows_of_each(z, kept).mean(dim=1).softmax(dim=1)

    def _changes(self, labels: list[int], entropies: list[float]) -> dict[int, _Changes]:
        """Step 3 for a batch, by class, changing nothing."""
        changes = {}
        for own in set(labels):
            stored, samples, slots = self.entropies[own].tolist(), [], []
            for sample in (at for at, label in enumerate(labels) if label == own):
                worst = max(stored)
                if entropies[sample] < worst or self.version == "tta-vlm":
                    samples.append(sample)
                    slots.append(stored.index(worst))
                    stored[slots[-1]] = entropies[sample]
            leaves, overwritten = [], [len(labels)] * self.slots
            for sample, slot in zip(reversed(samples), reversed(slots), strict=True):
                leaves.append(overwritten[slot])
                overwritten[slot] = sample
            if samples:
                changes[own] = _Changes(samples, slots, leaves[::-1], overwritten)
        return changes

    def _read(self, samples: Samples, changes: dict[int, _Changes]) -> Tensor:
        """Steps 4 and 5, each sample with the memory of its time."""
        f, C = samples.features, self.classifier.classes
        unchanged = torch.ones(C, dtype=torch.bool)
        unchanged[list(changes)] = False
        rows = rows_worth_picking(unchanged)
        cosines = f.new_empty(C, len(f))
        cosines[rows] = self._of_unchanged(f, rows)
        for own, change in changes.items():
            cosines[own] = self._of_changed(f, own, change)
        q = self.zero_shot(samples).logits.log_softmax(dim=1)
        if not self.memory_weight:
            return q
        return torch.logaddexp(q, (self.classifier.scale * cosines.T).log_softmax(dim=1) + math.log(self.memory_weight))

    def _of_unchanged(self, f: Tensor, rows: Tensor | slice) -> Tensor:
        """⟨f, r_c⟩ of some classes, n×B, with the memory as it is."""
        filled = self.entropies[rows] < EMPTY
        most = int(filled.any(dim=0).sum())  # slots are taken in their order
        k = torch.cat([self.classifier.anchors[rows, None], self.keys[rows, :most]], dim=1)
        near = (k.flatten(0, 1) @ f.T).view(*k.shape[:2], len(f))
        present = pad(filled[:, :most], (1, 0), value=True)
        return self._recalled(near.mT, present[:, None], self._all_grams()[rows, : most + 1, : most + 1])

    def _of_changed(self, f: Tensor, own: int, change: _Changes) -> Tensor:
        """⟨f, r_c⟩ of a class, B, with the memory as it is at each sample's time."""
        times = torch.arange(len(f), device=f.device)[:, None]
        arrives, leaves, old_leaves = map(times.new_tensor, (change.samples, change.leaves, change.old_leaves))
        most = int((self.entropies[own] < EMPTY).sum())
        k = torch.cat([self.classifier.anchors[own, None], self.keys[own, :most], f[arrives]])
        present = torch.cat([times >= 0, times < old_leaves[:most], (arrives <= times) & (times < leaves)], dim=1)
        return self._recalled(f @ k.T, present, k @ k.T)

    def _recalled(self, near: Tensor, present: Tensor, gram: Tensor) -> Tensor:
        """⟨f, r_c⟩ from the cosines of B samples with n keys (…×B×n) and of the keys with each other (…×n×n)."""
        nearest = near.masked_fill(~present, -math.inf).amax(dim=-1, keepdim=True)
        w = (near - nearest).clamp_max_(0.0).mul_(self.beta).exp_().mul_(present)  # whose common factor does not count
        tiny = torch.finfo(w.dtype).tiny
        lengths = (w @ gram).mul_(w).sum(dim=-1).clamp_min_(tiny).sqrt_()
        return (w * near).sum(dim=-1) / lengths

    def _all_grams(self) -> Tensor:
        """The cosines of the keys of each class with each other, the text first."""
        if self.grams is None:
            C, M, _ = self.keys.shape
            self.grams = self.keys.new_zeros(C, M + 1, M + 1)
            self.grams[:, 0, 0] = torch.linalg.vecdot(self.classifier.anchors, self.classifier.anchors)
            for own in (self.entropies[:, 0] < EMPTY).nonzero()[:, 0].tolist():
                self._update_gram(own)
        return self.grams

    def _update_gram(self, own: int) -> None:
        """One class at a time, so that its bits do not depend on the others."""
        assert self.grams is not None
        k = torch.cat([self.classifier.anchors[own, None], self.keys[own]])
        torch.mm(k, k.T, out=self.grams[own])

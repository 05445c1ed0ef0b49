"""The order-aware prior: which classes the next sample of an ordered stream is likely to be of.

Kept, with C classes: two running means of the zero-shot probabilities s (rates 1/8 and 1/64), their mean over the whole
stream (which 1/C counts ten samples in), and how well a sample agrees with the samples just before it: A as it is found
to be, and B as it would be if the stream were shuffled. Both forget at the rate 1/256.

For each sample, with t samples before it, u = (7/8)ᵗ, the running means e_f and e_s, and the mean m:
1. A ← (1−1/256)·A + 8·(s·e_f − u/C); B ← (1−1/256)·B + 8·(1−u)·(s·m).
2. r = (A+2)/(B+2) is about 1 for a shuffled stream, whatever its class frequencies, and larger for an ordered one. The
   gate 1−ρ with ρ = 1/(1+(r/1.7)¹⁶) is closed below 1.7 and open above.
3. The prior is added to the logits: ℓ = 1.5·(1−ρ)·log(C·(e_f+e_s)/4 + 1/2).
4. The sample is counted in e_f, e_s and m.

The rule and its constants are ours, chosen on development sets. All of it is linear in s but for step 3, so that a
batch is a few products with triangular matrices. A GPU has kernels for it (`pta.engines.gpu.triton_prior`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from pta.core.classifier import ZeroShotClassifier
from pta.core.plain import is_host_readable

FAST, SLOW, FORGET = 1 / 8, 1 / 64, 1 / 256  # rates
ORDERED = 1.7
"""Above this agreement the last samples were ordered, and the gate is more open than closed."""
START = 10  # samples that 1/C counts in the mean over the stream
WEIGHT, CAUTION = 8, 2  # of what A and B count, and of what both start with
_SHARPNESS = 16
STRENGTH = 1.5
_ROWS = 64  # the products within a block grow with its square

_Number = TypeVar("_Number", Tensor, float)


@dataclass(frozen=True)
class LocalPrior:
    """The state: e_f, e_s and m (C numbers each), A and B in float64, and how many samples were counted."""

    fast: Tensor
    slow: Tensor
    mean: Tensor
    found: Tensor
    by_chance: Tensor
    count: Tensor

    @classmethod
    def fresh(cls, classifier: ZeroShotClassifier) -> "LocalPrior":
        """Before the first sample."""
        even = torch.full_like(classifier.anchors[:, 0], 1 / classifier.classes, dtype=torch.float64)
        none = even.new_zeros(())
        return cls(even, even.clone(), even.clone(), none, none.clone(), none.long())

    def learn(self, s: Tensor) -> Tensor:
        """ℓ of B samples in order, each at its turn, B×C, which are then counted."""
        return torch.cat([self._learn(block) for block in torch.split(s, _ROWS)])

    def _learn(self, s: Tensor) -> Tensor:
        found, by_chance, recent = self._count(s)
        return _log_frequency(recent()).mul_(_gate(found, by_chance)[:, None])

    def _count(self, s: Tensor) -> tuple[Tensor, Tensor, Callable[[], Tensor]]:
        """A and B at the turn of each sample and, when asked for, e_f + e_s before it."""
        n, C = s.shape
        at = _kept_block(n) if is_host_readable(s) else _within_block(n, s.device)
        weight = START + self.count
        alike = (s @ s.T).double()
        with_fast, with_mean = ((s @ running.to(s)).double() for running in (self.fast, self.mean))

        started = 1 - torch.pow(1 - FAST, self.count + at.age)  # 1 − u: how much of e_f is samples
        with_recent = at.of_fast * with_fast + (at.fast * alike).sum(dim=1)
        with_mean = (weight * with_mean + (alike * at.before).sum(dim=1)) / (weight + at.age)
        found = at.of_state * self.found + at.kept @ (WEIGHT * (with_recent - (1 - started) / C))
        by_chance = at.of_state * self.by_chance + at.kept @ (WEIGHT * started * with_mean)
        running_before = self.fast.clone(), self.slow.clone()

        def recent() -> Tensor:
            return ((at.fast + at.slow) @ s).addr_(at.of_fast, running_before[0]).addr_(at.of_slow, running_before[1])

        for running, rate, into in ((self.fast, FAST, at.into_fast), (self.slow, SLOW, at.into_slow)):
            running.mul_((1 - rate) ** n).add_(into.to(s) @ s)
        self.mean.mul_(weight).add_(s.sum(dim=0)).div_(weight + n)
        self.found.copy_(found[-1])
        self.by_chance.copy_(by_chance[-1])
        self.count.add_(n)
        return found, by_chance, recent


class _Block(NamedTuple):
    """What depends on the length of a block alone, in float64; a row per sample, a column per sample before it."""

    age: Tensor
    before: Tensor
    fast: Tensor  # the parts of earlier samples in e_f
    slow: Tensor
    of_fast: Tensor  # the part of the state in e_f
    of_slow: Tensor
    kept: Tensor  # the parts of samples in A and B
    of_state: Tensor
    into_fast: Tensor  # the parts of samples in e_f after the block
    into_slow: Tensor


@lru_cache(maxsize=_ROWS)
def _kept_block(n: int) -> _Block:
    return _within_block(n, torch.device("cpu"))


def _within_block(n: int, device: torch.device) -> _Block:
    age = torch.arange(n, dtype=torch.float64, device=device)
    between = age[:, None] - age - 1  # samples after the one of the column and before the one of the row
    before = between >= 0
    fast, slow = (rate * torch.pow(1 - rate, between.clamp_min(0)) * before for rate in (FAST, SLOW))
    of_fast, of_slow = (torch.pow(1 - rate, age) for rate in (FAST, SLOW))
    kept = torch.pow(1 - FORGET, (between + 1).clamp_min(0)) * (between >= -1)
    into = (rate * torch.pow(1 - rate, age.flip(0)) for rate in (FAST, SLOW))
    return _Block(age, before, fast, slow, of_fast, of_slow, kept, torch.pow(1 - FORGET, age + 1), *into)


def _gate(found: Tensor, by_chance: Tensor) -> Tensor:
    """1.5·(1−ρ)."""
    odds = (agreement(found, by_chance) / ORDERED) ** _SHARPNESS
    return STRENGTH * odds / (1 + odds)


def agreement(found: _Number, by_chance: _Number) -> _Number:
    """r: about 1 for a shuffled stream."""
    return (found + CAUTION) / (by_chance + CAUTION)


def _log_frequency(recent: Tensor) -> Tensor:
    """log(C·(e_f+e_s)/4 + 1/2), in the place of e_f+e_s."""
    return recent.mul_(recent.shape[-1] / 4).add_(0.5).log_()

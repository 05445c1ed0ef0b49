"""Class-keyed caches of M slots, a batch at a time: which items are in the cache when.

A cache keeps for every class the M items with the smallest score (an entropy, or minus the time for first in, first
out); of equal scores the older one stays. So an item is in the cache at a time exactly if, of the items of its class
that came until then, fewer than M are better. It comes once and leaves once. Both times are found by counting, without
a loop over samples. So is its slot, whose number is how many are better.

On a GPU the number of items of a kind is never read, so that a step can be recorded: a sample that may not enter is an
item too, with the score EMPTY.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pta.core.plain import is_host_readable

EMPTY = torch.finfo(torch.float64).max  # the score of an empty slot: worse than any, and a number that can be saved


@dataclass(frozen=True)
class CacheUpdate:
    """What E new items do to a cache of C×M slots while a batch of B samples goes by.

    Time t is the moment after sample t of the batch: −1 is before the first one, B is when all is over.
    """

    samples: Tensor | slice  # which samples of the batch the new items are; E of B
    old_leaves: Tensor  # C×M, when what was in a slot is pushed out: B if it stays, −1 if there was nothing
    classes: Tensor  # E, of the new items
    scores: Tensor  # E, of the new items
    arrives: Tensor  # E, when each new item comes
    leaves: Tensor  # E, when it is pushed out: B if it stays, not after it came if it never gets in
    _touched: Tensor  # n classes, those of the new items among them
    _kept: Tensor  # n×M, what is in their slots at the end: its place among what was there and the new items

    def old_at(self, times: Tensor) -> Iterator[tuple[int, Tensor | slice, Tensor]]:
        """For each slot m the n classes that may have something there, and if they do at T ascending times, n×T."""
        for m, leaves in enumerate(self.old_leaves.unbind(1)):
            rows = rows_worth_picking(leaves > times[0])
            yield m, rows, times < leaves[rows, None]

    def new_at(self, times: Tensor) -> tuple[Tensor | slice, Tensor]:
        """Which n of the new items may get in, and whether they are in at T times, n×T."""
        ever = rows_worth_picking(self.arrives < self.leaves)
        return ever, (self.arrives[ever, None] <= times) & (times < self.leaves[ever, None])

    def store(self, slots: Tensor, new: Tensor) -> None:
        """Write what is in the cache at the end to the C×M×… slots, given the E×… of the new items."""
        both = torch.cat([slots[self._touched].flatten(0, 1), new.to(slots.dtype)])
        slots[self._touched] = both[self._kept]


def admit(scores: Tensor, classes: Tensor, new: Tensor, may_enter: Tensor | None = None) -> CacheUpdate:
    """Bring B samples with their classes and new scores to a cache, one after the other, changing nothing yet.

    The C×M scores of what is in the slots ascend in every row and are EMPTY where there is nothing. Of the samples
    those may enter that are flagged, or all.
    """
    samples: Tensor | slice = slice(None)
    batch = len(new)
    times = all_times = torch.arange(batch, device=new.device)
    if may_enter is not None:
        samples = rows_worth_picking(may_enter)
        new = torch.where(may_enter, new, EMPTY)
        times, classes, new = times[samples], classes[samples], new[samples]
    (C, M), E = scores.shape, len(new)
    places_of_a_class = torch.arange(M + 1, device=new.device)  # the last one is for all that go
    old, slot, order = scores[classes], places_of_a_class[:M], all_times[:E]
    same = classes[:, None] == classes

    # Of the new items i: the first j with which M better ones have come
    better = same & ((new[:, None] < new) | ((new[:, None] == new) & (order[:, None] < order)))  # [j, i]: j beats i
    better_old = (old <= new[:, None]).sum(dim=1)
    pushed_by = (better.cumsum(dim=0, dtype=torch.int32) + better_old < M).sum(dim=0)
    leaves = torch.cat([times, times.new_full((1,), batch)])[pushed_by]

    # Of the old item in slot m, which m are better than: the first with which M−m have come that beat it
    beats, same = (new[:, None] < old).float(), same.float()  # E×M
    pushed = same.tril() @ beats >= M - slot
    old_leaves = torch.where(scores < EMPTY, batch, -1)
    old_leaves.scatter_reduce_(0, classes[:, None].expand(-1, M), torch.where(pushed, times[:, None], batch), "amin")

    # In the end the number of better ones is the slot, and a class that nothing comes to keeps what it has
    numbers = torch.arange(C, device=new.device)
    touched, row = (classes, order) if E < C else (numbers, classes)
    places = numbers[:, None] * M + places_of_a_class
    places[classes[:, None], (slot + (same @ beats).long()).clamp_(max=M)] = row[:, None] * M + slot
    places[classes, (better_old + better.sum(dim=0)).clamp_(max=M)] = len(touched) * M + order
    return CacheUpdate(samples, old_leaves, classes, new, times, leaves, touched, places[touched, :M])


def admit_nothing(scores: Tensor, batch: int) -> CacheUpdate:
    """Let B samples go by of which none enters a cache."""
    none = scores.new_empty(0)
    return replace(admit(scores, none.long(), none), old_leaves=torch.where(scores < EMPTY, batch, -1))


def rows_worth_picking(mask: Tensor) -> Tensor | slice:
    """The rows where a mask holds; all rows if it holds for at least half of them, or if it cannot be read for free.

    Picking few rows saves up to half of the time while a cache fills. The caller must still apply the mask.
    """
    if not is_host_readable(mask):
        return slice(None)
    rows = mask.nonzero()[:, 0]
    return rows if 2 * len(rows) < len(mask) else slice(None)

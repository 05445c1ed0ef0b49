"""Class-keyed caches of M slots, a batch at a time: which items are in the cache when.

A cache keeps for every class the M items with the smallest score (an entropy, or minus the time for first in, first
out); of equal scores the older one stays. So an item is in the cache at a time exactly if, of the items of its class
that came until then, fewer than M are better. It comes once and leaves once, and when needs no loop over samples: it is
counting.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

EMPTY = torch.finfo(torch.float64).max  # the score of an empty slot: worse than any, and a number that can be saved


@dataclass(frozen=True)
class Admission:
    """What E new items do to a cache of C×M slots while a batch of B samples goes by.

    Time t is the moment after sample t of the batch: −1 is before the first one, B is when all is over.

    Attributes:
        old_leaves: C×M, when what was in a slot is pushed out: B if it stays, −1 if there was nothing.
        classes: E, of the new items.
        scores: E, of the new items.
        arrives: E, when each new item comes.
        leaves: E, when it is pushed out: B if it stays, not after it came if it never gets in.
    """

    old_leaves: Tensor
    classes: Tensor
    scores: Tensor
    arrives: Tensor
    leaves: Tensor
    _kept_classes: Tensor  # of all that is in the touched classes at the end: the class and slot that each goes to,
    _kept_slots: Tensor
    _kept_places: Tensor  # and its place among the slots of the touched classes and the new items
    _touched: Tensor

    def old_at(self, times: Tensor) -> Iterator[tuple[int, Tensor | slice, Tensor]]:
        """For each slot m the n classes that may have something in it, and whether they do at T ascending times, T×n.

        That is all classes, without the price of picking them, unless most have nothing there.
        """
        for m, leaves in enumerate(self.old_leaves.unbind(1)):
            some = (leaves > times[0]).nonzero()[:, 0]
            rows = some if 2 * len(some) < len(leaves) else slice(None)
            yield m, rows, times[:, None] < leaves[rows]

    def new_at(self, times: Tensor) -> tuple[Tensor, Tensor]:
        """Which n of the new items ever get in, and whether they are in at T times, T×n."""
        ever = (self.arrives < self.leaves).nonzero()[:, 0]
        return ever, (self.arrives[ever] <= times[:, None]) & (times[:, None] < self.leaves[ever])

    def store(self, slots: Tensor, new: Tensor) -> None:
        """Write what is in the cache at the end to the C×M×… slots, given the E×… of the new items."""
        both = torch.cat([slots[self._touched].flatten(0, 1), new.to(slots.dtype)])
        slots[self._kept_classes, self._kept_slots] = both[self._kept_places]


def admit(scores: Tensor, times: Tensor, classes: Tensor, new: Tensor, batch: int) -> Admission:
    """Bring E new items to a cache, changing nothing yet.

    Args:
        scores: C×M, of what is in the slots, ascending in every row, EMPTY where there is nothing.
        times: E, which samples of the batch the items come from, ascending.
        classes: E, the class of each.
        new: E, the score of each, finite.
        batch: the number of samples B.
    """
    M = scores.shape[1]
    touched, own = torch.unique(classes, return_inverse=True)
    old, order = scores[touched], torch.arange(len(new), device=new.device)
    same = own[:, None] == own

    # Of the new items i: the first j with which M better ones have come
    better = same & ((new[:, None] < new) | ((new[:, None] == new) & (order[:, None] < order)))  # [j, i]: j beats i
    better_old = (old[own] <= new[:, None]).sum(dim=1)
    pushed_by = (better.cumsum(dim=0, dtype=torch.int32) + better_old < M).sum(dim=0)
    leaves = torch.cat([times, times.new_full((1,), batch)])[pushed_by]

    # Of the old item in slot m, which m are better than: the new one that is the (M−m)-th to beat it
    beats = (new[:, None] < old[own]) & (old[own] < EMPTY)  # E×M
    nth = same.tril().float() @ beats.float()
    item, slot = (beats & (nth == M - torch.arange(M, device=new.device))).nonzero(as_tuple=True)
    old_leaves = torch.where(scores < EMPTY, batch, -1)
    old_leaves[classes[item], slot] = times[item]

    everyone = torch.cat([old.flatten(), new])
    owners = torch.cat([torch.arange(len(touched), device=own.device).repeat_interleave(M), own])
    by_score = everyone.argsort(stable=True)
    ranked = by_score[owners[by_score].argsort(stable=True)]  # by class, then score, then age
    rank = torch.arange(len(ranked), device=own.device) - torch.searchsorted(owners[ranked], owners[ranked])
    kept, slots = ranked[rank < M], rank[rank < M]
    return Admission(old_leaves, classes, new, times, leaves, touched[owners[kept]], slots, kept, touched)

"""Class-keyed caches of M slots, a batch at a time: which items are in the cache when.

A cache keeps for every class the M items with the smallest score (an entropy, or minus the time for first in, first
out); of equal scores the older one stays. So an item is in the cache at time t exactly if, of the items of its class
that came until t, fewer than M are better. That needs no loop over samples: it is counting.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Admission:
    """What E new items do to a cache while a batch of B samples goes by, of which each may bring one item.

    Attributes:
        touched: U classes that get new items, ascending.
        old_stays: B×U×M, whether what was in a slot of a touched class is still there after each sample.
        new_is_in: B×E, whether each new item is in the cache after each sample.
    """

    touched: Tensor
    old_stays: Tensor
    new_is_in: Tensor
    _classes: Tensor  # C×M survivors: the class and slot each goes to, and its place among slots and new items
    _slots: Tensor
    _places: Tensor

    def store(self, slots: Tensor, new: Tensor) -> None:
        """Write what is in the cache at the end to the C×M×… slots, given the E×… of the new items."""
        both = torch.cat([slots[self.touched].flatten(0, 1), new.to(slots.dtype)])
        slots[self._classes, self._slots] = both[self._places]


def admit(scores: Tensor, times: Tensor, classes: Tensor, new: Tensor, batch: int) -> Admission:
    """Bring E new items to a cache, changing nothing yet.

    Args:
        scores: C×M, of what is in the slots, ascending in every row, inf where a slot is empty.
        times: E, which samples of the batch the items come from, ascending.
        classes: E, the class of each.
        new: E, the score of each, finite.
        batch: the number of samples B.
    """
    M = scores.shape[1]
    touched, own = torch.unique(classes, return_inverse=True)
    old = scores[touched]
    arrived = torch.searchsorted(times, torch.arange(batch, device=times.device), right=True)  # B: items until then

    same = own[:, None] == own
    order = torch.arange(len(new), device=new.device)
    better = same & ((new[:, None] < new) | ((new[:, None] == new) & (order[:, None] < order)))  # [j, i]: j beats i
    older = (old[own] <= new[:, None]).sum(dim=1)  # E: old items that are better
    beaten = _until(better, arrived) + older
    new_is_in = (beaten < M) & (order < arrived[:, None])

    beats = (own[:, None, None] == torch.arange(len(touched), device=own.device)[:, None]) & (
        new[:, None, None] < old
    )  # E×U×M
    position = torch.arange(M, device=scores.device)
    old_stays = (_until(beats, arrived) + position < M) & old.isfinite()

    everyone = torch.cat([old.flatten(), new])
    owners = torch.cat([torch.arange(len(touched), device=own.device).repeat_interleave(M), own])
    by_score = everyone.argsort(stable=True)
    ranked = by_score[owners[by_score].argsort(stable=True)]  # by class, then score, then age
    first = torch.searchsorted(owners[ranked], owners[ranked])
    place = torch.arange(len(ranked), device=own.device) - first
    kept = ranked[place < M]
    return Admission(touched, old_stays, new_is_in, touched[owners[kept]], place[place < M], kept)


def _until(events: Tensor, arrived: Tensor) -> Tensor:
    """Of E×… events how many happened by each of B times, given how many items had arrived by then."""
    counts = torch.cat(
        [events.new_zeros((1, *events.shape[1:]), dtype=torch.int32), events.cumsum(0, dtype=torch.int32)]
    )
    return counts[arrived]

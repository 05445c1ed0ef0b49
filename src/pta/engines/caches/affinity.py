"""Affinities of a batch to what is in a class-keyed cache, each sample at its own time, summed per class.

What enters a cache is known for a whole batch before anything is scored (`pta.engines.caches.admission`). So the sums
are matrix products with what was in the cache and with the batch itself, masked by the times at which an item is in it.
"""

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from pta.engines.caches.admission import EMPTY, CacheUpdate, rows_worth_picking


def affinity(cosines: Tensor, beta: float) -> Tensor:
    """e^(−β(1−⟨f,k⟩)), written in the place of ⟨f,k⟩."""
    return cosines.sub_(1).mul_(beta).exp_()


def affinity_per_class(f: Tensor, own: Tensor, cache: CacheUpdate, times: Tensor, keys: Tensor, beta: float) -> Tensor:
    """The affinities of features B×d to the items of each class that are in the cache at these times, summed, B×C.

    The keys, C×M×d, are those that were in the slots before the batch; `own`, B×d, those of the batch's samples.
    """
    new, present = cache.new_at(times)
    near = affinity(own[cache.arrives[new]] @ f.T, beta) * present
    total = _sum_per_class(near, cache.classes[new, None], len(keys))
    for m, rows, present in cache.old_at(times):
        total[rows] += affinity(keys[rows, m] @ f.T, beta) * present
    return total.T


def affinity_per_listed_class(
    f: Tensor, cache: CacheUpdate, times: Tensor, keys: Tensor, listed: Tensor, new_listed: Tensor, beta: float
) -> Tensor:
    """The same, B×C, where each item counts for a list of classes: listed C×M×K and, of new items, E×K; C is none."""
    C = len(keys)
    new, present = cache.new_at(times)
    total = _sum_per_class(affinity(f[cache.arrives[new]] @ f.T, beta) * present, new_listed[new], C)
    for m, rows, present in cache.old_at(times):
        total += _sum_per_class(affinity(keys[rows, m] @ f.T, beta) * present, listed[rows, m], C)
    return total.T


def best_of_classes(
    f: Tensor, cache: CacheUpdate, times: Tensor, keys: Tensor, scores: Tensor, classes: Tensor, beta: float
) -> tuple[Tensor, Tensor]:
    """What is in the cache under n classes of each sample, B×n, at its time: scores and affinities, B×n×M."""
    new, _ = cache.new_at(times)
    came = (cache.classes[new] == classes[:, :, None]) & (cache.arrives[new] <= times[:, None, None])
    near_old = affinity(torch.einsum("bd,bnmd->bnm", f, keys[classes]), beta)
    near_new = affinity(f @ f[cache.arrives[new]].T, beta)[:, None].expand(came.shape)
    new_scores = torch.where(came, cache.scores[new], EMPTY)
    return best(scores.shape[1], (scores[classes], near_old), (new_scores, near_new))


def best(slots: int, *items: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Scores and affinities of the items with the smallest scores in the last dimension, the first of equal ones."""
    scores, near = (torch.cat(parts, dim=-1) for parts in zip(*items, strict=True))
    scores, order = scores.sort(dim=-1, stable=True)
    return scores[..., :slots], near.gather(-1, order[..., :slots])


def _sum_per_class(near: Tensor, classes: Tensor, C: int) -> Tensor:
    """The n×B affinities of n items, each added to its classes, n×K, of which C is none; C×B.

    As bags of items, which are added in the same order every time, and never laid out n·K×B.
    """
    K, flat = classes.shape[1], classes.flatten()
    pairs = torch.arange(len(flat), device=near.device)[rows_worth_picking(flat < C)]
    found = flat[pairs].long()
    some = found < C
    by_class, order = torch.where(some, found, pairs % C).sort()  # none is any, without weight: bags stay small
    starts = torch.searchsorted(by_class, torch.arange(C, device=near.device))
    weights = some[order].to(near.dtype)
    return embedding_bag(pairs[order] // K, near, starts, mode="sum", per_sample_weights=weights)

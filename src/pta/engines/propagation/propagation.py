"""Label propagation on a graph of N rows, each with a list of near rows and a list of classes.

W and B hold the listed similarities to the power γ, A = W + Wᵀ. With row sums a of (A, B) and column sums b of B,
Ã = A/√(a·aᵀ) and B̃ = B/√(a·bᵀ). Each sweep is Y ← Ã·Y + B̃.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from pta.core.plain import is_host_readable
from pta.engines.gpu.processors import numba_is_installed

GRID = 2.0**24  # similarities and Y that are equal on it are a tie
_NO_DIVISION_BY_ZERO = 1e-6  # the released program's


class Graph(NamedTuple):
    """What is propagated, and where; a similarity of 0 is no entry."""

    targets: Tensor  # N×k, the rows that each row lists
    similar: Tensor  # N×k, and their similarities
    classes: Tensor  # N×K, the classes that each row lists
    text: Tensor  # N×K, and their similarities
    labels: Tensor  # N, the class that each row starts with
    seeds: Tensor  # N, and how much of it


class Spread(NamedTuple):
    """What has arrived."""

    labels: Tensor  # N, the class with the largest Y, of equal ones the first
    most: Tensor  # N, this Y
    last: Tensor  # C, Y of the last row


def propagate(graph: Graph, C: int, gamma: int, iterations: int) -> Spread:
    """Y after so many sweeps; what is equal on the grid is equal."""
    if is_host_readable(graph.targets) and numba_is_installed():
        from pta.engines.propagation.numba_loops import sweep

        swept = sweep(*(one.numpy() for one in graph), C, gamma, iterations, GRID)
        return Spread(*map(torch.from_numpy, swept))
    N, near = len(graph.labels), graph.targets
    own = torch.arange(N, device=near.device)[:, None].expand_as(near)
    pairs = torch.stack([torch.cat([own, near]).flatten(), torch.cat([near, own]).flatten()])
    w = graph.similar.pow(gamma).repeat(2, 1).flatten()
    B = w.new_zeros(N, C).scatter_(1, graph.classes, graph.text.pow(gamma))
    a = 1 / (B.sum(dim=1).index_add(0, pairs[0], w).sqrt() + _NO_DIVISION_BY_ZERO)
    b = 1 / (B.sum(dim=0).sqrt() + _NO_DIVISION_BY_ZERO)
    A = torch.sparse_coo_tensor(pairs, w * a[pairs].prod(dim=0), (N, N), check_invariants=False).coalesce()
    B = a[:, None] * B * b
    Y = torch.zeros_like(B).scatter_(1, graph.labels[:, None], graph.seeds[:, None])
    for _ in range(iterations):
        Y = torch.sparse.mm(A, Y) + B
    labels = (Y * GRID).round_().argmax(dim=1)
    return Spread(labels, Y.gather(1, labels[:, None])[:, 0], Y[-1])

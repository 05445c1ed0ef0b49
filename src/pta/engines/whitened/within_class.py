"""The covariance of samples within their classes, from sums, and the metric that whitens it.

S = G/t − μμᵀ − (1/t)·Σ_c U_c·U_cᵀ/(n_c+1) with μ = Σx/t and U_c = M_c − n_c·μ. Classes may be tight around means
that are far apart, so that float32 would lose S among the sums.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from pta.core.plain import is_host_readable
from pta.core.samples import LONGEST_MEAN
from pta.engines.whitened.product import product

SHORTEST = 1e-20  # a squared length in a metric; what is shorter is mostly rounding, and counts as so long
_ROUNDING = 1e-11  # of sums, per sample
_BLOCK = 128  # rows of a symmetric product that are computed at once, up to the diagonal
_ROWS = 256  # of C×d numbers in float64, which a processor's cache holds
_HALVED_FROM = 128  # rows of a matrix, to invert it


def scatter_within_classes(
    t: Tensor, total: Tensor, gram: Tensor, sums: Tensor, weights: Tensor, dtype: torch.dtype = torch.float64
) -> Tensor:
    """t·S, d×d, float64, for a metric of a precision; on a host its lower triangle.

    It is that of t samples with sum Σx (d) and Gram matrix Σxxᵀ (d×d), and classes with sums M (C×d) and weights n (C).
    """
    mean = total / t
    scatter = torch.addr(gram, total, mean, alpha=-1)
    if not is_host_readable(scatter):
        apart = _apart(mean, sums, weights)
        return scatter.addmm_(apart.T, apart, alpha=-1)
    apart = by_rows(lambda some: _apart(mean, sums[some], weights[some]), torch.empty_like(sums, dtype=dtype))
    if apart.dtype != sums.dtype and 2 * float(apart.flatten().dot(apart.flatten())) > float(scatter.trace()):
        apart = _apart(mean, sums, weights)  # S is the smaller part, of which low precision loses something
    across = apart.T.contiguous()
    for end in range(_BLOCK, len(gram) + _BLOCK, _BLOCK):
        block = slice(end - _BLOCK, end)
        scatter[block, :end].sub_(product(across[block], across[:end].T))
    return scatter


def _apart(mean: Tensor, sums: Tensor, weights: Tensor) -> Tensor:
    """U_c/√(n_c+1) of some classes."""
    return torch.addr(sums, weights, mean, alpha=-1).div_((weights + 1).sqrt()[:, None])


def by_rows(work: Callable[[slice], Tensor], out: Tensor) -> Tensor:
    """What `work` gives for all rows, some at a time, so that what it needs on the way stays in a processor's cache."""
    for start in range(0, len(out), _ROWS):
        some = slice(start, start + _ROWS)
        out[some] = work(some)
    return out


def inverse_by_halves(matrix: Tensor) -> Tensor:
    """The inverse of a symmetric positive definite matrix, of which the lower triangle is read."""
    if len(matrix) < _HALVED_FROM:
        return torch.cholesky_inverse(torch.linalg.cholesky_ex(matrix).L)  # which reads whether it succeeded
    half = len(matrix) // 2
    below, first = matrix[half:, :half], inverse_by_halves(matrix[:half, :half])
    across = product(first, below.T)
    last = inverse_by_halves(matrix[half:, half:] - product(across.T, below.T))
    corner = product(across, last.T).neg_()
    first.sub_(product(across, corner.T))
    return torch.cat([torch.cat([first, corner], dim=1), torch.cat([corner.T, last], dim=1)])


def inverse_by_products(matrix: Tensor, largest: float) -> Tensor:
    """The inverse of a symmetric matrix A with eigenvalues between 1 and `largest`, by Newton–Schulz steps from a·I."""
    X = first_guess(matrix, largest)
    for _, factor in newton_steps(largest, torch.finfo(matrix.dtype).eps):
        X = torch.addmm(X, X, matrix @ X, beta=2 * factor, alpha=-(factor**2))
    return (X + X.T) / 2


def first_guess(matrix: Tensor, largest: float) -> Tensor:
    """2a·I − a²·A, the first step."""
    start = 2 / (1 + largest)
    X = matrix * -(start**2)
    X.diagonal().add_(2 * start)
    return X


def newton_steps(largest: float, eps: float) -> list[tuple[float, float]]:
    """How far from 1 the eigenvalues of A·X may be before each later step, and the factor on X there.

    If the eigenvalues of A·X are within e of 1, those of A·(2X − X·A·X) are between 1 − e² and 1. A factor brings them
    within e²/(2 − e²) of 1 before the next step. So the number of steps is known, and nothing is read back from a GPU.
    """
    below, steps = ((largest - 1) / (largest + 1)) ** 2, []
    while below > eps:
        steps.append((below, 2 / (2 - below)))
        below = (below / (2 - below)) ** 2
    return steps


def squares_in(metric: Tensor, rows: Tensor) -> Tensor:
    """rᵀ·P·r for each row r and a symmetric P; on a host by products up to its diagonal."""
    if not is_host_readable(rows):
        return (rows @ metric).mul_(rows).sum(dim=1)
    squares = rows.new_zeros(len(rows))
    for start in range(0, len(metric), _BLOCK):
        block, before = slice(start, start + _BLOCK), slice(start + _BLOCK)
        left = metric[block, before].clone()
        left[:, :start] *= 2  # for those above the diagonal, too
        squares += product(rows[:, before], left.T).mul_(rows[:, block]).sum(dim=1)
    return squares


def contradiction_of_sums(t: float, total: Tensor, gram: Tensor, sums: Tensor, weights: Tensor) -> str | None:
    """What no t samples, each with weights that add up to at most one, could have as their sums.

    What they do not give to a class is a class of its own here. G − Σ_c M_c·M_cᵀ/n_c over all of them is positive
    semidefinite, and stays it whatever is learned, forgotten or added. Then so is S.
    """
    slack = _ROUNDING * (1 + t)
    rows = torch.cat([sums, (total - sums.sum(dim=0))[None]])
    shares = torch.cat([weights, (t - weights.sum())[None]])
    if not bool(shares[-1] >= -slack) or not float(gram.trace()) <= LONGEST_MEAN**2 * t + slack:
        return "weights and squares are those of more samples than there were"
    if not bool((torch.linalg.vector_norm(rows, dim=1) <= LONGEST_MEAN * shares + slack).all()):
        return "they are longer than their weights"
    rest = gram - (rows / shares.clamp_min(slack)[:, None]).T @ rows
    rest.diagonal().add_(slack)
    return None if int(torch.linalg.cholesky_ex(rest).info) == 0 else "they are more than all samples together"

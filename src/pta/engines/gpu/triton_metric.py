"""The metric of `pta.engines.whitened.layer` on a GPU."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from pta.engines.gpu.triton_touches import split, whole
from pta.engines.whitened.layer_state import LayerState, Shrinkage
from pta.engines.whitened.within_class import first_guess, newton_steps

_COARSE = 0.2  # distance of eigenvalues from 1 that is large beside what ten bits lose
_LARGEST_FOR_COARSE = 300.0  # eigenvalue beside which ten bits keep the smallest, 1
_BLOCK = (64, 32, 64)  # rows, columns and depth of a product at once; measured on an H200


def relative_covariance_on_gpu(layer: LayerState, how: Shrinkage) -> tuple[Tensor, Tensor]:
    """I + S/(tr S/d)/ridge, and the ridge, as `Layer.refresh` needs them."""
    dim, of_all = len(layer.metric), layer.of_all
    relative, ridge = torch.empty_like(layer.metric), layer.centre.new_empty(())
    if isinstance(relative, FakeTensor):  # without numbers no kernel can be launched, and none is needed
        return relative, ridge
    apart, D = torch.empty_like(layer.sums), triton.next_power_of_2(dim)
    numbers = how.first_metric, *split(how.least_spread), *split(how.ridge), *split(how.early_ridge)
    with torch.cuda.device_of(relative):
        _put_apart[(len(apart),)](layer.sums, layer.weights, of_all.total, of_all.seen, apart, dim, D=D)
        between = apart.T @ apart
        _put_relative[(dim,)](*(of_all.gram, between, of_all.total, of_all.seen, relative, ridge, dim, *numbers), D=D)
    return relative, ridge


def inverse_on_gpu(matrix: Tensor, largest: float) -> Tensor:
    """What `inverse_by_products` gives, in float32.

    The right factor of a product is given as its transpose, whose rows a GPU reads faster: that of A·X is Xᵀ·A.
    """
    X = transposed = first_guess(matrix, largest)
    for below, factor in newton_steps(largest, torch.finfo(matrix.dtype).eps):
        coarse = below > _COARSE and largest <= _LARGEST_FOR_COARSE
        turned, _ = add_product_on_gpu(transposed, matrix, coarse=coarse)
        X, transposed = add_product_on_gpu(X, turned, X, beta=2 * factor, alpha=-(factor**2), coarse=coarse)
    return (X + transposed) / 2


def add_product_on_gpu(
    left: Tensor,
    right: Tensor,
    onto: Tensor | None = None,
    *,
    beta: float = 1.0,
    alpha: float = 1.0,
    coarse: bool = False,
) -> tuple[Tensor, Tensor]:
    """alpha·left·rightᵀ + beta·onto, in float32, and its transpose, which only a sum has.

    A product takes three in tf32 to be as precise as in float32. A coarse one, of ten bits, takes one.
    """
    (M, N, K), out = _BLOCK, left.new_empty(len(left), len(right))
    transposed = out if onto is None else left.new_empty(len(right), len(left))
    if not isinstance(left, FakeTensor):
        numbers = len(left), len(right), left.shape[1], beta, alpha
        with torch.cuda.device_of(left):
            _add_product[(triton.cdiv(len(left), M), triton.cdiv(len(right), N))](
                *(left, right, out if onto is None else onto, out, transposed, *numbers),
                ONTO=onto is not None,
                PRECISION="tf32" if coarse else "tf32x3",
                M=M,
                N=N,
                K=K,
                num_stages=3,
            )
    return out, transposed


@triton.jit
def _put_apart(sums, weights, total, seen, apart, d, D: tl.constexpr):
    """U_c/√(n_c+1) of one class."""
    c, at = tl.program_id(0), tl.arange(0, D)
    here = c * d + at
    n, t = tl.load(weights + c), tl.maximum(tl.load(seen), 1).to(tl.float64)
    mean = tl.load(total + at, mask=at < d, other=0.0) / t
    M = tl.load(sums + here, mask=at < d, other=0.0)
    tl.store(apart + here, (M - n * mean) / tl.sqrt(n + 1), mask=at < d)


@triton.jit
def _put_relative(
    gram, between, total, seen, relative, ridge_found, d, first_metric, least, least_rest, ridge, ridge_rest,
    early, early_rest, D: tl.constexpr,
):  # fmt: skip
    """One row of the covariance within classes, relative to its mean eigenvalue and the ridge, on the identity."""
    row, at = tl.program_id(0), tl.arange(0, D)
    t = tl.maximum(tl.load(seen), 1).to(tl.float64)
    sums = tl.load(total + at, mask=at < d, other=0.0)
    diagonal = at * (d + 1)
    own = tl.load(gram + diagonal, mask=at < d, other=0.0) - tl.load(between + diagonal, mask=at < d, other=0.0)
    trace = tl.sum(own - sums * sums / t, 0)
    enough = (t >= first_metric) & (trace >= whole(least, least_rest) * t)
    shrinkage = tl.where(enough, whole(ridge, ridge_rest) + whole(early, early_rest) / t, 1.0)
    here = row * d + at
    scatter = tl.load(gram + here, mask=at < d, other=0.0) - tl.load(between + here, mask=at < d, other=0.0)
    scatter -= tl.load(total + row) * sums / t
    scatter *= tl.where(enough, d / tl.where(enough, trace, 1.0) / shrinkage, 0.0)
    tl.store(relative + here, tl.where(at == row, scatter + 1.0, scatter), mask=at < d)
    if row == 0:
        tl.store(ridge_found, shrinkage)


@triton.jit
def _add_product(
    left, right, onto, out, transposed, rows, columns, dim, beta, alpha,
    ONTO: tl.constexpr, PRECISION: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """One block of the product."""
    row, column = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(1) * N + tl.arange(0, N)
    total = tl.zeros([M, N], tl.float32)
    for start in range(0, dim, K):
        at = start + tl.arange(0, K)
        inside = (at < dim)[None, :]
        A = tl.load(left + row[:, None] * dim + at[None, :], mask=inside & (row < rows)[:, None], other=0.0)
        B = tl.load(right + column[:, None] * dim + at[None, :], mask=inside & (column < columns)[:, None], other=0.0)
        total = tl.dot(A, B.T, total, input_precision=PRECISION)
    total *= alpha
    here, inside = row[:, None] * columns + column[None, :], (row < rows)[:, None] & (column < columns)[None, :]
    if ONTO:
        total += beta * tl.load(onto + here, mask=inside, other=0.0)
        tl.store(transposed + column[None, :] * rows + row[:, None], total, mask=inside)
    tl.store(out + here, total, mask=inside)

"""A vision transformer in half precision on a GPU that copies blocks of matrices by itself (Hopper and later).

PyTorch has the fastest products and attention. What is between them, layer norms, residuals and activations, reads and
writes all rows again: a fifth of the time. Here the activation is part of the product in front of it, and residuals are
added by a product, or by the layer norm that reads them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import linear, scaled_dot_product_attention
from triton.tools.tensor_descriptor import TensorDescriptor

from pta.engines.gpu.triton_ahead import PLAINLY, wait_for_inputs

FEWEST_ROWS = 4096
"""Of fewer rows, PyTorch's own kernels are faster, or those of `triton_few_tokens`."""

_EPS = 1e-5  # of all layer norms of CLIP
_OF_BLOCK = 12  # weights and biases
_BLOCK = (128, 256, 64)  # rows, outputs and inputs of a product at once; measured on an H200
_NEIGHBOURS = 8  # blocks of rows that are multiplied with the same weights at the same time


@torch.library.custom_op("pta::class_tokens", mutates_args=())  # one operation, which torch.compile does not take apart
def class_tokens(x: Tensor, weights: list[Tensor], heads: int, quick: bool) -> Tensor:
    """The first of the rows that all blocks make of N×L×width, N×width; the weights are those of block after block."""
    samples, length, width = x.shape
    x = x.flatten(0, 1).clone()
    branch: Any = None  # what the block before adds to x, beside the bias
    bias: Any = None
    for of_block, is_last in blocks_of(weights):
        norm, shift, qkv, qkv_bias, out, out_bias, norm_2, shift_2, up, up_bias, down, down_bias = of_block
        rows = add_and_normalise(x, branch, bias, norm, shift)
        if is_last:
            x = x.view(samples, length, width)[:, 0].contiguous()
        x.addmm_(_attended(rows.view(samples, length, width), qkv, qkv_bias, heads, is_last), out.T)
        rows = add_and_normalise(x, None, out_bias, norm_2, shift_2)
        branch, bias = linear(linear_with_gelu(rows, up, up_bias, quick), down, down_bias), out_bias
    return x + branch + bias


@class_tokens.register_fake
def _(x: Tensor, weights: list[Tensor], heads: int, quick: bool) -> Tensor:
    return x.new_empty(len(x), x.shape[2])


def blocks_of(weights: list[Tensor]) -> Iterator[tuple[list[Tensor], bool]]:
    """The weights and biases of each block, and whether it is the last, of which only the class tokens are wanted."""
    for start in range(0, len(weights), _OF_BLOCK):
        yield weights[start : start + _OF_BLOCK], start + _OF_BLOCK == len(weights)


def _attended(rows: Tensor, weight: Tensor, bias: Tensor, heads: int, only_first: bool) -> Tensor:
    """What the tokens of each sample, or its first alone, attend to, before it is projected."""
    width = rows.shape[2]

    def projected(x: Tensor, part: slice) -> Tensor:
        return linear(x, weight[part], bias[part]).unflatten(-1, (-1, heads, width // heads)).permute(2, 0, 3, 1, 4)

    if only_first:
        q, k, v = *projected(rows[:, :1], slice(width)), *projected(rows, slice(width, None))
    else:
        q, k, v = projected(rows, slice(None))
    return scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(0, 1).flatten(1)


def add_and_normalise(
    x: Tensor,
    branch: Tensor | None,
    bias: Tensor | None,
    weight: Tensor,
    shift: Tensor,
    into: Tensor | None = None,
    warps: int = 1,
    launched: Mapping[str, bool] = PLAINLY,
) -> Tensor:
    """The layer norm of x + branch + bias, row by row; if there is a branch, the sum is kept, in place of x or `into`.

    A branch may be given in parts, which are added up. `launched` is as `triton_ahead` says.
    """
    out, (rows, width) = x.new_empty(x.shape), x.shape
    given = x, x if branch is None else branch, x if bias is None else bias
    with torch.cuda.device_of(x):
        _add_and_normalise[(rows,)](
            *(*given, weight, shift, x if into is None else into, out, x.stride(0), width, _EPS),
            PARTS=0 if branch is None else branch.numel() // x.numel(),
            HAS_BIAS=bias is not None,
            D=triton.next_power_of_2(width),
            num_warps=warps,
            **launched,
        )
    return out


@triton.jit
def _add_and_normalise(
    x, branch, bias, weight, shift, into, out, stride, width, eps,
    PARTS: tl.constexpr, HAS_BIAS: tl.constexpr, D: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    at = tl.arange(0, D)
    here, inside = tl.program_id(0).to(tl.int64) * width + at, at < width
    scale = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    centre = tl.load(shift + at, mask=inside, other=0.0).to(tl.float32)
    numbers = tl.zeros((D,), tl.float32)
    if HAS_BIAS:
        numbers += tl.load(bias + at, mask=inside, other=0.0).to(tl.float32)
    wait_for_inputs(AHEAD)
    numbers += tl.load(x + tl.program_id(0).to(tl.int64) * stride + at, mask=inside, other=0.0).to(tl.float32)
    for part in tl.static_range(PARTS):
        there = branch + here + part * tl.num_programs(0).to(tl.int64) * width
        numbers += tl.load(there, mask=inside, other=0.0).to(tl.float32)
    if PARTS > 0:
        tl.store(into + here, numbers.to(into.dtype.element_ty), mask=inside)
    apart = tl.where(inside, numbers - tl.sum(numbers, 0) / width, 0.0)
    normal = apart * tl.rsqrt(tl.sum(apart * apart, 0) / width + eps) * scale + centre
    tl.store(out + here, normal.to(out.dtype.element_ty), mask=inside)


def linear_with_gelu(x: Tensor, weight: Tensor, bias: Tensor, quick: bool) -> Tensor:
    """QuickGELU or GELU of x·Wᵀ + b."""
    out, (M, N, K) = x.new_empty(len(x), len(weight)), _BLOCK
    blocks = triton.cdiv(len(x), M) * triton.cdiv(len(weight), N)
    with torch.cuda.device_of(x):
        _linear_with_gelu[(min(blocks, torch.cuda.get_device_properties(x.device).multi_processor_count),)](
            TensorDescriptor.from_tensor(x, [M, K]),
            TensorDescriptor.from_tensor(weight, [N, K]),
            TensorDescriptor.from_tensor(out, [M, N // 2]),
            *(bias, len(x), len(weight), x.shape[1]),
            *(quick, M, N, K, _NEIGHBOURS),
            num_warps=8,
            num_stages=3,
        )
    return out


@triton.jit
def _linear_with_gelu(
    x, weight, out, bias, rows, outputs, inputs,
    QUICK: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, NEIGHBOURS: tl.constexpr,
):  # fmt: skip
    down, across = tl.cdiv(rows, M), tl.cdiv(outputs, N)
    for block in tl.range(tl.program_id(0), down * across, tl.num_programs(0), flatten=True):
        near = block % (NEIGHBOURS * across)
        first = block // (NEIGHBOURS * across) * NEIGHBOURS
        high = tl.minimum(down - first, NEIGHBOURS)
        row, column = (first + near % high) * M, near // high * N
        total = tl.zeros((M, N), tl.float32)
        for start in range(0, inputs, K):
            total = tl.dot(x.load([row, start]), weight.load([column, start]).T, total)
        at = column + tl.arange(0, N)
        total += tl.load(bias + at, mask=at < outputs, other=0.0).to(tl.float32)[None, :]
        total = activated(total, QUICK)
        # in two halves, which need half of the memory on their way
        left, right = tl.split(tl.permute(tl.reshape(total, (M, 2, N // 2)), (0, 2, 1)))
        out.store([row, column], left.to(out.dtype))
        out.store([row, column + N // 2], right.to(out.dtype))


@triton.jit
def activated(x, QUICK: tl.constexpr):
    if QUICK:
        return x / (1 + tl.exp(-1.702 * x))
    return 0.5 * x * (1 + tl.erf(0.7071067811865476 * x))

"""The transformer of one image, or of a few, in half precision on a GPU (Hopper and later).

A product of the 197 tokens of ViT-B/16 takes a few microseconds, in which a GPU mostly waits. So there are few kernels,
seven per block, each with work for most of the processors:

* Products have small blocks. Where there are few outputs, programs share the inputs (`parts`), and the layer norm that
  reads their sums adds them up, always in the same order.
* Activations are part of the product, as for many tokens. Attention reads queries, keys and values where the product
  has left them.
* A kernel is launched while the one before it still runs. It asks for its weights, then waits for the numbers.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from pta.engines.gpu.triton_ahead import ahead_on, wait_for_inputs
from pta.engines.gpu.triton_transformer import activated, add_and_normalise, blocks_of

MOST_ROWS = 320
"""Of more rows, PyTorch's own kernels are used; where they become faster was not measured."""


class Tiling(NamedTuple):
    """Rows, outputs and inputs that a program multiplies at once, and how many programs share the inputs."""

    rows: int
    outputs: int
    inputs: int
    parts: int = 1
    warps: int = 4
    stages: int = 4  # blocks on their way at the same time


TILINGS = {  # for the 197 tokens of ViT-B/16
    "qkv": Tiling(64, 128, 64),
    "out": Tiling(64, 64, 64, parts=2),
    "up": Tiling(64, 128, 64),
    "down": Tiling(128, 64, 64, parts=4),
}
QUERIES, KEYS, ATTENTION_WARPS, NORM_WARPS = 64, 64, 4, 4


@torch.library.custom_op("pta::class_tokens_of_few", mutates_args=())
def class_tokens_of_few(x: Tensor, weights: list[Tensor], heads: int, quick: bool) -> Tensor:
    """What `class_tokens` gives, N×L×width to N×width."""
    samples, length, _ = x.shape
    x = x.flatten(0, 1)
    branch: Any = None  # what the layer before adds to x, in parts and without the bias
    bias: Any = None
    for of_block, is_last in blocks_of(weights):
        norm, shift, qkv, qkv_bias, out, out_bias, norm_2, shift_2, up, up_bias, down, down_bias = of_block
        x, rows = _added_and_normalised(x, branch, bias, norm, shift)
        mixed = attended(small_product(TILINGS["qkv"], rows, qkv, qkv_bias), samples, heads, 1 if is_last else length)
        x = x[::length] if is_last else x
        x, rows = _added_and_normalised(x, small_product(TILINGS["out"], mixed, out), out_bias, norm_2, shift_2)
        rows = small_product(TILINGS["up"], rows, up, up_bias, quick)
        branch, bias = small_product(TILINGS["down"], rows, down), down_bias
    return _added_and_normalised(x, branch, bias, norm, shift)[0]  # any norm will do


@class_tokens_of_few.register_fake
def _(x: Tensor, weights: list[Tensor], heads: int, quick: bool) -> Tensor:
    return x.new_empty(len(x), x.shape[2])


def _added_and_normalised(
    x: Tensor, branch: Tensor | None, bias: Tensor | None, weight: Tensor, shift: Tensor
) -> tuple[Tensor, Tensor]:
    """x + branch + bias, and its layer norm; x itself is left as it is."""
    total = x if branch is None else x.new_empty(x.shape)
    return total, add_and_normalise(x, branch, bias, weight, shift, total, NORM_WARPS, ahead_on(x.device))


def small_product(
    tiling: Tiling, x: Tensor, weight: Tensor, bias: Tensor | None = None, quick: bool | None = None
) -> Tensor:
    """x·Wᵀ + b, activated if `quick` is given; without a bias parts×rows×outputs in float32, of which it is the sum."""
    (rows, inputs), outputs, (M, N, K, parts, warps, stages) = x.shape, len(weight), tiling
    if bias is None:
        out = x.new_empty(parts, rows, outputs, dtype=torch.float32)
    else:
        out, parts = x.new_empty(rows, outputs), 1
    with torch.cuda.device_of(x):
        _product[(triton.cdiv(outputs, N), triton.cdiv(rows, M), parts)](
            TensorDescriptor.from_tensor(x, [M, K]),
            TensorDescriptor.from_tensor(weight, [N, K]),
            *(weight, bias, out, rows, outputs, inputs, quick, M, N, K, parts),
            num_warps=warps,
            num_stages=stages,
            **ahead_on(x.device),
        )
    return out


@triton.jit
def _product(
    x, blocks, weight, bias, out, rows, outputs, inputs,
    QUICK: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PARTS: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    column, row, part = tl.program_id(0) * N, tl.program_id(1) * M, tl.program_id(2)
    down, across = row + tl.arange(0, M), column + tl.arange(0, N)
    share = tl.cdiv(inputs, K * PARTS) * K
    first = part * share
    total = tl.zeros((M, N), tl.float32)
    if bias is not None:
        total += tl.load(bias + across, mask=across < outputs, other=0.0).to(tl.float32)[None, :]
    if AHEAD and row == 0:
        at = tl.minimum(first, inputs - 8)
        fetch_to_cache(weight + tl.minimum(across, outputs - 1) * inputs + at, 2 * tl.minimum(share, inputs - at))
    wait_for_inputs(AHEAD)
    for start in range(first, first + share, K):
        total = tl.dot(x.load([row, start]), blocks.load([column, start]).T, total)
    if QUICK is not None:
        total = activated(total, QUICK)
    there = out + (part * rows + down)[:, None] * outputs + across[None, :]
    tl.store(there, total.to(out.dtype.element_ty), mask=(down < rows)[:, None] & (across < outputs)[None, :])


@triton.jit
def fetch_to_cache(rows, size):
    """Have so many bytes of each row read from memory to the GPU's cache; nothing waits for them."""
    copy: tl.constexpr = "cp.async.bulk.prefetch.L2.global [$1], $2; mov.u32 $0, 0;"
    tl.inline_asm_elementwise(copy, "=r,l,r", [rows, size], dtype=tl.int32, is_pure=False, pack=1)


def attended(projected: Tensor, samples: int, heads: int, queries: int) -> Tensor:
    """What the first tokens of each sample attend to, (samples·queries)×width; q, k and v are given side by side."""
    length, width = len(projected) // samples, projected.shape[1] // 3
    out = projected.new_empty(samples * queries, width)
    with torch.cuda.device_of(projected):
        _attended[(triton.cdiv(queries, QUERIES), heads, samples)](
            *(projected, out, length, queries, width, (heads / width) ** 0.5, width // heads),
            *(max(16, triton.next_power_of_2(width // heads)), QUERIES, KEYS),
            num_warps=ATTENTION_WARPS,
            num_stages=4,
            **ahead_on(projected.device),
        )
    return out


@triton.jit
def _attended(
    projected, out, length, queries, width, scale,
    HEAD: tl.constexpr, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    row, d, sample = tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, D), tl.program_id(2)
    column = tl.program_id(1) * HEAD + d
    asking = (row < queries)[:, None] & (d < HEAD)[None, :]
    wait_for_inputs(AHEAD)
    projected += sample * length * 3 * width
    q = tl.load(projected + row[:, None] * 3 * width + column[None, :], mask=asking, other=0.0)
    most, weights = tl.full((M,), -float("inf"), tl.float32), tl.zeros((M,), tl.float32)
    total = tl.zeros((M, D), tl.float32)
    for start in range(0, length, N):
        token = start + tl.arange(0, N)
        there = projected + token[:, None] * 3 * width + width + column[None, :]
        inside = (token < length)[:, None] & (d < HEAD)[None, :]
        scores = tl.dot(q, tl.load(there, mask=inside, other=0.0).T) * (scale * 1.4426950408889634)  # for powers of two
        scores = tl.where((token < length)[None, :], scores, -float("inf"))
        higher = tl.maximum(most, tl.max(scores, 1))
        shares, shrink = tl.exp2(scores - higher[:, None]), tl.exp2(most - higher)
        v = tl.load(there + width, mask=inside, other=0.0)
        total = tl.dot(shares.to(v.dtype), v, total * shrink[:, None])
        most, weights = higher, weights * shrink + tl.sum(shares, 1)
    there = out + (sample * queries + row)[:, None] * width + column[None, :]
    tl.store(there, (total / weights[:, None]).to(out.dtype.element_ty), mask=asking)

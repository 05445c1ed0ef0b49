"""A single sample of `pta.engines.whitened.layer` on a GPU, in two kernels: P·y, and then a program for each class."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from pta.engines.whitened.within_class import SHORTEST

_SHORTEST = tl.constexpr(SHORTEST)


def learn_one_on_gpu(x: Tensor, w: Tensor, centre: Tensor, texts: Tensor, metric: Tensor, *learned: Tensor) -> Tensor:
    """What `Layer.score` gives for one sample that is learned, 1×C; `learned` are its sums, weights and squares."""
    if isinstance(x, FakeTensor):  # without numbers no kernel can be launched, and none is needed to know the shape
        return texts.new_empty(w.shape)
    C, d = texts.shape
    turned, cosines = texts.new_empty(d), texts.new_empty(1, C)
    D = triton.next_power_of_2(d)
    with torch.cuda.device_of(x):
        x, w = x.contiguous(), w.contiguous()
        _turn[(d,)](x, centre, metric, turned, d, D=D)
        _learn[(C,)](*(x, w, centre, texts, turned, *learned, cosines, d), D=D, num_warps=2)
    return cosines


@triton.jit
def _turn(x, centre, metric, turned, d, D: tl.constexpr):
    """One number of P·y."""
    row, at = tl.program_id(0), tl.arange(0, D)
    y = tl.load(x + at, mask=at < d, other=0.0) - tl.load(centre + at, mask=at < d, other=0.0)
    P = tl.load(metric + row * d + at, mask=at < d, other=0.0)
    tl.store(turned + row, tl.sum(P * y.to(P.dtype), 0))


@triton.jit
def _learn(x, w, centre, texts, turned, sums, weights, squares, cosines, d, D: tl.constexpr):
    """Let one class learn the sample, and give the cosine of both."""
    c, at = tl.program_id(0), tl.arange(0, D)
    here = c * d + at
    feature = tl.load(x + at, mask=at < d, other=0.0)
    m = tl.load(centre + at, mask=at < d, other=0.0)
    M = tl.load(sums + here, mask=at < d, other=0.0)
    text = tl.load(texts + here, mask=at < d, other=0.0)
    towards = tl.load(turned + at, mask=at < d, other=0.0)
    n = tl.load(weights + c)
    share = tl.load(w + c)
    part = share.to(text.dtype)
    own = tl.sum(towards * (feature - m).to(text.dtype), 0)
    product = tl.sum(towards * ((M - n * m).to(text.dtype) + text), 0) + own * part
    growth = part * (2 * product - own * part)
    square = tl.load(squares + c)
    length = tl.sqrt(tl.maximum(square.to(text.dtype) + growth, _SHORTEST))
    cosine = product / length / tl.sqrt(tl.maximum(own, _SHORTEST))
    tl.store(cosines + c, tl.minimum(tl.maximum(cosine, -1.0), 1.0))
    if share > 0:
        tl.store(sums + here, M + share * feature, mask=at < d)
        tl.store(weights + c, n + share)
        tl.store(squares + c, tl.maximum(square + growth, 0.0))

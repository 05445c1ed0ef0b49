"""Samples that a layer of `pta.engines.whitened.layer` learns on a GPU.

A single sample takes two kernels: P·y, and then a program for each class. Of several, products give what each sample
meets of the prototypes before them and of the samples before it; then a program follows a few classes through all.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from pta.engines.gpu.triton_ahead import PLAINLY, ahead_on, wait_for_inputs
from pta.engines.gpu.triton_touches import split, split_below, whole
from pta.engines.whitened.layer_state import LayerState
from pta.engines.whitened.within_class import SHORTEST

_CLASSES = 8  # that a program follows together
_SHORTEST = tl.constexpr(SHORTEST)


def learn_one_on_gpu(layer: LayerState, x: Tensor, s: Tensor, z: Tensor) -> Tensor:
    """What `Layer.score` gives for one sample that is learned, 1×C."""
    scores, turned = layer.texts.new_empty(z.shape), layer.texts.new_empty(x.shape)
    if isinstance(x, FakeTensor):  # without numbers no kernel can be launched, and none is needed to know the shape
        return scores
    (C, d), D = layer.texts.shape, triton.next_power_of_2(x.shape[1])
    with torch.cuda.device_of(x):
        ahead = ahead_on(x.device)
        turn_ahead = ahead if x.is_contiguous() else PLAINLY  # of a copy, which it would read while that is made
        x, of_all = x.contiguous(), layer.of_all
        _turn[(d,)](
            *(x, layer.centre, layer.metric, turned, of_all.total, of_all.gram, d),
            COUNTS=layer.counts,
            D=D,
            **turn_ahead,
        )
        _learn[(C,)](
            *(x, s, z, layer.centre, layer.texts, turned, layer.sums, layer.weights, layer.squares, scores, d),
            *(*split_below(layer.least_weight), *split(layer.factor)),
            D=D,
            num_warps=2,
            **ahead,
        )
    return scores


def learn_several_on_gpu(layer: LayerState, x: Tensor, w: Tensor, z: Tensor) -> Tensor:
    """The same for at most `MOST_SAMPLES` samples in order, B×C, by their weights; the sums are left to the caller."""
    (B, C), scores = z.shape, layer.texts.new_empty(z.shape)
    rows = rows_on_gpu(layer, x)
    turned = rows[C:] @ layer.metric
    products = turned @ rows.T
    within = products[:, C:].tril() @ w.to(products.dtype)
    if not isinstance(x, FakeTensor):
        with torch.cuda.device_of(x):
            _follow[(triton.cdiv(C, _CLASSES),)](
                *(products, within, w, z, layer.weights, layer.squares, scores, B, C, *split(layer.factor)),
                SAMPLES=max(2, triton.next_power_of_2(B)),
                CLASSES=_CLASSES,
            )
    return scores


def rows_on_gpu(layer: LayerState, x: Tensor) -> Tensor:
    """The prototypes, and below them what B samples are around the centre, (C+B)×d."""
    (C, d), B = layer.texts.shape, len(x)
    rows = layer.texts.new_empty(C + B, d)
    if not isinstance(x, FakeTensor):
        with torch.cuda.device_of(rows):
            given = x.contiguous(), layer.centre, layer.sums, layer.weights, layer.texts
            _put_row[(C + B,)](*given, rows, C, d, D=triton.next_power_of_2(d))
    return rows


@triton.jit
def _turn(x, centre, metric, turned, total, gram, d, COUNTS: tl.constexpr, D: tl.constexpr, AHEAD: tl.constexpr):
    """One number of P·y; if the layer counts, also one of Σx and a row of Σxxᵀ."""
    row, at = tl.program_id(0), tl.arange(0, D)
    here = row * d + at
    feature = tl.load(x + at, mask=at < d, other=0.0).to(tl.float64)
    y = feature - tl.load(centre + at, mask=at < d, other=0.0)
    P = tl.load(metric + here, mask=at < d, other=0.0)
    product = tl.sum(P * y.to(P.dtype), 0)
    if COUNTS:
        own = tl.load(x + row).to(tl.float64)
        total_now = tl.load(total + row) + own
        gram_now = tl.load(gram + here, mask=at < d, other=0.0) + own * feature
    wait_for_inputs(AHEAD)
    tl.store(turned + row, product)
    if COUNTS:
        tl.store(total + row, total_now)
        tl.store(gram + here, gram_now, mask=at < d)


@triton.jit
def _learn(
    x, s, z, centre, texts, turned, sums, weights, squares, scores, d, least, least_rest, factor, factor_rest,
    D: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """Let one class learn the sample, and score it."""
    c, at = tl.program_id(0), tl.arange(0, D)
    here = c * d + at
    feature = tl.load(x + at, mask=at < d, other=0.0).to(tl.float64)
    m = tl.load(centre + at, mask=at < d, other=0.0)
    M = tl.load(sums + here, mask=at < d, other=0.0)
    text = tl.load(texts + here, mask=at < d, other=0.0)
    n, square, logit = tl.load(weights + c), tl.load(squares + c), tl.load(z + c)
    share = tl.load(s + c)
    share = tl.where(share > whole(least, least_rest), share, 0.0)
    part = share.to(text.dtype)
    wait_for_inputs(AHEAD)
    towards = tl.load(turned + at, mask=at < d, other=0.0)
    own = tl.sum(towards * (feature - m).to(text.dtype), 0)
    product = tl.sum(towards * ((M - n * m).to(text.dtype) + text), 0) + own * part
    growth = part * (2 * product - own * part)
    score = _score(product, square.to(text.dtype) + growth, own, logit, whole(factor, factor_rest))
    tl.store(scores + c, score.to(text.dtype))
    if share > 0:
        tl.store(sums + here, M + share * feature, mask=at < d)
        tl.store(weights + c, n + share)
        tl.store(squares + c, tl.maximum(square + growth, 0.0))


@triton.jit
def _score(product, square, own, z, factor):
    """z + factor·cosine, from a product of sample and prototype and the squares of both."""
    cosine = product / tl.sqrt(tl.maximum(square, _SHORTEST)) / tl.sqrt(tl.maximum(own, _SHORTEST))
    return z + factor * tl.minimum(tl.maximum(cosine, -1.0), 1.0)


@triton.jit
def _put_row(x, centre, sums, weights, texts, rows, C, d, D: tl.constexpr):
    """One prototype, or one sample around the centre."""
    row, at = tl.program_id(0), tl.arange(0, D)
    here = row * d + at
    m = tl.load(centre + at, mask=at < d, other=0.0)
    if row < C:
        M = tl.load(sums + here, mask=at < d, other=0.0)
        text = tl.load(texts + here, mask=at < d, other=0.0)
        tl.store(rows + here, (M - tl.load(weights + row) * m).to(text.dtype) + text, mask=at < d)
    else:
        feature = tl.load(x + here - C * d, mask=at < d, other=0.0).to(tl.float64)
        tl.store(rows + here, feature - m, mask=at < d)


@triton.jit
def _follow(
    products, within, w, z, weights, squares, scores, B, C, factor, factor_rest,
    SAMPLES: tl.constexpr, CLASSES: tl.constexpr,
):  # fmt: skip
    """Let a few classes learn all samples, and score each sample at its turn."""
    sample, classes = tl.arange(0, SAMPLES), tl.program_id(0) * CLASSES + tl.arange(0, CLASSES)
    inside = (sample < B)[:, None] & (classes < C)[None, :]
    here = sample[:, None] * C + classes[None, :]
    begin = products + sample * (C + B)
    own = tl.load(begin + C + sample, mask=sample < B, other=0.0)[:, None]
    share = tl.load(w + here, mask=inside, other=0.0)
    part = share.to(own.dtype)
    product = tl.load(begin[:, None] + classes[None, :], mask=inside, other=0.0)
    product += tl.load(within + here, mask=inside, other=0.0)
    growth = part * (2 * product - own * part)
    square = tl.load(squares + classes, mask=classes < C, other=0.0)
    met = square.to(own.dtype)[None, :] + tl.cumsum(growth, 0)
    logits = tl.load(z + here, mask=inside, other=0.0)
    score = _score(product, met, own, logits, whole(factor, factor_rest))
    tl.store(scores + here, score.to(own.dtype), mask=inside)
    tl.store(squares + classes, tl.maximum(square + tl.sum(growth, 0), 0.0), mask=classes < C)
    n = tl.load(weights + classes, mask=classes < C, other=0.0)
    tl.store(weights + classes, n + tl.sum(share, 0), mask=classes < C)

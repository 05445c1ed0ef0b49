"""Which samples touch which classes, found on a GPU without the host."""

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from pta.core.classifier import ZeroShotClassifier
from pta.engines.gpu.triton_ahead import ahead_on, wait_for_inputs
from pta.engines.pta.rule import DOUBT, Rule

_CLASSES_AT_ONCE = 1024  # in a program that computes probabilities
# Classes and numbers at a time in float64: it is rare, and registers are dear.
_FEW, _MANY = tl.constexpr(4), tl.constexpr(128)


def table_of(probabilities: Tensor, rule: Rule) -> Tensor:
    """The probabilities, B×C, of those samples and classes that touch, C×B, zero elsewhere, taken at their word."""
    s = probabilities.T.float()
    return torch.where(s >= rule.threshold, s, 0.0).contiguous()


def find_touches_on_gpu(classifier: ZeroShotClassifier, features: Tensor, z: Tensor, rule: Rule) -> Tensor:
    """The zero-shot probabilities of the samples and classes that touch, C×B, zero elsewhere, decided as in float64."""
    (B, C), d = z.shape, classifier.dim
    table = torch.zeros(C, B, device=z.device)
    blocks = triton.cdiv(C, _CLASSES_AT_ONCE)
    block = triton.next_power_of_2(min(C, _CLASSES_AT_ONCE))
    tops, totals = torch.empty(2, B, blocks, device=z.device)
    if blocks > 1:
        _sum_blocks[(B, blocks)](z, tops, totals, C, BLOCK=block)
    _find_touches[(B, blocks)](
        *(features, z, tops, totals, table, classifier.anchors),
        *(B, C, d, *deciders(classifier, rule)),
        BLOCK=block,
        BLOCKS=triton.next_power_of_2(blocks),
    )
    return table


def exact_logits_of_one(classifier: ZeroShotClassifier, feature: Tensor) -> Tensor:
    """z of one feature, 1×d, in float64: the anchors are read as they are, not copied to float64."""
    z = torch.empty(1, classifier.classes, dtype=torch.float64, device=feature.device)
    if not isinstance(z, FakeTensor):  # without numbers no kernel can be launched
        numbers = classifier.classes, classifier.dim, *split(classifier.scale), *split(classifier.bias)
        with torch.cuda.device_of(z):
            _score_exactly[(triton.cdiv(classifier.classes, _FEW.value),)](
                *(feature.contiguous(), classifier.anchors, z, *numbers), num_warps=1, **ahead_on(z.device)
            )
    return z


def deciders(classifier: ZeroShotClassifier, rule: Rule) -> tuple[float, ...]:
    """What `probability` and its like are told of classifier and rule: scale, bias, threshold, and where doubt ends."""
    return *split(classifier.scale), classifier.bias, rule.threshold, DOUBT * rule.threshold


def split(number: float) -> tuple[float, float]:
    """A number as the sum of two that float32 holds, which is how kernels are given theirs."""
    near = float(np.float32(number))
    return near, number - near


def split_below(number: float) -> tuple[float, float]:
    """The same, of which the sum is the number or hardly less: what exceeds the number exceeds it, too."""
    near, rest = split(number)
    return near, float(np.nextafter(np.float32(rest), np.float32(-np.inf)))


@triton.jit
def whole(near, rest):
    """A number that `split` has split."""
    return tl.cast(near, tl.float64) + tl.cast(rest, tl.float64)


@triton.jit
def _score_exactly(feature, anchors, z, C, d, scale, scale_rest, bias, bias_rest, AHEAD: tl.constexpr):
    """The logits of one sample for a few classes."""
    wait_for_inputs(AHEAD)
    few = tl.program_id(0) * _FEW + tl.arange(0, _FEW)
    scaled = _exact_logits(feature, anchors, few, C, d, whole(scale, scale_rest))
    tl.store(z + few, scaled + whole(bias, bias_rest), mask=few < C)


@triton.jit
def _sum_blocks(z, tops, totals, C, BLOCK: tl.constexpr):
    """Of every block of classes the largest logit, and the sum of e^(z − largest)."""
    b, block = tl.program_id(0), tl.program_id(1)
    classes = block * BLOCK + tl.arange(0, BLOCK)
    logits = tl.load(z + b * C + classes, mask=classes < C, other=float("-inf"))
    top = tl.max(logits, 0)
    tl.store(tops + b * tl.num_programs(1) + block, top)
    tl.store(totals + b * tl.num_programs(1) + block, tl.sum(tl.exp(logits - top), 0))


@triton.jit
def _find_touches(
    features, z, tops, totals, table, anchors, B, C, d, scale, scale_rest, bias, threshold, doubt,
    BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """Enter the probabilities of one sample for one block of classes; those too close to call are computed again."""
    b, block = tl.program_id(0), tl.program_id(1)
    classes = block * BLOCK + tl.arange(0, BLOCK)
    logits = tl.load(z + b * C + classes, mask=classes < C, other=float("-inf"))
    if BLOCKS == 1:
        top = tl.max(logits, 0)
        total = tl.sum(tl.exp(logits - top), 0)
    else:
        blocks = tl.arange(0, BLOCKS)
        here = b * tl.num_programs(1) + blocks
        each = tl.load(tops + here, mask=blocks < tl.num_programs(1), other=float("-inf"))
        top = tl.max(each, 0)
        total = tl.sum(tl.load(totals + here, mask=blocks < tl.num_programs(1), other=0.0) * tl.exp(each - top), 0)
    s = tl.exp(logits - top) / total
    unsure = tl.abs(s - threshold) <= doubt
    tl.store(table + classes * B + b, s, mask=(s >= threshold) & (unsure == 0))
    if tl.sum(unsure.to(tl.int32), 0) > 0:
        exact_scale = whole(scale, scale_rest)
        exact_total = _exact_total(features + b * d, anchors, C, d, exact_scale, top - bias)
        for first in range(block * BLOCK, tl.minimum((block + 1) * BLOCK, C), _FEW):
            few = first + tl.arange(0, _FEW)
            about = tl.exp(tl.load(z + b * C + few, mask=few < C, other=float("-inf")) - top) / total
            exact_z = _exact_logits(features + b * d, anchors, few, C, d, exact_scale)
            exactly = (tl.exp(exact_z - (top - bias)) / exact_total).to(tl.float32)
            # Twice, because `total` may differ between threads in the last bit: none that was unsure is left out.
            again = tl.abs(about - threshold) <= 2 * doubt
            tl.store(table + few * B + b, exactly, mask=(exactly >= threshold) & again)


@triton.jit
def _exact_logits(feature, anchors, classes, C, d, scale):
    """The logits of a few classes in float64."""
    products = tl.zeros([_FEW], tl.float64)
    for first in range(0, d, _MANY):
        at = first + tl.arange(0, _MANY)
        inside = (classes < C)[:, None] & (at < d)[None, :]
        f = tl.load(feature + at, mask=at < d, other=0.0).to(tl.float64)
        T = tl.load(anchors + classes[:, None] * d + at[None, :], mask=inside, other=0.0).to(tl.float64)
        products += tl.sum(T * f[None, :], 1)
    return products * scale


@triton.jit
def _exact_total(feature, anchors, C, d, scale, top):
    """The sum of e^(z − top) over all classes in float64."""
    total = tl.zeros([_FEW], tl.float64)
    for first in range(0, C, _FEW):
        classes = first + tl.arange(0, _FEW)
        z = _exact_logits(feature, anchors, classes, C, d, scale)
        total += tl.where(classes < C, tl.exp(z - top), 0.0)
    return tl.sum(total, 0)


@triton.jit
def probability(feature, z, anchors, c, C, d, scale, scale_rest, bias, threshold, doubt, CLASSES: tl.constexpr):
    """The probability of one class for one sample, of which all logits are given."""
    every = tl.arange(0, CLASSES)
    logits = tl.load(z + every, mask=every < C, other=float("-inf"))
    top = tl.max(logits, 0)
    s = tl.exp(tl.load(z + c) - top) / tl.sum(tl.exp(logits - top), 0)
    if tl.abs(s - threshold) <= doubt:
        exact_scale = whole(scale, scale_rest)
        own = tl.max(_exact_logits(feature, anchors, c + tl.zeros([_FEW], tl.int32), C, d, exact_scale), 0)
        total = _exact_total(feature, anchors, C, d, exact_scale, top - bias)
        s = (tl.exp(own - (top - bias)) / total).to(tl.float32)
    return s

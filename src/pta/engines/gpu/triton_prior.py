"""The order-aware prior on a GPU, in one kernel for a sample and three for a batch, and the softmax of all logits.

The running means of a class do not depend on other classes: a program follows a few classes through all samples, by
sums over them. Classes meet in two products per sample, of which each program gives its part. The last kernel has a
program per sample: all parts give it the gate, and the running means the prior.
"""

from math import log
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from pta.engines.gpu.triton_ahead import ahead_on, wait_for_inputs
from pta.engines.local_prior import CAUTION, FAST, FORGET, ORDERED, SLOW, START, STRENGTH, WEIGHT

MOST_SAMPLES = 128  # in a batch: programs hold numbers of all of them
_FEW_PROGRAMS, _FEWEST_CLASSES = 64, 16
_MOST_NUMBERS = 2048  # samples times classes of a program, which holds them in registers
_CLASSES_AT_ONCE = 1024
_MOST_CLASSES_IN_A_PROGRAM = 4096
_FAST, _SLOW, _START = tl.constexpr(FAST), tl.constexpr(SLOW), tl.constexpr(START)
_KEPT, _WEIGHT, _CAUTION = tl.constexpr(1 - FORGET), tl.constexpr(WEIGHT), tl.constexpr(CAUTION)
_ORDERED, _STRENGTH = tl.constexpr(ORDERED), tl.constexpr(STRENGTH)
_LOG_KEPT, _LOG_KEPT_FAST, _LOG_KEPT_SLOW = (tl.constexpr(log(1 - rate)) for rate in (FORGET, FAST, SLOW))
_NO_LOGIT = tl.constexpr(-1e300)  # in the place of a class that is not there


class WithPrior(NamedTuple):
    """Of B samples, B×C, in float64: softmax(z), the prior ℓ, z + ℓ, and its softmax."""

    text_probabilities: Tensor
    log_prior: Tensor
    exact_logits: Tensor
    softmax: Tensor


def learn_on_gpu(z: Tensor, fast: Tensor, slow: Tensor, mean: Tensor, *state: Tensor) -> WithPrior:
    """Put the prior of samples in order on their logits, B×C, in float64, and count them.

    The other tensors are those of a `LocalPrior`, in its order.
    """
    blocks = [_learn(block, fast, slow, mean, *state) for block in torch.split(z, MOST_SAMPLES)]
    return blocks[0] if len(blocks) == 1 else WithPrior(*map(torch.cat, zip(*blocks, strict=True)))


def _learn(z: Tensor, fast: Tensor, slow: Tensor, mean: Tensor, *state: Tensor) -> WithPrior:
    (B, C), found = z.shape, WithPrior(*(torch.empty_like(z) for _ in WithPrior._fields))
    if isinstance(z, FakeTensor):  # without numbers no kernel can be launched, and none is needed to know the shape
        return found
    if B == 1 and C <= _MOST_CLASSES_IN_A_PROGRAM:
        size = int(triton.next_power_of_2(C))
        with torch.cuda.device_of(z):
            _learn_one[(1,)](
                *(z, *found, fast, slow, mean, *state, C),
                BLOCK=size,
                num_warps=_warps(size),
                **ahead_on(z.device),
            )
        return found
    samples, at_once = max(2, int(triton.next_power_of_2(B))), min(_CLASSES_AT_ONCE, int(triton.next_power_of_2(C)))
    wished = int(triton.next_power_of_2(triton.cdiv(C, _FEW_PROGRAMS)))
    block = max(_FEWEST_CLASSES, min(wished, _MOST_NUMBERS // samples))
    blocks = triton.cdiv(C, block)
    parts, before = z.new_empty(2, B, blocks), z.new_empty(3)
    with torch.cuda.device_of(z):
        _softmax[(B,)](z, found.text_probabilities, C, BLOCK=at_once, num_warps=_warps(at_once))
        _follow[(blocks,)](
            *(found.text_probabilities, fast, slow, mean, *state, before, found.log_prior, parts, B, C),
            SAMPLES=samples,
            BLOCK=block,
            num_warps=min(8, max(1, samples * block // 512)),
        )
        if B > 1:  # so that not every program of the next kernel reads all parts
            parts = parts.sum(dim=2, keepdim=True)
        _shift[(B,)](
            *(z, *found, parts, before, *state, B, C, parts.shape[2]),
            SAMPLES=samples,
            BLOCKS=triton.next_power_of_2(parts.shape[2]),
            BLOCK=at_once,
            num_warps=_warps(at_once),
        )
    return found


def _warps(block: int) -> int:
    """For programs that compute many powers in float64, which take long."""
    return min(16, max(1, block // 64))


@triton.jit
def _learn_one(
    z, s, log_prior, shifted, softmax, fast, slow, mean, found, by_chance, count, C,
    BLOCK: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """All of this for a single sample."""
    classes = tl.arange(0, BLOCK)
    inside = classes < C
    quick = tl.load(fast + classes, mask=inside, other=0.0)
    steady = tl.load(slow + classes, mask=inside, other=0.0)
    usual = tl.load(mean + classes, mask=inside, other=0.0)
    wait_for_inputs(AHEAD)
    seen = tl.load(count)  # which the last kernel of a batch before may have written
    new = tl.exp(seen.to(tl.float64) * _LOG_KEPT_FAST)  # u
    logits = tl.load(z + classes, mask=inside, other=float("-inf"))
    powers = tl.exp(logits - tl.max(logits, 0))
    taken = powers / tl.sum(powers, 0)
    tl.store(s + classes, taken, mask=inside)
    A = tl.load(found) * _KEPT + _WEIGHT * (tl.sum(taken * quick, 0) - new / C)
    chance = tl.load(by_chance) * _KEPT + _WEIGHT * (1 - new) * tl.sum(taken * usual, 0)
    prior = _gate(A, chance) * tl.log((quick + steady) * (C / 4.0) + 0.5)
    tl.store(log_prior + classes, prior, mask=inside)
    tl.store(shifted + classes, logits + prior, mask=inside)
    powers = taken * tl.exp(prior)
    tl.store(softmax + classes, powers / tl.sum(powers, 0), mask=inside)
    tl.store(fast + classes, quick + _FAST * (taken - quick), mask=inside)
    tl.store(slow + classes, steady + _SLOW * (taken - steady), mask=inside)
    start = _START + seen.to(tl.float64)
    tl.store(mean + classes, (usual * start + taken) / (start + 1), mask=inside)
    tl.store(found, A)
    tl.store(by_chance, chance)
    tl.store(count, seen + 1)


@triton.jit
def _gate(A, chance):
    """1.5·(1−ρ)."""
    eighth = eighth_power((A + _CAUTION) / (chance + _CAUTION) / _ORDERED)
    return _STRENGTH * eighth * eighth / (1 + eighth * eighth)


@triton.jit
def eighth_power(x):
    square = x * x
    fourth = square * square
    return fourth * fourth


@triton.jit
def _softmax(z, s, C, BLOCK: tl.constexpr):
    """The softmax of one row."""
    z += tl.program_id(0) * C
    s += tl.program_id(0) * C
    tops = tl.full([BLOCK], _NO_LOGIT, tl.float64)
    totals = tl.zeros([BLOCK], tl.float64)
    for at in range(0, C, BLOCK):
        classes = at + tl.arange(0, BLOCK)
        logits = tl.load(z + classes, mask=classes < C, other=_NO_LOGIT)
        higher = tl.maximum(tops, logits)
        totals = totals * tl.exp(tops - higher) + tl.exp(logits - higher)
        tops = higher
    top = tl.max(tops, 0)
    total = tl.sum(totals * tl.exp(tops - top), 0)
    for at in range(0, C, BLOCK):
        classes = at + tl.arange(0, BLOCK)
        logits = tl.load(z + classes, mask=classes < C, other=0.0)
        tl.store(s + classes, tl.exp(logits - top) / total, mask=classes < C)


@triton.jit
def _follow(
    s, fast, slow, mean, found, by_chance, count, before, recent, parts, B, C,
    SAMPLES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Follow a block of classes: e_f + e_s as each sample meets it, and the block's part of s·e_f and s·(Σs + 10/C)."""
    block = tl.program_id(0)
    classes, sample = block * BLOCK + tl.arange(0, BLOCK), tl.arange(0, SAMPLES)
    inside = classes < C
    start = _START + tl.load(count).to(tl.float64)
    if block == 0:  # the next kernel overwrites them
        tl.store(before, tl.load(found))
        tl.store(before + 1, tl.load(by_chance))
        tl.store(before + 2, start - _START)
    here = sample[:, None] * C + classes[None, :]
    all_inside = (sample < B)[:, None] & inside[None, :]
    taken = tl.load(s + here, mask=all_inside, other=0.0)
    age, age_after = sample.to(tl.float64), tl.cast(B, tl.float64)

    quick_before, quick = _running_mean(fast + classes, taken, age, age_after, inside, _FAST, _LOG_KEPT_FAST)
    tl.store(fast + classes, quick, mask=inside)
    steady_before, steady = _running_mean(slow + classes, taken, age, age_after, inside, _SLOW, _LOG_KEPT_SLOW)
    tl.store(slow + classes, steady, mask=inside)
    tl.store(recent + here, quick_before + steady_before, mask=all_inside)

    total = tl.load(mean + classes, mask=inside, other=0.0) * start
    total_before = total[None, :] + tl.cumsum(taken, 0) - taken
    tl.store(mean + classes, (total + tl.sum(taken, 0)) / (start + B), mask=inside)

    part = parts + sample * tl.num_programs(0) + block
    tl.store(part, tl.sum(taken * quick_before, 1), mask=sample < B)
    tl.store(part + B * tl.num_programs(0), tl.sum(taken * total_before, 1), mask=sample < B)


@triton.jit
def _running_mean(mean, taken, age, age_after, inside, RATE: tl.constexpr, LOG_KEPT: tl.constexpr):
    """A running mean of some classes as each sample meets it, and after all.

    Before sample b it is kᵇ·(e + rate·Σ_{j<b} s_j/kʲ⁺¹) with k = 1 − rate.
    """
    start = tl.load(mean, mask=inside, other=0.0)
    shares = RATE * taken * tl.exp(-(age + 1) * LOG_KEPT)[:, None]
    before = (start[None, :] + tl.cumsum(shares, 0) - shares) * tl.exp(age * LOG_KEPT)[:, None]
    return before, (start + tl.sum(shares, 0)) * tl.exp(age_after * LOG_KEPT)


@triton.jit
def _shift(
    z, s, log_prior, shifted, softmax, parts, before, found, by_chance, count, B, C, blocks,
    SAMPLES: tl.constexpr, BLOCKS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Put the prior of one sample in the place of e_f + e_s, and on z; the last one also keeps A, B and the count."""
    b = tl.program_id(0)
    sample, block = tl.arange(0, SAMPLES), tl.arange(0, BLOCKS)
    inside = (sample <= b)[:, None] & (block < blocks)[None, :]
    part = parts + sample[:, None] * blocks + block[None, :]
    with_recent = tl.sum(tl.load(part, mask=inside, other=0.0), 1)
    with_total = tl.sum(tl.load(part + B * blocks, mask=inside, other=0.0), 1)
    seen = tl.load(before + 2)
    new = tl.exp((seen + sample) * _LOG_KEPT_FAST)  # u
    still = tl.where(sample <= b, tl.exp((b - sample).to(tl.float64) * _LOG_KEPT), 0.0)
    first = tl.exp((b + 1).to(tl.float64) * _LOG_KEPT)
    A = first * tl.load(before) + _WEIGHT * tl.sum(still * (with_recent - new / C), 0)
    chance = first * tl.load(before + 1) + _WEIGHT * tl.sum(
        still * (1 - new) * with_total / (_START + seen + sample), 0
    )
    gate = _gate(A, chance)
    totals = tl.zeros([BLOCK], tl.float64)
    for at in range(0, C, BLOCK):
        classes = at + tl.arange(0, BLOCK)
        here, within = b * C + classes, classes < C
        recent = tl.load(log_prior + here, mask=within, other=1.0)
        prior = gate * tl.log(recent * (C / 4.0) + 0.5)
        tl.store(log_prior + here, prior, mask=within)
        tl.store(shifted + here, tl.load(z + here, mask=within, other=0.0) + prior, mask=within)
        powers = tl.load(s + here, mask=within, other=0.0) * tl.exp(prior)
        tl.store(softmax + here, powers, mask=within)
        totals += powers
    total = tl.sum(totals, 0)
    tl.debug_barrier()  # other threads may read what these have stored
    for at in range(0, C, BLOCK):
        classes = at + tl.arange(0, BLOCK)
        here, within = b * C + classes, classes < C
        tl.store(softmax + here, tl.load(softmax + here, mask=within, other=0.0) / total, mask=within)
    if b == B - 1:
        tl.store(found, A)
        tl.store(by_chance, chance)
        tl.store(count, (seen + B).to(tl.int64))

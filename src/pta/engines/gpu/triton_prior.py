"""The order-aware prior on a GPU, in two kernels for a batch.

The running means of a class do not depend on other classes, so that a program follows a few classes from sample to
sample. Classes meet in two products per sample, of which each program gives its part. The second kernel has a program
per sample: all parts give it the gate, and the running means the prior.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

MOST_SAMPLES = 128  # in a batch: a program of the second kernel holds the parts of all of them
_MOST_PROGRAMS, _FEWEST_CLASSES = 32, 32
_CLASSES_AT_ONCE = 1024
_FAST, _SLOW = tl.constexpr(1 / 8), tl.constexpr(1 / 64)
_LOG_KEPT, _LOG_NOT_STARTED = (
    tl.constexpr(-0.0039138993211363287),
    tl.constexpr(-0.13353139262452263),
)  # of 255/256, 7/8
_START = tl.constexpr(10.0)


def learn_on_gpu(s: Tensor, fast: Tensor, slow: Tensor, mean: Tensor, *state: Tensor) -> Tensor:
    """ℓ of B samples in order, B×C, which are then counted; `s` is B×C, in float64, and B at most `MOST_SAMPLES`.

    The other tensors are those of a `LocalPrior`, in its order.
    """
    if isinstance(s, FakeTensor):  # without numbers no kernel can be launched, and none is needed to know the shape
        return torch.empty_like(s)
    (B, C), s = s.shape, s.contiguous()
    block = max(_FEWEST_CLASSES, int(triton.next_power_of_2(triton.cdiv(C, _MOST_PROGRAMS))))
    blocks = triton.cdiv(C, block)
    log_prior, parts, before = torch.empty_like(s), s.new_empty(2, B, blocks), s.new_empty(3)
    with torch.cuda.device_of(s):
        _follow[(blocks,)](*(s, fast, slow, mean, *state, before, log_prior, parts, B, C), BLOCK=block, num_warps=1)
        _shift[(B,)](
            *(log_prior, parts, before, *state, B, C, blocks),
            SAMPLES=triton.next_power_of_2(B),
            BLOCKS=triton.next_power_of_2(blocks),
            BLOCK=min(_CLASSES_AT_ONCE, int(triton.next_power_of_2(C))),
        )
    return log_prior


@triton.jit
def _follow(s, fast, slow, mean, found, by_chance, count, before, recent, parts, B, C, BLOCK: tl.constexpr):
    """Follow a block of classes: e_f + e_s as each sample meets it, and the block's part of s·e_f and s·(Σs + 10/C)."""
    block = tl.program_id(0)
    classes = block * BLOCK + tl.arange(0, BLOCK)
    inside = classes < C
    start = _START + tl.load(count).to(tl.float64)
    if block == 0:  # the second kernel overwrites them
        tl.store(before, tl.load(found))
        tl.store(before + 1, tl.load(by_chance))
        tl.store(before + 2, start - _START)
    quick = tl.load(fast + classes, mask=inside, other=0.0)
    steady = tl.load(slow + classes, mask=inside, other=0.0)
    total = tl.load(mean + classes, mask=inside, other=0.0) * start
    ahead = tl.load(s + classes, mask=inside, other=0.0)
    for b in range(0, B):
        here = ahead
        ahead = tl.load(s + tl.minimum(b + 1, B - 1) * C + classes, mask=inside, other=0.0)  # needed later
        part = parts + b * tl.num_programs(0) + block
        tl.store(part, tl.sum(here * quick, 0))
        tl.store(part + B * tl.num_programs(0), tl.sum(here * total, 0))
        tl.store(recent + b * C + classes, quick + steady, mask=inside)
        quick += _FAST * (here - quick)
        steady += _SLOW * (here - steady)
        total += here
    tl.store(fast + classes, quick, mask=inside)
    tl.store(slow + classes, steady, mask=inside)
    tl.store(mean + classes, total / (start + B), mask=inside)


@triton.jit
def _shift(
    log_prior, parts, before, found, by_chance, count, B, C, blocks,
    SAMPLES: tl.constexpr, BLOCKS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Put the prior of one sample in the place of e_f + e_s; the last one also keeps A, B and the count."""
    b = tl.program_id(0)
    sample, block = tl.arange(0, SAMPLES), tl.arange(0, BLOCKS)
    inside = (sample <= b)[:, None] & (block < blocks)[None, :]
    part = parts + sample[:, None] * blocks + block[None, :]
    with_recent = tl.sum(tl.load(part, mask=inside, other=0.0), 1)
    with_total = tl.sum(tl.load(part + B * blocks, mask=inside, other=0.0), 1)
    seen = tl.load(before + 2)
    new = tl.exp((seen + sample) * _LOG_NOT_STARTED)  # u
    still = tl.where(sample <= b, tl.exp((b - sample).to(tl.float64) * _LOG_KEPT), 0.0)
    first = tl.exp((b + 1).to(tl.float64) * _LOG_KEPT)
    A = first * tl.load(before) + 8 * tl.sum(still * (with_recent - new / C), 0)
    chance = first * tl.load(before + 1) + 8 * tl.sum(still * (1 - new) * with_total / (_START + seen + sample), 0)
    ratio = (A + 2) / (chance + 2) * 10 / 17
    square = ratio * ratio
    fourth = square * square
    eighth = fourth * fourth
    gate = 1.5 * eighth * eighth / (1 + eighth * eighth)
    for at in range(0, C, BLOCK):
        classes = at + tl.arange(0, BLOCK)
        here = log_prior + b * C + classes
        recent = tl.load(here, mask=classes < C, other=1.0)
        tl.store(here, gate * tl.log(recent * (C / 4.0) + 0.5), mask=classes < C)
    if b == B - 1:
        tl.store(found, A)
        tl.store(by_chance, chance)
        tl.store(count, (seen + B).to(tl.int64))

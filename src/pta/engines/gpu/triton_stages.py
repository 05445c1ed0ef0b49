"""The gate and the calibration behind a method on a GPU, for samples that are learned.

Three kernels: what each sample contributes; the temperatures of all samples in order; and the answers.
"""

from collections.abc import Mapping

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from pta.engines.balance import DOMINANCE, LEAK, PAIRS
from pta.engines.calibration import FEWEST, FIRST, FIRST_COUNTS, GRID, LESS_ERROR, SMALLEST, grid_on
from pta.engines.gpu.triton_ahead import ahead_on, wait_for_inputs
from pta.engines.gpu.triton_prior import MOST_SAMPLES, eighth_power
from pta.engines.gpu.triton_touches import split, whole
from pta.engines.zero_shot import ZeroShot

_CLASSES = 16  # that a program answers for
_LOGITS, _WARPS = 256, 8  # that a program has in registers for every temperature, and its warps
_LAST = tl.constexpr(len(GRID) - 1)
_PADDED = tl.constexpr(16)  # numbers in a row for all temperatures
_COUNT = tl.constexpr(15)  # the place of the count in such a row
_SMALLEST, _LESS_ERROR = tl.constexpr(SMALLEST), tl.constexpr(LESS_ERROR)
_MOST_COUNTED = tl.constexpr(1 / FEWEST)  # samples, in a running mean
_FIRST, _FIRST_COUNTS = tl.constexpr(FIRST), tl.constexpr(FIRST_COUNTS)
_PAIRS, _LEAK, _DOMINANCE = tl.constexpr(PAIRS), tl.constexpr(LEAK), tl.constexpr(DOMINANCE)


def answer_on_gpu(
    front: ZeroShot, logits: Tensor, state: Mapping[str, Tensor], logit_factor: float, *, gate: bool, matched: bool
) -> Tensor:
    """What gate and calibration make of a method's logits, B×C; both learn. The state is that of `Stages`, by name."""
    answers = logits.new_empty(logits.shape)
    if isinstance(logits, FakeTensor):  # without numbers no kernel can be launched, and none is needed
        return answers
    logits, s, z, C = logits.contiguous(), front.text_probabilities, front.exact_logits, logits.shape[1]
    none = z  # in the place of what a kernel does not use
    total, squares, opened = (state.get(f"gate_{name}", none) for name in ("total", "squares", "open"))
    gaps, count = (state.get(f"calibration_{name}", none) for name in ("gaps", "count"))
    grid, which = grid_on(logits.device), {"GATE": gate, "MATCHED": matched}
    inverse, ahead = split(1 / logit_factor), ahead_on(logits.device)
    with torch.cuda.device_of(logits):
        for begin in range(0, len(logits), MOST_SAMPLES):
            part = slice(begin, begin + MOST_SAMPLES)
            B = len(logits[part])
            excess, own_squares, tau, before = (
                z.new_empty(shape) for shape in ((B, _PADDED.value), B, B, _PADDED.value)
            )
            _contribute[(B,)](
                *(logits[part], s[part], grid, gaps, count, before, excess, own_squares, C),
                MATCHED=matched,
                BLOCK=_LOGITS,
                num_warps=_WARPS,
                **ahead,
            )
            samples = max(2, triton.next_power_of_2(B))
            _temper[(B,)](
                *(excess, own_squares, grid, before, gaps, count, squares, opened, tau, B, *inverse),
                **which,
                **ahead,
                SAMPLES=samples,
            )
            _answer[(triton.cdiv(C, _CLASSES),)](
                *(logits[part], z[part], s[part], total, opened, tau, answers[part], B, C),
                *(*inverse, *split(front.classifier.bias)),
                **which,
                **ahead,
                SAMPLES=samples,
                CLASSES=_CLASSES,
            )
    return answers


def open_gate_on_gpu(seen: Tensor, total: Tensor, squares: Tensor, opened: Tensor) -> None:
    """`pta.engines.balance.openness`, into `opened`."""
    if not isinstance(total, FakeTensor):
        with torch.cuda.device_of(total):
            _open[(1,)](seen, total, squares, opened, len(total), BLOCK=1024)


@triton.jit
def _contribute(
    logits, s, grid, gaps, count, before, excess, squares, C,
    MATCHED: tl.constexpr, BLOCK: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """Of one sample ‖s‖², and how much more confident than it should be the method would be at every temperature."""
    b, block, place = tl.program_id(0), tl.arange(0, BLOCK), tl.arange(0, _PADDED)
    wait_for_inputs(AHEAD)
    if MATCHED:
        if b == 0:  # the next kernel overwrites them
            seen = tl.load(count)
            running = tl.load(gaps + place, mask=(place <= _LAST) & (seen > 0), other=0.0)
            tl.store(before + place, tl.where(place == _COUNT, seen.to(tl.float64), running))
    square = tl.zeros([BLOCK], tl.float64)
    largest = tl.zeros([BLOCK], tl.float64)
    tops = tl.load(logits + b * C + block, mask=block < C, other=float("-inf"))
    for at in range(0, C, BLOCK):
        here = b * C + at + block
        p = tl.load(s + here, mask=at + block < C, other=0.0)
        square += p * p
        largest = tl.maximum(largest, p)
        tops = tl.maximum(tops, tl.load(logits + here, mask=at + block < C, other=float("-inf")))
    tl.store(squares + b, tl.sum(square, 0))
    if MATCHED:
        top = tl.max(tops, 0)
        colder = (1 / tl.load(grid + place, mask=place <= _LAST, other=1.0)).to(top.dtype)
        powers = tl.zeros([_PADDED, BLOCK], top.dtype)
        for at in range(0, C, BLOCK):
            below = tl.load(logits + b * C + at + block, mask=at + block < C, other=float("-inf")) - top
            powers += tl.exp(below[None, :] * colder[:, None])
        target = _LESS_ERROR * tl.max(largest, 0) + (1 - _LESS_ERROR)
        tl.store(excess + b * _PADDED + place, 1 / tl.sum(powers, 1).to(tl.float64) - target)


@triton.jit
def _temper(
    excess, own_squares, grid, before, gaps, count, squares, opened, tau, B, inverse, inverse_rest,
    GATE: tl.constexpr, MATCHED: tl.constexpr, SAMPLES: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """The temperature of one sample at its turn; the last one also counts all of them."""
    b, sample, place = tl.program_id(0), tl.arange(0, SAMPLES), tl.arange(0, _PADDED)
    wait_for_inputs(AHEAD)
    if GATE:
        if b == B - 1:
            tl.store(squares, tl.load(squares) + tl.sum(tl.load(own_squares + sample, mask=sample < B, other=0.0), 0))
    if MATCHED:
        first = tl.load(before + _COUNT)
        rate, kept = _rate_and_kept(first + sample)
        own_rate, own_kept = _rate_and_kept(first + b)
        of_start = tl.cumprod(kept, 0)
        still = tl.sum(tl.where(sample == b, of_start, 0.0), 0) / own_kept
        part = tl.where(sample < b, rate * still / of_start, 0.0)
        here = _gaps(excess, before, part, still, sample, place)
        above = _gaps(excess, before, part, still, sample, tl.minimum(place + 1, _LAST))
        # the part of each step of the grid that is before the zero
        passed = tl.minimum(tl.maximum(here / tl.maximum(here - above, _SMALLEST), 0.0), 1.0)
        theta = tl.load(grid + tl.minimum(place, _LAST))
        zero = 1.0 + tl.sum(passed * (tl.load(grid + tl.minimum(place + 1, _LAST)) - theta), 0)
        temperature = 2 + (zero * (first + b) + _FIRST * _FIRST_COUNTS) / (first + b + _FIRST_COUNTS) / 2
        if GATE:
            plain = whole(inverse, inverse_rest)
            temperature = plain + (temperature - plain) * tl.load(opened)
        tl.store(tau + b, temperature)
        if b == B - 1:
            counted = own_kept * here + own_rate * tl.load(excess + b * _PADDED + place)
            tl.store(gaps + place, counted, mask=place <= _LAST)
            tl.store(count, (first + B).to(tl.int64))


@triton.jit
def _rate_and_kept(t):
    """What sample t counts in the running means, and what it leaves of them."""
    rate = 1 / tl.minimum(t + 1, _MOST_COUNTED)
    return rate, tl.where(t == 0, 1.0, 1 - rate)  # there is nothing to leave at t = 0


@triton.jit
def _gaps(excess, before, part, still, sample, place):
    """The running means at some temperatures, of which the samples before are these parts."""
    rows = tl.load(excess + sample[:, None] * _PADDED + place[None, :], mask=(part > 0)[:, None], other=0.0)
    return still * tl.load(before + place) + tl.sum(part[:, None] * rows, 0)


@triton.jit
def _answer(
    logits, z, s, total, opened, tau, answers, B, C, inverse, inverse_rest, bias, bias_rest,
    GATE: tl.constexpr, MATCHED: tl.constexpr, SAMPLES: tl.constexpr, CLASSES: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """The answers for a few classes, and what the gate sums up of them."""
    sample, classes = tl.arange(0, SAMPLES), tl.program_id(0) * CLASSES + tl.arange(0, CLASSES)
    inside = (sample < B)[:, None] & (classes < C)[None, :]
    here = sample[:, None] * C + classes[None, :]
    wait_for_inputs(AHEAD)
    answer = tl.load(logits + here, mask=inside, other=0.0)
    if GATE:
        plain = whole(inverse, inverse_rest)
        zero_shot = tl.load(z + here, mask=inside, other=0.0) * plain + whole(bias, bias_rest) * (1 - plain)
        start, part = zero_shot.to(answer.dtype), tl.load(opened).to(answer.dtype)
        apart = answer - start
        answer = tl.where(part < 0.5, start + part * apart, answer - (1 - part) * apart)  # exact at both ends
        p = tl.load(s + here, mask=inside, other=0.0)
        sums = tl.load(total + classes, mask=classes < C, other=0.0) + tl.sum(p, 0)
        tl.store(total + classes, sums, mask=classes < C)
    if MATCHED:
        answer /= tl.load(tau + sample, mask=sample < B, other=1.0).to(answer.dtype)[:, None]
    tl.store(answers + here, answer, mask=inside)


@triton.jit
def _open(seen, total, squares, opened, C, BLOCK: tl.constexpr):
    """How far the gate is open."""
    together = tl.zeros([BLOCK], tl.float64)
    for at in range(0, C, BLOCK):
        sums = tl.load(total + at + tl.arange(0, BLOCK), mask=at + tl.arange(0, BLOCK) < C, other=0.0)
        together += sums * sums
    t = tl.load(seen).to(tl.float64)
    square = tl.load(squares)
    agreeing = C * (tl.sum(together, 0) - square)
    excess = tl.maximum((agreeing + _PAIRS) / (t * (t - 1) + _PAIRS) - 1, 0.0)
    with_itself = square / tl.maximum(t, 1.0)
    leak = excess * (1 - with_itself) / _LEAK
    dominance = excess / tl.maximum(C * with_itself - 1, 1e-9) / _DOMINANCE
    tl.store(opened, 1 / (1 + eighth_power(leak) + eighth_power(dominance)))

"""The rule on a GPU: every class is followed by a program of its own, its two vectors in registers from first to last.

Nothing is read back to the host. A single sample takes one kernel, softmax and fusion included. A batch takes four:
the probabilities that are large enough to learn from, as a table; a matrix product that scores every sample against
every R as it was before; a kernel that follows those classes that move, sample by sample while they do; and one that
scores the samples after their R has come to rest for good, all at once.
"""

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from pta.classifier import ZeroShotClassifier
from pta.engines.prototypes import Prototypes
from pta.engines.rule import SMALLEST_DECAY, Rule
from pta.engines.touches import DOUBT

# Measured on an H200, see docs/performance.md.
MOST_STEPS = 4  # samples for which as many steps are faster than a batch: benchmarks/results/gpu-forms.csv
_MOST_CLASSES_FOR_A_STEP = 2048  # each program computes the softmax for itself
_CLASSES_AT_ONCE = 1024  # in a program that computes probabilities
_NUMBERS_AT_ONCE = 2**22  # in the table of probabilities, 16 MiB
_PROGRAMS = 2048  # that share the classes of a batch; more than a GPU runs at a time
_A_THREADS_PART_OF_A_VECTOR, _A_THREADS_PART_OF_ROWS = 8, 64  # numbers that it keeps in registers
_RESTED_ROWS, _RESTED_NUMBERS = 32, 128  # samples, and numbers of each, that a program scores together
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
        *(B, C, d, *_split(classifier.scale), rule.threshold, DOUBT * rule.threshold),
        BLOCK=block,
        BLOCKS=triton.next_power_of_2(blocks),
    )
    return table


def advance_on_gpu(
    prototypes: Prototypes,
    classifier: ZeroShotClassifier,
    features: Tensor,
    z: Tensor,
    rule: Rule,
    *,
    seen: Tensor,
    onto: Tensor | None = None,
    table: Tensor | None = None,
) -> Tensor:
    """Learn B samples in order and score each against every class's R at its turn, B×C.

    Args:
        prototypes: in float32; changed in place.
        classifier: whose probabilities decide.
        features: B×d, in any precision.
        z: B×C zero-shot logits.
        rule: how to learn.
        seen: a whole number that B is added to.
        onto: B×C, what the scores are added to.
        table: C×B, the probabilities of touches if they are not those of z.
    """
    features, scores = features.contiguous(), torch.empty_like(z)
    by_steps = len(z) <= MOST_STEPS and table is None and classifier.classes <= _MOST_CLASSES_FOR_A_STEP
    size = 1 if by_steps else max(1, _NUMBERS_AT_ONCE // classifier.classes)
    with torch.cuda.device_of(z):
        for start in range(0, len(z), size):
            part = slice(start, start + size)
            batch = features[part], z[part], None if onto is None else onto[part], scores[part]
            if by_steps:
                _take_step(prototypes, classifier, *batch, rule, seen)
            else:
                touches = None if table is None else table[:, part].contiguous()
                _take_batch(prototypes, classifier, *batch, rule, seen, touches)
    return scores


def _take_step(
    prototypes: Prototypes,
    classifier: ZeroShotClassifier,
    features: Tensor,
    z: Tensor,
    onto: Tensor | None,
    scores: Tensor,
    rule: Rule,
    seen: Tensor,
) -> None:
    C, d = classifier.anchors.shape
    _step[(C,)](
        *(features, z, z if onto is None else onto, scores, classifier.anchors, *_state(prototypes), seen),
        *(C, d, *_split(classifier.scale), classifier.bias, rule.h, *_split(rule.w)),
        *(rule.threshold, DOUBT * rule.threshold, SMALLEST_DECAY, prototypes.arrived_within),
        **_switches(rule),
        ONTO=onto is not None,
        D=triton.next_power_of_2(d),
        CLASSES=triton.next_power_of_2(C),
        num_warps=_warps(d),
    )


def _take_batch(
    prototypes: Prototypes,
    classifier: ZeroShotClassifier,
    features: Tensor,
    z: Tensor,
    onto: Tensor | None,
    scores: Tensor,
    rule: Rule,
    seen: Tensor,
    table: Tensor | None,
) -> None:
    (B, C), d = z.shape, classifier.dim
    D, warps = triton.next_power_of_2(d), _warps(d)
    table = find_touches_on_gpu(classifier, features, z, rule) if table is None else table
    _score_all(prototypes.anchored, classifier, features, onto, scores)
    base, rests = z if onto is None else onto, torch.empty(C, dtype=torch.int32, device=z.device)
    _follow[(min(C, _PROGRAMS),)](
        *(features, table, base, scores, rests, classifier.anchors, *_state(prototypes), seen),
        *(B, C, d, classifier.scale, classifier.bias, rule.h, *_split(rule.w)),
        *(SMALLEST_DECAY, prototypes.arrived_within),
        **_switches(rule),
        ONTO=onto is not None,
        D=D,
        SAMPLES=triton.next_power_of_2(B),
        ROWS=max(1, _A_THREADS_PART_OF_ROWS * 32 * warps // D),
        num_warps=warps,
    )
    _score_rested[(min(C, _PROGRAMS), triton.cdiv(B, _RESTED_ROWS))](
        *(features, base, scores, rests, prototypes.anchored, B, C, d, classifier.scale, classifier.bias),
        ONTO=onto is not None,
        ROWS=_RESTED_ROWS,
        NUMBERS=_RESTED_NUMBERS,
    )


def _score_all(
    R: Tensor, classifier: ZeroShotClassifier, features: Tensor, onto: Tensor | None, scores: Tensor
) -> None:
    F = features.to(R.dtype)
    if onto is None:
        torch.mm(F * classifier.scale, R.T, out=scores)
    else:
        torch.addmm(onto, F, R.T, alpha=classifier.scale, out=scores)
    if classifier.bias:
        scores.add_(classifier.bias)


def _warps(d: int) -> int:
    return max(1, int(triton.next_power_of_2(d)) // (32 * _A_THREADS_PART_OF_A_VECTOR))


def _state(prototypes: Prototypes) -> tuple[Tensor, ...]:
    return tuple(getattr(prototypes, name) for name in ("knowledge", "anchored", "length", "touched", "resting"))


def _switches(rule: Rule) -> dict[str, bool]:
    return {
        "RECURSIVE": rule.anchor == "recursive",
        "RENORMALISE": rule.renormalise or rule.anchor == "fixed",
        "UPDATE_FIRST": rule.order == "update-first",
        "SATURATING": rule.weight == "saturating",
    }


def _split(number: float) -> tuple[float, float]:
    """A number as the sum of two that float32 holds, which is how kernels are given theirs."""
    near = float(np.float32(number))
    return near, number - near


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
    features,
    z,
    tops,
    totals,
    table,
    anchors,
    B,
    C,
    d,
    scale,
    scale_rest,
    threshold,
    doubt,
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
):
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
        exact = tl.cast(scale, tl.float64) + tl.cast(scale_rest, tl.float64)
        whole = _exact_total(features + b * d, anchors, C, d, exact, top)
        for first in range(block * BLOCK, tl.minimum((block + 1) * BLOCK, C), _FEW):
            few = first + tl.arange(0, _FEW)
            about = tl.exp(tl.load(z + b * C + few, mask=few < C, other=float("-inf")) - top) / total
            exactly = (tl.exp(_exact_logits(features + b * d, anchors, few, C, d, exact) - top) / whole).to(tl.float32)
            tl.store(table + few * B + b, exactly, mask=(exactly >= threshold) & (tl.abs(about - threshold) <= doubt))


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
def _keep_and_share(s, h, smallest_decay, SATURATING: tl.constexpr):
    """1−β and β, both to the last digits of float32, however small β is."""
    if SATURATING:
        x = s / h
        small = x * (1 - x / 2 * (1 - x / 3 * (1 - x / 4 * (1 - x / 5 * (1 - x / 6 * (1 - x / 7))))))
        share = tl.where(x < 0.5, small, 1 - tl.exp(-x))
        keep = tl.exp(-x)
    else:
        share = tl.minimum(s, 1.0)
        keep = tl.maximum(1 - s, smallest_decay)
    return keep, share


@triton.jit
def _length(v):
    """The length of a vector; by way of float64 where the squares are too small for float32."""
    square = tl.sum(v * v, 0)
    length = tl.sqrt(square)
    if square < 1e-24:
        wide = v.to(tl.float64)
        length = tl.sqrt(tl.sum(wide * wide, 0)).to(tl.float32)
    return length


@triton.jit
def _learn_and_score(
    P,
    R,
    T,
    f,
    s,
    hit,
    length,
    size,
    left,
    h,
    w,
    smallest_decay,
    within,
    RECURSIVE: tl.constexpr,
    RENORMALISE: tl.constexpr,
    UPDATE_FIRST: tl.constexpr,
    SATURATING: tl.constexpr,
):
    """What a sample does to a class that it hits or that still moves, and its cosine with R.

    `size` is ‖P‖ and `left` a bound on the way that R has left to P/‖P‖: each refresh shrinks it by pull/norm. The
    class goes on moving (`going`) until there is no way left.
    """
    if hit:
        keep, share = _keep_and_share(s, h, smallest_decay, SATURATING)
        P = keep * P + share * f
        left = 2.0
        if not RENORMALISE:
            size = _length(P)
    pull = w if RENORMALISE else (w * length).to(tl.float32)
    mixed = pull * (R if RECURSIVE else T) + (1 - w) * P
    norm = _length(mixed)
    if UPDATE_FIRST:
        cosine = tl.sum(mixed * f, 0) / norm
        if norm == 0:
            cosine = tl.sum(R * f, 0)
    else:
        cosine = tl.sum(R * f, 0)
    if norm > 0:
        R = mixed * (1 / norm)
    going = norm < 0
    if RECURSIVE:
        left = left * pull / norm
        going = left > within
        if not RENORMALISE:
            length = norm.to(tl.float64)
            going = going | (tl.abs(norm - size) > within * size)
    return P, R, length, size, left, going, cosine


@triton.jit
def _step(
    features,
    z,
    onto,
    scores,
    anchors,
    knowledge,
    anchored,
    lengths,
    touched,
    resting,
    seen,
    C,
    d,
    scale,
    scale_rest,
    bias,
    h,
    w,
    w_rest,
    threshold,
    doubt,
    smallest_decay,
    within,
    RECURSIVE: tl.constexpr,
    RENORMALISE: tl.constexpr,
    UPDATE_FIRST: tl.constexpr,
    SATURATING: tl.constexpr,
    ONTO: tl.constexpr,
    D: tl.constexpr,
    CLASSES: tl.constexpr,
):
    """One sample and one class, from the zero-shot logits of all classes to the score."""
    c = tl.program_id(0)
    at = tl.arange(0, D)
    vector = c * d + at
    R = tl.load(anchored + vector, mask=at < d, other=0.0)
    f = tl.load(features + at, mask=at < d, other=0.0).to(tl.float32)
    going = tl.load(resting + c) == 0 if RECURSIVE else c < 0
    base = tl.load(onto + c) + bias if ONTO else bias
    length = tl.load(lengths + c)
    s = _probability(features, z, anchors, c, C, d, scale, scale_rest, threshold, doubt, CLASSES)
    hit = s >= threshold
    if going | hit:
        P = tl.load(knowledge + vector, mask=at < d, other=0.0)
        T = R if RECURSIVE else tl.load(anchors + vector, mask=at < d, other=0.0)
        size, left = 1.0, 0.0
        if going:
            size = _length(P)
            left = _length(R - P * (1 / size))
        P, R, length, size, left, going, cosine = _learn_and_score(
            *(P, R, T, f, s, hit, length, size, left, h, w, smallest_decay, within),
            *(RECURSIVE, RENORMALISE, UPDATE_FIRST, SATURATING),
        )
        tl.store(anchored + vector, R, mask=at < d)
        tl.store(resting + c, going == 0)
        if hit:
            tl.store(knowledge + vector, P, mask=at < d)
            tl.store(touched + c, hit)
        if not RENORMALISE:
            tl.store(lengths + c, length)
    else:
        cosine = tl.sum(R * f, 0)
        if not RENORMALISE:
            if tl.load(touched + c) == 0:
                tl.store(lengths + c, length * (tl.cast(w, tl.float64) + tl.cast(w_rest, tl.float64)))
    tl.store(scores + c, base + scale * cosine)
    if c == 0:
        tl.store(seen, tl.load(seen) + 1)


@triton.jit
def _probability(feature, z, anchors, c, C, d, scale, scale_rest, threshold, doubt, CLASSES: tl.constexpr):
    """The probability of one class for one sample."""
    every = tl.arange(0, CLASSES)
    logits = tl.load(z + every, mask=every < C, other=float("-inf"))
    top = tl.max(logits, 0)
    s = tl.exp(tl.load(z + c) - top) / tl.sum(tl.exp(logits - top), 0)
    if tl.abs(s - threshold) <= doubt:
        exact = tl.cast(scale, tl.float64) + tl.cast(scale_rest, tl.float64)
        own = tl.max(_exact_logits(feature, anchors, c + tl.zeros([_FEW], tl.int32), C, d, exact), 0)
        s = (tl.exp(own - top) / _exact_total(feature, anchors, C, d, exact, top)).to(tl.float32)
    return s


@triton.jit
def _follow(
    features,
    table,
    onto,
    scores,
    rests,
    anchors,
    knowledge,
    anchored,
    lengths,
    touched,
    resting,
    seen,
    B,
    C,
    d,
    scale,
    bias,
    h,
    w,
    w_rest,
    smallest_decay,
    within,
    RECURSIVE: tl.constexpr,
    RENORMALISE: tl.constexpr,
    UPDATE_FIRST: tl.constexpr,
    SATURATING: tl.constexpr,
    ONTO: tl.constexpr,
    D: tl.constexpr,
    SAMPLES: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Follow those classes that move, one after the other, and note from which sample on each one rests for good."""
    at = tl.arange(0, D)
    sample = tl.arange(0, SAMPLES)
    for c in range(tl.program_id(0), C, tl.num_programs(0)):
        touching = tl.load(table + c * B + sample, mask=sample < B, other=0.0) > 0
        touch = tl.min(tl.where(touching, sample, B), 0)
        going = tl.load(resting + c) == 0 if RECURSIVE else c < 0
        length = tl.load(lengths + c)
        rest = B
        if not RENORMALISE:
            if tl.load(touched + c) == 0:
                for _ in range(0, touch):
                    length = length * (tl.cast(w, tl.float64) + tl.cast(w_rest, tl.float64))
                tl.store(lengths + c, length)
        if going | (touch < B):
            vector = c * d + at
            P = tl.load(knowledge + vector, mask=at < d, other=0.0)
            R = tl.load(anchored + vector, mask=at < d, other=0.0)
            T = R if RECURSIVE else tl.load(anchors + vector, mask=at < d, other=0.0)
            size, left = 1.0, 0.0
            b = touch
            if touch < B:
                tl.store(touched + c, touch < B)
            if going:
                b = 0
                size = _length(P)
                left = _length(R - P * (1 / size))
            f = tl.load(features + b * d + at, mask=at < d, other=0.0).to(tl.float32)
            s = tl.load(table + c * B + b)
            while b < B:
                if going | (s > 0):
                    ahead = tl.minimum(b + 1, B - 1)  # loaded now, needed later
                    f_ahead = tl.load(features + ahead * d + at, mask=at < d, other=0.0).to(tl.float32)
                    s_ahead = tl.load(table + c * B + ahead)
                    base = tl.load(onto + b * C + c) + bias if ONTO else bias
                    P, R, length, size, left, going, cosine = _learn_and_score(
                        *(P, R, T, f, s, s > 0, length, size, left, h, w, smallest_decay, within),
                        *(RECURSIVE, RENORMALISE, UPDATE_FIRST, SATURATING),
                    )
                    tl.store(scores + b * C + c, base + scale * cosine)
                    b += 1
                    f = f_ahead
                    s = s_ahead
                else:
                    touch = tl.min(tl.where(touching & (sample > b), sample, B), 0)
                    if touch == B:
                        rest = b
                    else:
                        for first in range(b, touch, ROWS):
                            rows = first + tl.arange(0, ROWS)
                            inside = (rows < touch)[:, None] & (at < d)[None, :]
                            F = tl.load(features + rows[:, None] * d + at[None, :], mask=inside, other=0.0)
                            several = scale * tl.sum(F.to(tl.float32) * R[None, :], 1) + bias
                            if ONTO:
                                several += tl.load(onto + rows * C + c, mask=rows < touch, other=0.0)
                            tl.store(scores + rows * C + c, several, mask=rows < touch)
                        f = tl.load(features + touch * d + at, mask=at < d, other=0.0).to(tl.float32)
                        s = tl.load(table + c * B + touch)
                    b = touch
            tl.store(knowledge + vector, P, mask=at < d)
            tl.store(anchored + vector, R, mask=at < d)
            tl.store(resting + c, going == 0)
            if not RENORMALISE:
                tl.store(lengths + c, length)
        tl.store(rests + c, rest)
    if tl.program_id(0) == 0:
        tl.store(seen, tl.load(seen) + B)


@triton.jit
def _score_rested(
    features,
    onto,
    scores,
    rests,
    anchored,
    B,
    C,
    d,
    scale,
    bias,
    ONTO: tl.constexpr,
    ROWS: tl.constexpr,
    NUMBERS: tl.constexpr,
):
    """Score a block of samples against those classes that have come to rest before its end."""
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    for c in range(tl.program_id(0), C, tl.num_programs(0)):
        rest = tl.load(rests + c)
        if rest < tl.minimum((tl.program_id(1) + 1) * ROWS, B):
            after = (rows >= rest) & (rows < B)
            cosines = tl.zeros([ROWS], tl.float32)
            for first in range(0, d, NUMBERS):
                at = first + tl.arange(0, NUMBERS)
                inside = after[:, None] & (at < d)[None, :]
                F = tl.load(features + rows[:, None] * d + at[None, :], mask=inside, other=0.0).to(tl.float32)
                R = tl.load(anchored + c * d + at, mask=at < d, other=0.0)
                cosines += tl.sum(F * R[None, :], 1)
            several = scale * cosines + bias
            if ONTO:
                several += tl.load(onto + rows * C + c, mask=after, other=0.0)
            tl.store(scores + rows * C + c, several, mask=after)

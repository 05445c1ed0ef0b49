"""The rule on a GPU: every class is followed by a program of its own, its two vectors in registers from first to last.

Nothing is read back to the host. A single sample of not too many classes takes one kernel, softmax and fusion included.
A batch takes a few: the probabilities that are large enough to learn from, as a table (`triton_touches.py`); a matrix
product that scores every sample against every R as it was before; a kernel that follows those classes that move, sample
by sample while they do; and one that scores the samples after their R has come to rest for good, all at once.
"""

import warnings
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from pta.classifier import ZeroShotClassifier
from pta.engines.prototypes import Prototypes
from pta.engines.rule import Rule
from pta.engines.triton_touches import deciders, find_touches_on_gpu, probability, split, whole

# Measured on an H200, see docs/performance.md.
MOST_STEPS = 4  # samples for which as many steps are faster than a batch: benchmarks/results/gpu-forms.csv
_MOST_CLASSES_FOR_A_STEP = 2048  # each program computes the softmax for itself
_NUMBERS_AT_ONCE = 2**22  # in the table of probabilities, 16 MiB
_MOST_SAMPLES = 1024  # in a batch
_MOST_WARPS = 32
_PROGRAMS = 2048  # that share the classes of a batch; more than a GPU runs at a time
_A_THREADS_PART_OF_A_VECTOR, _A_THREADS_PART_OF_ROWS = 8, 64  # numbers that it keeps in registers
_RESTED_ROWS, _RESTED_NUMBERS = 32, 128  # samples, and numbers of each, that a program scores together


def works_on(device: torch.device) -> bool:
    """Whether kernels can be compiled and launched there; if not, says why, once."""
    classifier = ZeroShotClassifier(torch.eye(2, device=device), ["yes", "no"])
    rule = Rule(20.0, 0.01, 0.1, "recursive", "update-first", "saturating", renormalise=True)
    feature, seen = classifier.anchors[:1], torch.zeros((), dtype=torch.int64, device=device)
    state = Prototypes.fresh(classifier.anchors), classifier
    try:
        advance_on_gpu(*state, feature, classifier.logits(feature), rule, seen=seen)
    except Exception as error:  # whatever compiler or driver may say: there are other engines
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        warnings.warn(f"PTA does without its GPU kernels: {reason}", stacklevel=2)
        return False
    return True


class _Batch(NamedTuple):
    features: Tensor
    z: Tensor
    onto: Tensor | None
    scores: Tensor

    @property
    def base(self) -> Tensor:
        """What a kernel is given in the place of `onto`, which it does not read if there is none."""
        return self.z if self.onto is None else self.onto


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
    features, z = features.contiguous(), z.float().contiguous()
    onto = None if onto is None else onto.float().contiguous()
    scores = torch.empty_like(z)
    by_steps = len(z) <= MOST_STEPS and table is None and classifier.classes <= _MOST_CLASSES_FOR_A_STEP
    at_once = 1 if by_steps else min(_MOST_SAMPLES, max(1, _NUMBERS_AT_ONCE // classifier.classes))
    with torch.cuda.device_of(z):
        for start in range(0, len(z), at_once):
            part = slice(start, start + at_once)
            batch = _Batch(features[part], z[part], None if onto is None else onto[part], scores[part])
            if by_steps:
                _take_step(prototypes, classifier, batch, rule, seen)
            elif table is None:
                touches = find_touches_on_gpu(classifier, batch.features, batch.z, rule)
                _take_batch(prototypes, classifier, batch, touches, rule, seen)
            else:
                _take_batch(prototypes, classifier, batch, table[:, part].contiguous(), rule, seen)
    return scores


def _take_step(prototypes: Prototypes, classifier: ZeroShotClassifier, batch: _Batch, rule: Rule, seen: Tensor) -> None:
    C, d = classifier.anchors.shape
    _step[(C,)](
        *(batch.features, batch.z, batch.base, batch.scores, classifier.anchors, *_state(prototypes), seen),
        *(C, d, *deciders(classifier, rule), rule.h, *split(rule.w), 1 - rule.w, prototypes.arrived_within),
        **_switches(rule),
        ONTO=batch.onto is not None,
        D=triton.next_power_of_2(d),
        CLASSES=triton.next_power_of_2(C),
        num_warps=_warps(d),
    )


def _take_batch(
    prototypes: Prototypes, classifier: ZeroShotClassifier, batch: _Batch, table: Tensor, rule: Rule, seen: Tensor
) -> None:
    (B, C), d = batch.z.shape, classifier.dim
    D, warps, onto = triton.next_power_of_2(d), _warps(d), batch.onto is not None
    numbers = B, C, d, classifier.scale, classifier.bias
    rests = torch.empty(C, dtype=torch.int32, device=table.device)
    _score_all(prototypes.anchored, classifier, batch)
    _follow[(min(C, _PROGRAMS),)](
        *(batch.features, table, batch.base, batch.scores, rests, classifier.anchors, *_state(prototypes), seen),
        *(*numbers, rule.h, *split(rule.w), 1 - rule.w, prototypes.arrived_within),
        **_switches(rule),
        ONTO=onto,
        D=D,
        SAMPLES=triton.next_power_of_2(B),
        ROWS=max(1, _A_THREADS_PART_OF_ROWS * 32 * warps // D),
        num_warps=warps,
    )
    _score_rested[(min(C, _PROGRAMS), triton.cdiv(B, _RESTED_ROWS))](
        *(batch.features, batch.base, batch.scores, rests, prototypes.anchored, *numbers),
        ONTO=onto,
        ROWS=_RESTED_ROWS,
        NUMBERS=_RESTED_NUMBERS,
    )


def _score_all(R: Tensor, classifier: ZeroShotClassifier, batch: _Batch) -> None:
    F = batch.features.to(R.dtype)
    if batch.onto is None:
        torch.mm(F * classifier.scale, R.T, out=batch.scores)
    else:
        torch.addmm(batch.onto, F, R.T, alpha=classifier.scale, out=batch.scores)
    if classifier.bias:
        batch.scores.add_(classifier.bias)


def _warps(d: int) -> int:
    return min(_MOST_WARPS, max(1, int(triton.next_power_of_2(d)) // (32 * _A_THREADS_PART_OF_A_VECTOR)))


def _state(prototypes: Prototypes) -> tuple[Tensor, ...]:
    return tuple(getattr(prototypes, name) for name in ("knowledge", "anchored", "length", "touched", "resting"))


def _switches(rule: Rule) -> dict[str, bool]:
    return {
        "RECURSIVE": rule.anchor == "recursive",
        "RENORMALISE": rule.renormalise or rule.anchor == "fixed",
        "UPDATE_FIRST": rule.order == "update-first",
        "SATURATING": rule.weight == "saturating",
    }


@triton.jit
def _keep_and_share(s, h, SATURATING: tl.constexpr):
    """1−β and β, both to the last digits of float32, however small β is."""
    if SATURATING:
        x = s / h
        small = x * (1 - x / 2 * (1 - x / 3 * (1 - x / 4 * (1 - x / 5 * (1 - x / 6 * (1 - x / 7 * (1 - x / 8)))))))
        share = tl.where(x < 0.5, small, 1 - tl.exp(-x))
        keep = tl.exp(-x)
    else:
        share = tl.minimum(s, 1.0)
        keep = 1 - share
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
def _way_left(P, R, going):
    """‖P‖, and how far R is from P/‖P‖; of a class that rests, neither is needed."""
    size, left = 1.0, 0.0
    if going:
        size = _length(P)
        left = _length(R - P * (1 / size))
    return size, left


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
    push,
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
        keep, share = _keep_and_share(s, h, SATURATING)
        P = keep * P + share * f
        left = 2.0
        if not RENORMALISE:
            size = _length(P)
    pull = w if RENORMALISE else (w * length).to(tl.float32)
    mixed = pull * (R if RECURSIVE else T) + push * P
    norm = _length(mixed)
    if UPDATE_FIRST:
        cosine = tl.sum(mixed * f, 0) / norm
        if norm == 0:
            cosine = tl.sum(R * f, 0)
    else:
        cosine = tl.sum(R * f, 0)
    if norm > 0:
        R = mixed * (1 / norm)
    going = norm < 0  # False
    if RECURSIVE:
        left = left * pull / norm
        going = left > within
        if not RENORMALISE:
            length = norm.to(tl.float64)
            going = going | (tl.abs(norm - size) > 3 * within * size)  # float32 cannot tell them apart much closer
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
    threshold,
    doubt,
    h,
    w,
    w_rest,
    push,
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
    s = probability(features, z, anchors, c, C, d, scale, scale_rest, bias, threshold, doubt, CLASSES)
    hit = s >= threshold
    if going | hit:
        P = tl.load(knowledge + vector, mask=at < d, other=0.0)
        T = R if RECURSIVE else tl.load(anchors + vector, mask=at < d, other=0.0)
        size, left = _way_left(P, R, going)
        P, R, length, size, left, going, cosine = _learn_and_score(
            *(P, R, T, f, s, hit, length, size, left, h, w, push, within),
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
                tl.store(lengths + c, length * whole(w, w_rest))
    tl.store(scores + c, base + scale * cosine)
    if c == 0:
        tl.store(seen, tl.load(seen) + 1)


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
    push,
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
                    length = length * whole(w, w_rest)
                tl.store(lengths + c, length)
        if going | (touch < B):
            vector = c * d + at
            P = tl.load(knowledge + vector, mask=at < d, other=0.0)
            R = tl.load(anchored + vector, mask=at < d, other=0.0)
            T = R if RECURSIVE else tl.load(anchors + vector, mask=at < d, other=0.0)
            size, left = _way_left(P, R, going)
            if touch < B:
                tl.store(touched + c, touch < B)
            b = tl.where(going, 0, touch)
            f = tl.load(features + b * d + at, mask=at < d, other=0.0).to(tl.float32)
            s = tl.load(table + c * B + b)
            while b < B:
                if going | (s > 0):
                    ahead = tl.minimum(b + 1, B - 1)  # loaded now, needed later
                    f_ahead = tl.load(features + ahead * d + at, mask=at < d, other=0.0).to(tl.float32)
                    s_ahead = tl.load(table + c * B + ahead)
                    base = tl.load(onto + b * C + c) + bias if ONTO else bias
                    P, R, length, size, left, going, cosine = _learn_and_score(
                        *(P, R, T, f, s, s > 0, length, size, left, h, w, push, within),
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

"""The kernels of `triton.py`: what happens to one class, for one sample or for a batch."""

import triton
import triton.language as tl
from triton.language import constexpr

from pta.engines.gpu.triton_touches import probability, whole


@triton.jit
def _keep_and_share(s, h, SATURATING: constexpr):
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
    P, R, T, f, s, hit, length, size, left, h, w, push, within,
    RECURSIVE: constexpr, RENORMALISE: constexpr, UPDATE_FIRST: constexpr, SATURATING: constexpr,
):  # fmt: skip
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
def step(
    features, z, onto, scores, anchors, knowledge, anchored, lengths, touched, resting,
    C, d, scale, scale_rest, bias, threshold, doubt, h, w, w_rest, push, within,
    RECURSIVE: constexpr, RENORMALISE: constexpr, UPDATE_FIRST: constexpr, SATURATING: constexpr, ONTO: constexpr,
    D: constexpr, CLASSES: constexpr,
):  # fmt: skip
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


@triton.jit
def follow(
    features, table, onto, scores, rests, anchors, knowledge, anchored, lengths, touched, resting,
    B, C, d, scale, bias, h, w, w_rest, push, within,
    RECURSIVE: constexpr, RENORMALISE: constexpr, UPDATE_FIRST: constexpr, SATURATING: constexpr, ONTO: constexpr,
    D: constexpr, SAMPLES: constexpr, ROWS: constexpr,
):  # fmt: skip
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


@triton.jit
def score_rested(
    features, onto, scores, rests, anchored, B, C, d, scale, bias, ONTO: constexpr, ROWS: constexpr, NUMBERS: constexpr
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

"""How Pillow resizes: by which weights, and along which side first. In closed form, in the same order of operations.

Pillow resizes bytes in integers, in one pass across and one down. A pixel becomes a sum of those near it, rounded and
clipped to a byte. The weights are computed in float64 and rounded to multiples of 2⁻²². Nothing here depends on the
device: float64 sums, products and quotients are the same on all, and sines are taken on the host.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import PIL
import torch
from torch import Tensor

BITS = 22  # of a weight, behind the point
_PILLOW = tuple(map(int, PIL.__version__.split(".")[:2]))


class LineWeights(NamedTuple):
    """How lines are resized: pixel j of line m is the sum of `weights[k, m, j]` times its pixel `first[m, j]` + k.

    Weights of pixels behind a line's end are zero.
    """

    first: Tensor  # int32, lines×size
    weights: Tensor  # int32, taps×lines×size, by 2⁻²²


def line_weights(
    lengths: Sequence[tuple[int, int, int]], size: int, resample: str, device: torch.device | None = None
) -> LineWeights:
    """The weights for lines of one length each, resized to another, of which `size` pixels are kept from a third on.

    >>> line_weights([(4, 2, 0)], 2, "bilinear").weights[:, 0, 0] / 2**22
    tensor([0.4286, 0.4286, 0.1429, 0.0000, 0.0000])
    """
    if resample == "nearest":
        return _nearest(lengths, size, device)
    before, after, start = torch.tensor(lengths, dtype=torch.float64, device=device).T[:, :, None]
    scale = before / after
    stretch = scale.clamp(min=1.0)
    support = _REACH[resample] * stretch
    centre = (start + torch.arange(size, device=device) + 0.5) * scale
    first = (centre - support + 0.5).trunc().clamp(min=0.0)
    end = torch.minimum((centre + support + 0.5).trunc(), before)
    taps = max(count_taps(before, after, resample) for before, after, _ in lengths)
    place = first + torch.arange(taps, device=device)[:, None, None]
    weights = _SHAPES[resample]((place - centre + 0.5) * (1.0 / stretch)).where(place < end, 0.0)
    total = torch.zeros_like(centre)
    for weight in weights:  # in this order, which decides the last bit
        total += weight
    weights = weights / total * 2**BITS
    return LineWeights(first.int(), (weights + torch.where(weights < 0, -0.5, 0.5)).int())


def count_taps(before: int, after: int, resample: str) -> int:
    """How many pixels a pixel of a resized line is made of, at most."""
    return 1 if resample == "nearest" else int(2 * _REACH[resample] * max(before / after, 1.0)) + 1


def needed_pixels(before: int, after: int, start: int, size: int, resample: str) -> tuple[int, int]:
    """The first and the end of the pixels that the kept part of a resized line is made of."""
    scale = before / after
    support = _REACH[resample] * max(scale, 1.0)
    first, last = ((place + 0.5) * scale for place in (start, start + size - 1))
    return max(0, int(first - support + 0.5)), min(before, int(last + support + 0.5))


def across_first(width: int, height: int, resized_width: int, resized_height: int) -> bool:
    """Whether Pillow resizes a picture across before it resizes it down, which changes bytes."""
    if _PILLOW >= (13, 0):
        narrow = height - resized_height > 2 * (width - resized_width)
    else:
        narrow = _PILLOW >= (12, 3) and height > 100 * width
    return resized_height >= height or not narrow


def _nearest(lengths: Sequence[tuple[int, int, int]], size: int, device: torch.device | None) -> LineWeights:
    """One pixel for each. Pillow adds up the steps between them one by one."""
    places = []
    for before, after, start in lengths:
        steps = np.full(start + size, before / after)
        steps[0] *= 0.5
        places.append(np.add.accumulate(steps)[start:])
    first = torch.from_numpy(np.stack(places).astype(np.int32)).to(device)
    return LineWeights(first, torch.full_like(first, 1 << BITS)[None])


def _bilinear(x: Tensor) -> Tensor:
    return (1.0 - x.abs()).where(x.abs() < 1.0, 0.0)


def _bicubic(x: Tensor) -> Tensor:
    x = x.abs()
    near = (1.5 * x - 2.5) * x * x + 1.0
    far = (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5
    return near.where(x < 1.0, far.where(x < 2.0, 0.0))


def _lanczos(x: Tensor) -> Tensor:
    return (_sinc(x) * _sinc(x / 3.0)).where((x >= -3.0) & (x < 3.0), 0.0)


def _sinc(x: Tensor) -> Tensor:
    angle = x * math.pi
    sine = angle.to("cpu", copy=True).apply_(math.sin)  # the C library's, as in Pillow; torch's has other last bits
    return (sine.to(x.device) / angle).where(x != 0.0, 1.0)


_SHAPES = {"bilinear": _bilinear, "bicubic": _bicubic, "lanczos": _lanczos}
"""The weight of a pixel by its distance, in pixels of the shorter line."""
_REACH = {"nearest": 1.0, "bilinear": 1.0, "bicubic": 2.0, "lanczos": 3.0}
"""The distance from which on the weight is zero."""

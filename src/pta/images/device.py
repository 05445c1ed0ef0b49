"""Frames of one size to the pixels a model wants, on the device where they are and bit for bit as Pillow makes them.

Pillow resizes bytes in integers, in one pass across and one down: a pixel becomes a sum of those near it, by weights
that are multiples of 2⁻²², rounded and clipped to a byte. The weights need not be computed again. A line of 32-bit
zeros with a single 2²² comes out of Pillow's resizing as the weights of that pixel, rounded as they are for bytes; so
they are Pillow's own for every filter, and for nearest a one at the pixel that is copied.
Which pass comes first depends on the sizes and on Pillow's version, and changes bytes. Pillow is asked that too: noise,
resized at once and in two steps, shows it.
"""

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor, nn

from pta.errors import InvalidParameter, shown
from pta.images.preprocessing import FILTERS, Preprocessing, require_bytes

_BITS = 22  # of a weight, behind the point
_LINES_AT_ONCE = 64  # bounds memory, changes no result
_MOST_NOISE = 64  # pictures; one is enough unless the result has a few pixels only


class DevicePreprocessing(nn.Module):
    """A model's `Preprocessing.pixels` for uint8 frames N×channels×height×width, which stay on their device.

    Nothing is read back and no shape depends on a number, so it can be compiled, or recorded in a CUDA graph.

    >>> frames = torch.zeros(2, 3, 480, 640, dtype=torch.uint8)
    >>> DevicePreprocessing(Preprocessing(size=224), height=480, width=640)(frames).shape
    torch.Size([2, 3, 224, 224])
    """

    def __init__(self, preprocess: Preprocessing, height: int, width: int) -> None:
        super().__init__()
        if not all(type(side) is int and 1 <= side < 2**31 for side in (height, width)):
            raise InvalidParameter(f"frames must have at least one pixel, not {shown(height)}×{shown(width)}")
        self.expected = (len(preprocess.mean), height, width)
        resized, (left, top) = preprocess.geometry(width, height)
        resample, size = FILTERS[preprocess.resample], preprocess.size
        across = _Pass(3, _weights(width, resized[0], left, size, resample))
        down = _Pass(2, _weights(height, resized[1], top, size, resample))
        self.needed = (slice(None), slice(None), down.needed, across.needed)
        copies = 1 in (len(across.weights), len(down.weights))  # which is the same before and after the other pass
        across_first = copies or _across_first((width, height), resized, resample)
        self.passes = nn.Sequential(*((across, down) if across_first else (down, across)))

    def forward(self, frames: Tensor) -> Tensor:
        """Frames to uint8 N×channels×size×size."""
        require_bytes("frames", frames, self.expected, "for other sizes make another DevicePreprocessing")
        return self.passes(frames[self.needed])


class _Pass(nn.Module):
    """Each line along a dimension by the weights W, pixels before × pixels after, of which only a few are not zero.

    Sums fit into 32 bits: no filter's weights exceed 2 in sum, without their signs.
    """

    positions: Tensor
    weights: Tensor

    def __init__(self, dim: int, W: npt.NDArray[np.int32]) -> None:
        super().__init__()
        first, last = (W != 0).argmax(axis=0), len(W) - 1 - (W != 0)[::-1].argmax(axis=0)
        taps = int((last - first).max()) + 1
        positions = np.minimum(first, len(W) - taps) + np.arange(taps)[:, None]
        weights = np.take_along_axis(W, positions, axis=0)
        self.dim = dim
        self.needed = slice(int(positions.min()), int(positions.max()) + 1)
        self.register_buffer("positions", torch.from_numpy(positions - self.needed.start), persistent=False)
        self.register_buffer("weights", torch.from_numpy(weights)[(..., *[None] * (3 - dim))], persistent=False)

    def forward(self, pixels: Tensor) -> Tensor:
        """The needed part of every line to uint8, tap by tap, so that it is never held once for each."""
        total = pixels.new_full((), 1 << (_BITS - 1), dtype=torch.int32)
        for positions, weights in zip(self.positions, self.weights, strict=True):
            total = torch.addcmul(total, pixels.index_select(self.dim, positions), weights)
        return total.bitwise_right_shift_(_BITS).clamp_(0, 255).to(torch.uint8)


def _weights(before: int, after: int, start: int, size: int, resample: Image.Resampling) -> npt.NDArray[np.int32]:
    """What each pixel of a line gives to `size` pixels of the resized one from `start` on, before×size, by 2⁻²²."""
    units = (np.eye(_LINES_AT_ONCE, before, k, np.int32) << _BITS for k in range(0, before, _LINES_AT_ONCE))
    lines = (Image.fromarray(unit).resize((after, _LINES_AT_ONCE), resample) for unit in units)
    cut = [np.asarray(line.crop((start, 0, start + size, _LINES_AT_ONCE))) for line in lines]
    return np.concatenate(cut)[:before]


def _across_first(size: tuple[int, int], resized: tuple[int, int], resample: Image.Resampling) -> bool:
    """Whether Pillow resizes pictures of this width and height across before it resizes them down."""
    rng = np.random.default_rng(0)
    for _ in range(_MOST_NOISE):
        noise = Image.fromarray(rng.integers(0, 256, size[::-1], np.uint8))
        across_first = noise.resize((resized[0], size[1]), resample).resize(resized, resample)
        down_first = noise.resize((size[0], resized[1]), resample).resize(resized, resample)
        if across_first != down_first:
            return noise.resize(resized, resample) == across_first
    return True

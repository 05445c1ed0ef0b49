"""Pictures to the pixels a model wants, on the device where they are and bit for bit as Pillow makes them.

Frames of one size are resized by `DevicePreprocessing`, pictures of different sizes together by `resize_ragged`.
"""

from collections.abc import Sequence
from functools import cache, lru_cache
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from pta.door.foreign import works
from pta.door.images.preprocessing import Preprocessing, require_bytes
from pta.door.images.resize_weights import BITS, across_first, count_taps, line_weights, needed_pixels
from pta.door.private_cache import keep_code_private

Numbers = npt.NDArray[np.int64]

_LINES, _PIXELS = 8, 128  # of a program of the kernel; measured on an H200
_line_weights = lru_cache(maxsize=1)(line_weights)  # the same for all batches of pictures of one size


class DevicePreprocessing(nn.Module):
    """A model's `Preprocessing.pixels` for uint8 frames N×channels×height×width, which stay on their device.

    Nothing is read back and no shape depends on a number, so it can be compiled, or recorded in a CUDA graph.

    >>> frames = torch.zeros(2, 3, 480, 640, dtype=torch.uint8)
    >>> DevicePreprocessing(Preprocessing(size=224), height=480, width=640)(frames).shape
    torch.Size([2, 3, 224, 224])
    """

    def __init__(self, preprocess: Preprocessing, height: int, width: int) -> None:
        super().__init__()
        self.expected = (len(preprocess.mean), height, width)
        sides = plan(height, width, preprocess)
        rows, columns = (slice(side.start, side.end) for side in sorted(sides, key=lambda side: side.dim))
        self.needed = (slice(None), slice(None), rows, columns)
        self.passes = nn.Sequential(*(_Pass(side, preprocess) for side in sides))

    def forward(self, frames: Tensor) -> Tensor:
        """Frames to uint8 N×channels×size×size."""
        require_bytes("frames", frames, self.expected, "for other sizes make another DevicePreprocessing")
        return self.passes(frames[self.needed])


class _Pass(nn.Module):
    """Each line along a dimension by its weights. Sums fit into 32 bits: no filter's exceed 2 in sum, without signs."""

    positions: Tensor
    weights: Tensor

    def __init__(self, side: "Side", preprocess: Preprocessing) -> None:
        super().__init__()
        first, weights = line_weights([side.lengths], preprocess.size, preprocess.resample)
        positions = first - side.start + torch.arange(len(weights))[:, None]
        self.dim = 1 + side.dim
        self.register_buffer("positions", positions.clamp(max=side.needed - 1), persistent=False)
        self.register_buffer("weights", weights[(slice(None), 0, ..., *[None] * (2 - side.dim))], persistent=False)

    def forward(self, pixels: Tensor) -> Tensor:
        """The needed part of every line to uint8, tap by tap, so that it is never held once for each."""
        total = pixels.new_full((), 1 << (BITS - 1), dtype=torch.int32)
        for positions, weights in zip(self.positions, self.weights, strict=True):
            total = torch.addcmul(total, pixels.index_select(self.dim, positions), weights)
        return total.bitwise_right_shift_(BITS).clamp_(0, 255).to(torch.uint8)


@cache
def kernel_runs_on(device: torch.device) -> bool:
    """Whether a device resizes pictures of different sizes at once; if it should and cannot, says why."""
    if device.type != "cuda" or find_spec("triton") is None:
        return False
    keep_code_private()
    return works(
        lambda: resize_by_kernel([torch.zeros(3, 4, 4, dtype=torch.uint8, device=device)], Preprocessing(2)),
        "pictures are resized one by one",
    )


def resize_ragged(pictures: Sequence[Tensor], preprocess: Preprocessing) -> Tensor:
    """Pictures uint8 channels×height×width on one device, in any memory layout, to uint8 N×channels×size×size.

    >>> pictures = [torch.zeros(3, 480, 640, dtype=torch.uint8), torch.zeros(3, 300, 200, dtype=torch.uint8)]
    >>> resize_ragged(pictures, Preprocessing(size=24)).shape
    torch.Size([2, 3, 24, 24])
    """
    if kernel_runs_on(pictures[0].device):
        return resize_by_kernel(pictures, preprocess)
    alone = ((DevicePreprocessing(preprocess, *one.shape[1:]).to(one.device), one) for one in pictures)
    return torch.cat([resize(one[None]) for resize, one in alone])


def resize_by_kernel(pictures: Sequence[Tensor], preprocess: Preprocessing) -> Tensor:
    """The same for a whole batch at once, in Triton."""
    from pta.door.images.ragged_kernel import resize_lines

    channels, size, device = len(preprocess.mean), preprocess.size, pictures[0].device
    plans = [plan(*picture.shape[1:], preprocess) for picture in pictures]
    needed = np.array([then.needed for _, then in plans])
    resized = torch.empty(len(pictures), channels, size, size, dtype=torch.uint8, device=device)
    halfway = torch.empty(channels * size * int(needed.sum()), dtype=torch.uint8, device=device)
    lengths = tuple(dict.fromkeys(side.lengths for plan in plans for side in plan))
    first, weights = _line_weights(lengths, size, preprocess.resample, device)
    fields = torch.from_numpy(_fields(pictures, plans, lengths, halfway, resized)).to(device)
    with torch.cuda.device_of(resized):  # type: ignore[no-untyped-call]
        for number, most in enumerate((int(needed.max()), size)):
            blocks = -(-most // _LINES) * -(-size // _PIXELS)
            resize_lines[blocks, len(pictures), channels](
                *(fields[number], first, weights, size, len(lengths)),
                FIELDS=fields.shape[2],
                BITS=BITS,
                LINES=_LINES,
                PIXELS=_PIXELS,
                LINES_ARE_NEAR=number == 1,
            )
    return resized


class Side(NamedTuple):
    """The side of a picture along which one of the two passes resizes it."""

    lengths: tuple[int, int, int]  # before, after, and the start of the part that is kept
    dim: int  # of channels×height×width
    taps: int
    start: int  # of the pixels that are needed
    end: int

    @property
    def needed(self) -> int:
        return self.end - self.start


@lru_cache(maxsize=4096)
def plan(height: int, width: int, preprocess: Preprocessing) -> tuple[Side, Side]:
    """Both sides of a picture, in the order in which it is resized along them."""
    resized, (left, top) = preprocess.geometry(width, height)
    size, resample = preprocess.size, preprocess.resample
    across, down = (
        Side(lengths, dim, count_taps(*lengths[:2], resample), *needed_pixels(*lengths, size, resample))
        for dim, lengths in ((2, (width, resized[0], left)), (1, (height, resized[1], top)))
    )
    return (across, down) if across_first(width, height, *resized) else (down, across)


def _fields(
    pictures: Sequence[Tensor],
    plans: Sequence[tuple[Side, Side]],
    lengths: Sequence[tuple[int, int, int]],
    halfway: Tensor,
    resized: Tensor,
) -> Numbers:
    """What the kernel is told, passes×pictures×12: addresses and steps of source and target, counts, row of weights."""
    channels, size = resized.shape[1:3]
    row_of = {line: row for row, line in enumerate(lengths)}
    numbers = np.array([[(row_of[side.lengths], *side[1:]) for side in plan] for plan in plans])
    row, dim, taps, start, end = numbers.transpose(2, 1, 0)  # each 2×pictures
    steps = np.array([picture.stride() for picture in pictures])
    pixel_step, line_step = np.take_along_axis(steps, dim.T, axis=1).T
    source = np.array([picture.data_ptr() for picture in pictures]) + start[1] * line_step
    lines = end[1] - start[1]
    plane = lines * size
    between = halfway.data_ptr() + channels * (np.cumsum(plane) - plane)
    again = between - start[1] * size  # where the line would begin if all of it had been needed
    target = resized.data_ptr() + channels * size * size * np.arange(len(pictures))
    line_after, pixel_after = np.where(dim == 2, 1, size)  # steps in a resized picture
    passes = (
        (source, steps[:, 0], line_step, pixel_step, between, plane, size, 1, lines, end[0], taps[0], row[0]),
        (again, plane, 1, size, target, size * size, line_after, pixel_after, size, end[1], taps[1], row[1]),
    )
    return np.stack([np.stack(np.broadcast_arrays(*each), axis=1) for each in passes])

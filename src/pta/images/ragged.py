"""Pictures of different sizes, resized and cropped together on their device, bit for bit as Pillow does it."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from pta.images.device import DevicePreprocessing
from pta.images.preprocessing import Preprocessing
from pta.images.resize_weights import BITS, across_first, count_taps, line_weights, needed_pixels

_LINES, _PIXELS = 16, 64  # of a program of the kernel
_line_weights = lru_cache(maxsize=1)(line_weights)  # the same for all batches of pictures of one size


def resize_ragged(pictures: Sequence[Tensor], preprocess: Preprocessing) -> Tensor:
    """Pictures uint8 channels×height×width on one device, in any memory layout, to uint8 N×channels×size×size."""
    try:
        from pta.images.ragged_kernel import resize_lines
    except ImportError:  # Triton exists for Linux
        alone = ((DevicePreprocessing(preprocess, *one.shape[1:]).to(one.device), one) for one in pictures)
        return torch.cat([resize(one[None]) for resize, one in alone])
    channels, size, device = len(preprocess.mean), preprocess.size, pictures[0].device
    ways = [_sides(*picture.shape[1:], preprocess) for picture in pictures]
    lengths = tuple({side.lengths: None for way in ways for side in way})
    rows = {given: row for row, given in enumerate(lengths)}
    first, weights = _line_weights(lengths, size, preprocess.resample, device)
    resized = torch.empty(len(pictures), channels, size, size, dtype=torch.uint8, device=device)
    halfway = torch.empty(sum(channels * then.needed * size for _, then in ways), dtype=torch.uint8, device=device)
    passes: tuple[list[tuple[int, ...]], list[tuple[int, ...]]] = [], []
    between, target = halfway.data_ptr(), resized.data_ptr()
    for picture, (side, then) in zip(pictures, ways, strict=True):
        plane, line_step = then.needed * size, picture.stride(then.dim)
        source = picture.data_ptr() + then.start * line_step, picture.stride(0), line_step, picture.stride(side.dim)
        passes[0].append((*source, between, plane, size, 1, then.needed, side.end, side.taps, rows[side.lengths]))
        source = between - then.start * size, plane, 1, size
        steps = (size, 1) if side.dim == 1 else (1, size)
        passes[1].append((*source, target, size * size, *steps, size, then.end, then.taps, rows[then.lengths]))
        between, target = between + channels * plane, target + channels * size * size
    fields = torch.tensor(passes, device=device)
    for number, most in enumerate((max(then.needed for _, then in ways), size)):
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


class _Side(NamedTuple):
    """The side of a picture along which one of the two passes resizes it."""

    dim: int  # of channels×height×width
    lengths: tuple[int, int, int]  # before, after, and the start of the part that is kept
    start: int  # of the pixels that are needed
    end: int
    taps: int

    @property
    def needed(self) -> int:
        return self.end - self.start


@lru_cache(maxsize=4096)
def _sides(height: int, width: int, preprocess: Preprocessing) -> tuple[_Side, _Side]:
    """Both sides of a picture, in the order in which it is resized along them."""
    resized, (left, top) = preprocess.geometry(width, height)
    size, resample = preprocess.size, preprocess.resample
    across, down = (
        _Side(dim, lengths, *needed_pixels(*lengths, size, resample), count_taps(*lengths[:2], resample))
        for dim, lengths in ((2, (width, resized[0], left)), (1, (height, resized[1], top)))
    )
    return (across, down) if across_first(width, height, *resized) else (down, across)

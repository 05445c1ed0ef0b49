"""Frames of one size to the pixels a model wants, on the device where they are and bit for bit as Pillow makes them."""

import torch
from torch import Tensor, nn

from pta.door.images.preprocessing import Preprocessing, require_bytes
from pta.door.images.resize_weights import BITS, across_first, line_weights, needed_pixels
from pta.errors import InvalidParameter, shown


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
        across = _Pass(3, (width, resized[0], left), preprocess)
        down = _Pass(2, (height, resized[1], top), preprocess)
        self.needed = (slice(None), slice(None), down.needed, across.needed)
        in_order = (across, down) if across_first(width, height, *resized) else (down, across)
        self.passes = nn.Sequential(*in_order)

    def forward(self, frames: Tensor) -> Tensor:
        """Frames to uint8 N×channels×size×size."""
        require_bytes("frames", frames, self.expected, "for other sizes make another DevicePreprocessing")
        return self.passes(frames[self.needed])


class _Pass(nn.Module):
    """Each line along a dimension by its weights. Sums fit into 32 bits: no filter's exceed 2 in sum, without signs."""

    positions: Tensor
    weights: Tensor

    def __init__(self, dim: int, lengths: tuple[int, int, int], preprocess: Preprocessing) -> None:
        super().__init__()
        start, end = needed_pixels(*lengths, preprocess.size, preprocess.resample)
        first, weights = line_weights([lengths], preprocess.size, preprocess.resample)
        positions = first - start + torch.arange(len(weights))[:, None]
        self.dim = dim
        self.needed = slice(start, end)
        self.register_buffer("positions", positions.clamp(max=end - start - 1), persistent=False)
        self.register_buffer("weights", weights[(slice(None), 0, ..., *[None] * (3 - dim))], persistent=False)

    def forward(self, pixels: Tensor) -> Tensor:
        """The needed part of every line to uint8, tap by tap, so that it is never held once for each."""
        total = pixels.new_full((), 1 << (BITS - 1), dtype=torch.int32)
        for positions, weights in zip(self.positions, self.weights, strict=True):
            total = torch.addcmul(total, pixels.index_select(self.dim, positions), weights)
        return total.bitwise_right_shift_(BITS).clamp_(0, 255).to(torch.uint8)

"""Pillow's resize as two matrix products, bit for bit, in operations that other runtimes have, too.

Weights are multiples of 2⁻²² and pixels are bytes, so that float64 holds every product and every sum exactly.
"""

import torch
from torch import Tensor, nn

from pta.door.images.device import Side, plan
from pta.door.images.preprocessing import Preprocessing
from pta.door.images.resize_weights import BITS, line_weights

_GREY, _GREY_BITS = (19_595, 38_470, 7_471), 16  # Pillow's weights of red, green and blue


class ResizeByProducts(nn.Module):
    """A model's `Preprocessing.pixels` for one frame of bytes, height×width×3, red first.

    >>> frame = torch.zeros(480, 640, 3, dtype=torch.uint8)
    >>> ResizeByProducts(Preprocessing(size=224), height=480, width=640)(frame).shape
    torch.Size([1, 3, 224, 224])
    """

    def __init__(self, preprocess: Preprocessing, height: int, width: int) -> None:
        super().__init__()
        self.grey = len(preprocess.mean) == 1
        sides = plan(height, width, preprocess)
        self.dims = [side.dim for side in sides]
        self.lines = nn.ParameterList(
            nn.Parameter(_matrix(side, (height, width)[side.dim - 1], preprocess), requires_grad=False)
            for side in sides
        )

    def forward(self, frame: Tensor) -> Tensor:
        """The frame to uint8 1×channels×size×size."""
        pixels = frame.double().permute(2, 0, 1)
        if self.grey:
            red, green, blue = (weight * channel for weight, channel in zip(_GREY, pixels.unbind(), strict=True))
            pixels = _rounded((red + green + blue) / 2**_GREY_BITS)[None]
        for dim, matrix in zip(self.dims, self.lines, strict=True):
            pixels = _rounded(pixels @ matrix.T if dim == 2 else matrix @ pixels).clamp(0, 255)
        return pixels.to(torch.uint8)[None]


def _rounded(values: Tensor) -> Tensor:
    return torch.floor(values + 0.5)


def _matrix(side: Side, length: int, preprocess: Preprocessing) -> Tensor:
    """What each resized pixel takes from the pixels of a line, size×length."""
    first, weights = line_weights([side.lengths], preprocess.size, preprocess.resample)
    places = first[0] + torch.arange(len(weights))[:, None]  # taps×size
    matrix = torch.zeros(preprocess.size, length, dtype=torch.float64)
    rows = torch.arange(preprocess.size).expand_as(places)
    taken = weights[:, 0].double() / 2**BITS
    return matrix.index_put_((rows, places.clamp(max=length - 1).long()), taken, accumulate=True)

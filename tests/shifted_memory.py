"""What methods compute with, at addresses that torch's own allocator never gives.

torch allocates at multiples of 64 bytes. Slices, NumPy's arrays and mapped files lie elsewhere, where matrix products
may take another path and round differently. Shifted are the samples of every call of a method, the anchors, and every
piece of state; not shifted are models, and what is computed on the way.
"""

import torch
from torch import Tensor

from pta import Samples, ZeroShotClassifier
from pta.methods.state import Piece

_ALIGNMENT = 64


def shifted(tensor: Tensor, by: int) -> Tensor:
    """A copy whose address is so many bytes after a multiple of 64; a tensor of a GPU is given back as it is."""
    if tensor.device.type != "cpu":
        return tensor
    before = by // tensor.element_size()
    room = torch.empty(before + tensor.numel(), dtype=tensor.dtype)
    return room[before:].view(tensor.shape).copy_(tensor)


def shift_memory(by: int) -> None:
    """Shift from now on, in this process; a multiple of 8, the size of the largest numbers."""
    assert 0 < by < _ALIGNMENT, by
    assert by % 8 == 0, by
    move, make, start = Samples.to, ZeroShotClassifier.__init__, Piece.fresh

    def moved(self, like):
        tensors = move(self, like).tensors()
        return Samples.unchecked(**{name: shifted(one, by) for name, one in tensors.items()})

    def made(self, *arguments, **options):
        make(self, *arguments, **options)
        object.__setattr__(self, "anchors", shifted(self.anchors, by))

    Samples.to, ZeroShotClassifier.__init__, Piece.fresh = moved, made, lambda self: shifted(start(self), by)

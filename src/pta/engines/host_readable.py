"""Whether numbers are at hand: methods that need not look at any may still do so where that saves work."""

from torch import Tensor


def is_host_readable(tensor: Tensor) -> bool:
    """Whether looking at a tensor's numbers costs nothing: no device is waited for, and no recording broken off."""
    return tensor.is_cpu and type(tensor) is Tensor

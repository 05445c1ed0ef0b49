"""Whether the host can read a tensor for free: engines that need not read may do so where that saves work."""

from torch import Tensor


def is_host_readable(tensor: Tensor) -> bool:
    """Whether reading a tensor's numbers costs nothing: the host waits for no device and breaks off no recording."""
    return tensor.is_cpu and type(tensor) is Tensor

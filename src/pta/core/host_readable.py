"""Whether the host can read a tensor without waiting. Engines read tensors only where that saves work."""

from torch import Tensor


def is_host_readable(tensor: Tensor) -> bool:
    """Whether reading a tensor's values is free: the host waits for no device and no recording is broken."""
    return tensor.is_cpu and type(tensor) is Tensor

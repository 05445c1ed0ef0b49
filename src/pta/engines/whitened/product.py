"""Products of matrices, of which large ones in float32 on a host are those of oneDNN.

It uses all of AVX-512 on every processor that has it; MKL, which torch takes otherwise, does so on Intel's alone. For
each shape oneDNN compiles code and keeps it, 0.6 to 2 MB, for the 1,024 shapes that were used last. So only few numbers
of samples are multiplied by it. Numbers of classes are not limited: a process seldom has many.
"""

from math import prod

import torch
from torch import Tensor
from torch.nn.functional import linear

from pta.core.plain import is_host_readable

_LARGE, _WIDE = 2**23, 64  # multiplications, and the smallest of their three numbers, that are worth two copies
_SAMPLES = 64  # whose multiples are multiplied by it


def product(a: Tensor, b: Tensor) -> Tensor:
    """a·b."""
    numbers = *a.shape, b.shape[1]
    large = a.dtype == torch.float32 and min(numbers) >= _WIDE and prod(numbers) >= _LARGE
    if large and is_host_readable(a) and torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return linear(a.to_mkldnn(), b.T).to_dense()
    return a @ b


def product_with_samples(x: Tensor, b: Tensor) -> Tensor:
    """x·b of as many rows as there are samples."""
    return x @ b if len(x) % _SAMPLES else product(x, b)

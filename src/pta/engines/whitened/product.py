"""Products of matrices, of which large ones in float32 on a host are those of oneDNN.

It uses all of AVX-512 on every processor that has it; MKL, which torch takes otherwise, does so on Intel's alone.
"""

import torch
from torch import Tensor
from torch.nn.functional import linear

from pta.core.plain import is_host_readable

_LARGE = 2**22  # multiplications, from which it is worth two copies


def product(a: Tensor, b: Tensor) -> Tensor:
    """a·b, fastest where the columns of b are contiguous."""
    large = a.dtype == torch.float32 and a.numel() * b.shape[1] >= _LARGE
    if large and is_host_readable(a) and torch.backends.mkldnn.is_available():
        return linear(a.to_mkldnn(), b.T).to_dense()
    return a @ b

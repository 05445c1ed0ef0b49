"""Reads the four Fashion-MNIST files as Zalando distributes them: gzipped IDX."""

import gzip
from pathlib import Path

import numpy as np
import numpy.typing as npt

UINT8_IDX = b"\0\0\x08"  # an IDX header: two zeros, the type of the values, the number of axes


def read_idx(path: Path) -> npt.NDArray[np.uint8]:
    """One gzipped IDX file of uint8 values."""
    content = gzip.decompress(path.read_bytes())
    if content[:3] != UINT8_IDX:
        raise ValueError(f"{path} is not a gzipped IDX file of uint8 values; download it again")
    axes = content[3]
    shape = np.frombuffer(content, ">u4", count=axes, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)


def read_fashion(folder: Path, part: str) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Images and labels of `part`: "train" (60,000) or "t10k" (10,000, the test images)."""
    return (
        read_idx(folder / f"{part}-images-idx3-ubyte.gz"),
        read_idx(folder / f"{part}-labels-idx1-ubyte.gz"),
    )

"""Correctness per sample as a short text: bits in base64, the first sample in the highest bit."""

import base64
import binascii

import numpy as np
from numpy.typing import NDArray

from pta.errors import UnreadableFile, shown


def write_bits(values: NDArray[np.bool_]) -> str:
    """The text.

    >>> write_bits(np.array([True, False, False, True]))
    'kA=='
    """
    return base64.b64encode(np.packbits(values).tobytes()).decode()


def read_bits(text: str, count: int) -> NDArray[np.bool_]:
    """What was written.

    >>> read_bits("kA==", 4).tolist()
    [True, False, False, True]
    """
    try:
        packed = np.frombuffer(base64.b64decode(text, validate=True), np.uint8)
    except (binascii.Error, ValueError, TypeError):
        raise UnreadableFile("the record of correct predictions is not base64 (truncated or damaged?)") from None
    if not isinstance(count, int) or len(packed) != -(-count // 8):
        there = f"{8 * len(packed)} bits where there are {shown(count)} samples"
        raise UnreadableFile(f"the record of correct predictions has {there}")
    values = np.unpackbits(packed, count=count).astype(np.bool_)
    if write_bits(values) != text:
        raise UnreadableFile(f"the record of correct predictions has bits beyond its {count} samples (damaged?)")
    return values

"""Messages from a decoder's process: a header in JSON, then the pixels of pictures. No length is trusted."""

import json
import struct
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

_LENGTH = struct.Struct(">I")
_LONGEST = 2**16  # bytes of a header
_MOST_PICTURES = 256

Picture = NDArray[np.uint8]


def write_message(out: BinaryIO, header: dict[str, Any], pictures: Sequence[tuple[str, Picture]] = ()) -> None:
    """Write a message; the pictures are rows×columns×3, each with a name."""
    sizes = [(name, one.shape[1], one.shape[0]) for name, one in pictures]
    head = json.dumps({**header, "pictures": sizes}).encode()
    rows = (np.ascontiguousarray(one) for _, one in pictures)
    for part in (memoryview(_LENGTH.pack(len(head)) + head), *(one.data.cast("B") for one in rows)):
        rest = part
        while rest:
            rest = rest[out.write(rest) :]


def read_message(
    read_into: Callable[[memoryview], None], max_pixels: int
) -> tuple[dict[str, Any], list[tuple[str, Picture]]]:
    """Read a message; `read_into` fills a buffer, or raises EOFError. ValueError if it is none that we write."""
    (length,) = _LENGTH.unpack(_read(read_into, _LENGTH.size))
    if length > _LONGEST:
        raise ValueError("a header is too long")
    header = json.loads(bytes(_read(read_into, length)))
    sizes = header.pop("pictures")
    if len(sizes) > _MOST_PICTURES:
        raise ValueError("too many pictures")
    pictures = list[tuple[str, Picture]]()
    for name, width, height in sizes:
        if not (type(width) is type(height) is int and width >= 1 and height >= 1 and width * height <= max_pixels):
            raise ValueError("a picture is too large")
        pixels = np.empty((height, width, 3), np.uint8)
        read_into(pixels.data.cast("B"))
        pictures.append((str(name), pixels))
    return header, pictures


def _read(read_into: Callable[[memoryview], None], size: int) -> bytearray:
    content = bytearray(size)
    read_into(memoryview(content))
    return content

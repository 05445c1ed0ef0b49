"""The markers of a JPEG file."""

import re
from collections.abc import Iterator

START_OF_IMAGE, END_OF_IMAGE, START_OF_SCAN = 0xD8, 0xD9, 0xDA
WITHOUT_LENGTH = frozenset((0x01, *range(0xD0, 0xD9)))  # TEM, the restart markers and the start stand alone
METADATA = frozenset((*range(0xE1, 0xEE), 0xEF, 0xFE))  # APP0 and APP14 say what the colours are, the others do not

MARKER = re.compile(rb"\xff[\xc0-\xcf\xd8-\xfe]")
"""A marker that ends compressed data. In these FF is followed by 00 or by a restart marker, D0 … D7."""


def segments(content: bytes) -> Iterator[tuple[int, int, int]]:
    """The marker, the start and the end of each segment before the end of the image, as libjpeg goes through them.

    Compressed data after the head of a scan belong to no segment. What lies inside of a segment, such as a thumbnail
    with markers of its own, is passed over.
    """
    end = 2
    while found := MARKER.search(content, end):
        marker = content[found.end() - 1]
        if marker in (START_OF_IMAGE, END_OF_IMAGE):
            return
        end = found.end() + int.from_bytes(content[found.end() : found.end() + 2], "big")
        yield marker, found.start(), end

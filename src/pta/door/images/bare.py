"""An image file reduced to what its pixels are made of, so that no decoder sees anything else.

Metadata cost Pillow time and memory that no header announces: profiles and texts are unpacked, tags copied, pages
counted. They change no pixel here, and what they hold has no limit that suits all cameras. Therefore they are cut out.
"""

import re
import struct
from collections.abc import Callable
from typing import NamedTuple

from pta.door.images import jpeg

_NO_PIXELS = "it ends before its pixels"
_MOST_PARTS = 2**16  # segments, chunks, blocks or strips; each costs a decoder up to 20 microseconds
_PNG_CHUNKS = frozenset((b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"))
_GIF_EXTENSION, _GIF_CONTROL, _GIF_PICTURE = b"!", b"\xf9", b","
_TIFF_WIDTH, _TIFF_HEIGHT, _TIFF_COMPRESSION, _TIFF_TILE_WIDTH, _TIFF_TILE_HEIGHT = 256, 257, 259, 322, 323
_TIFF_SHORT = 3
_TIFF_SIZES = {3: 2, 4: 4, 5: 8, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8}  # bytes of a value, by its type; one for others
_TIFF_TAGS = frozenset(
    (
        *(256, 257, 258, 259, 262, 266, 274, 277, 284, 338, 339),  # size, samples, colours, orientation
        *(273, 278, 279, 322, 323, 324, 325),  # strips and tiles
        *(292, 293, 317, 347),  # compression
        *(320, 332, 529, 530, 531, 532),  # palette, inks, luminance
    )
)
# Not LZMA, which may ask for gigabytes; libtiff decodes up to 100 scans of a JPEG strip.
_TIFF_PASSES = {1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 7: 100, 8: 1, 32773: 1, 32946: 1}
_LONGEST_PPM_HEAD = 2**12
# Two numbers, or three, with spaces and comments between them, and one space after the last.
_PPM_BETWEEN = rb"(?:\s|(?<=\s)#[^\r\n]*[\r\n])+"
_PPM_HEAD = re.compile(rb"P(?:[14](?:%b\d+){2}|[^14]\S*(?:%b[^\s#]+){3})\s" % (_PPM_BETWEEN, _PPM_BETWEEN))


class BareImage(NamedTuple):
    """A file of one picture without metadata."""

    content: bytes
    passes: int = 1  # how often a decoder goes over the pixels
    pixels: int = 0  # that are decoded, where these are more than the picture's


def bare_image(content: bytes) -> tuple[str, BareImage] | None:
    """The format and the first picture of a file; None where the format is not read. Damage is a ValueError or so."""
    for start, name, reduce in _READ:
        if content.startswith(start):
            return name, reduce(content)
    return None


def _jpeg(content: bytes) -> BareImage:
    data, scans = memoryview(content), 0
    kept = [data[:2]]
    segments = jpeg.segments(content, _MOST_PARTS)
    _require_few(len(segments))
    for marker, start, end in segments:
        scans += marker == jpeg.START_OF_SCAN
        if scans == 0 and marker not in jpeg.METADATA:
            kept.append(data[start:end])
        elif scans == 1 and marker == jpeg.START_OF_SCAN:
            kept.append(data[start:])
    if not scans:
        raise ValueError(_NO_PIXELS)
    return BareImage(b"".join(kept), scans)


def _png(content: bytes) -> BareImage:
    data, start, number = memoryview(content), 8, 0
    kept = [data[:start]]
    while start + 8 <= len(content):
        _require_few(number := number + 1)
        length, kind = struct.unpack_from(">I4s", content, start)
        end = start + length + 12
        if kind in _PNG_CHUNKS:
            kept.append(data[start:end])
        start = end
    return BareImage(b"".join(kept))


def _gif(content: bytes) -> BareImage:
    flags = int.from_bytes(content[10:11])
    at, number = 13 + (6 << (flags & 7) if flags & 0x80 else 0), 0  # after the colour table
    kept = [content[:at]]
    while (kind := content[at : at + 1]) != _GIF_PICTURE:
        _require_few(number := number + 1)
        start, at = at, at + 1
        if kind == _GIF_EXTENSION:
            label, at = content[at : at + 1], at + 1
            while size := int.from_bytes(content[at : at + 1]):
                _require_few(number := number + 1)
                at += 1 + size
            at += 1
            if label == _GIF_CONTROL:
                kept.append(content[start:at])
        if at > len(content):
            raise ValueError(_NO_PIXELS)
    return BareImage(b"".join((*kept, content[at:])))


def _tiff(content: bytes) -> BareImage:
    """The same file with a new directory at its end, which leads to no metadata and no other page."""
    order = "<" if content.startswith(b"I") else ">"
    (at,) = struct.unpack_from(f"{order}I", content, 4)
    (count,) = struct.unpack_from(f"{order}H", content, at)
    tags: dict[int, bytes] = {}
    for start in range(at + 2, at + 2 + 12 * count, 12):
        tag, kind, values, place = struct.unpack_from(f"{order}HHII", content, start)
        if tag in _TIFF_TAGS:
            _require_few(values)
            size = values * _TIFF_SIZES.get(kind, 1)
            if size > 4 and place + size > len(content):
                raise ValueError(_NO_PIXELS)
            tags.setdefault(tag, content[start : start + 12])

    def number(tag: int, default: int) -> int:
        if tag not in tags:
            return default
        (kind,) = struct.unpack_from(f"{order}H", tags[tag], 2)
        return int(struct.unpack_from(f"{order}{'H' if kind == _TIFF_SHORT else 'I'}", tags[tag], 8)[0])

    compression, pixels = number(_TIFF_COMPRESSION, 1), 1
    if compression not in _TIFF_PASSES:
        raise ValueError(f"TIFF compression {compression} is not read; save it as PNG")
    for side, tile_side in ((_TIFF_WIDTH, _TIFF_TILE_WIDTH), (_TIFF_HEIGHT, _TIFF_TILE_HEIGHT)):
        length = number(side, 0)
        tile = max(1, number(tile_side, length))
        pixels *= -(-length // tile) * tile  # whole tiles are decoded
    start = len(content) + len(content) % 2
    directory = (struct.pack(f"{order}H", len(tags)), *(tags[tag] for tag in sorted(tags)), bytes(4))
    head = content[:4] + struct.pack(f"{order}I", start)
    bare = b"".join((head, memoryview(content)[8:], bytes(len(content) % 2), *directory))
    return BareImage(bare, _TIFF_PASSES[compression], pixels)


def _ppm(content: bytes) -> BareImage:
    """The file itself; Pillow reads the comments in its header one byte at a time."""
    if not _PPM_HEAD.match(content, 0, _LONGEST_PPM_HEAD):
        raise ValueError(f"its header is damaged, or has more than {_LONGEST_PPM_HEAD:,} bytes")
    return BareImage(content)


def _require_few(parts: int) -> None:
    if parts > _MOST_PARTS:
        raise ValueError(f"it has more than {_MOST_PARTS:,} parts")


_READ: tuple[tuple[bytes, str, Callable[[bytes], BareImage]], ...] = (
    (b"\xff\xd8\xff", "JPEG", _jpeg),
    (b"\x89PNG\r\n\x1a\n", "PNG", _png),
    (b"RIFF", "WEBP", BareImage),
    (b"GIF8", "GIF", _gif),
    (b"BM", "BMP", BareImage),
    (b"II*\0", "TIFF", _tiff),
    (b"MM\0*", "TIFF", _tiff),
    *((b"P%c" % kind, "PPM", _ppm) for kind in b"0123456fFy"),
)
FORMATS = tuple(dict.fromkeys(name for _, name, _ in _READ))
"""What is read; other formats that Pillow knows have been a source of trouble."""

"""An image file reduced to what its pixels are made of, so that no decoder sees anything else.

Metadata cost Pillow time and memory that no header announces: profiles and texts are unpacked, tags copied, pages
counted. They change no pixel here, and what they hold has no limit that suits all cameras. Therefore they are cut out.

GPU decoders take JPEG files that Pillow refuses, a truncated one for instance, and refuse others that it takes. One is
therefore decoded there only if it is baseline, one scan, 8 bits, grey or YCbCr, and complete. What is unusual in any
way is left to Pillow. What passes is a picture for Pillow too: libjpeg only warns of damage inside compressed data that
the end marker ends.
"""

import re
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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
    listed = segments(content, _MOST_PARTS)
    _require_few(len(listed))
    for marker, start, end in listed:
        scans += marker == START_OF_SCAN
        if scans == 0 and marker not in METADATA:
            kept.append(data[start:end])
        elif scans == 1 and marker == START_OF_SCAN:
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


START_OF_IMAGE, END_OF_IMAGE, START_OF_SCAN = 0xD8, 0xD9, 0xDA
WITHOUT_LENGTH = frozenset((0x01, *range(0xD0, 0xD9)))  # TEM, the restart markers and the start stand alone
METADATA = frozenset((*range(0xE1, 0xEE), 0xEF, 0xFE))  # APP0 and APP14 say what the colours are, the others do not

MARKER = re.compile(rb"\xff[\xc0-\xcf\xd8-\xfe]")
"""A marker that ends compressed data. In these FF is followed by 00 or by a restart marker, D0 … D7."""

_QUANTISATION, _HUFFMAN, _FRAME, _INTERVAL, _JFIF, _ADOBE = 0xDB, 0xC4, 0xC0, 0xDD, 0xE0, 0xEE
_END = b"\xff\xd9"
_MOST_SEGMENTS = 256
_LONGEST_SIDE = 65_500  # libjpeg refuses more
_SEGMENT = struct.Struct(">BBH")  # FF, the marker, the length of itself and what follows
_SIZE = struct.Struct(">BHHB")  # bits, height, width, components
_WHOLE = b"\0\x3f\0"  # all coefficients, with all their bits
_FROM = 256  # the numbers of quantisation tables, to tell them from Huffman tables
# Of luminance, where both chrominances have 1×1: what nvJPEG decodes.
_SAMPLINGS = frozenset(((1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (4, 2)))
_MOST_CODES = 256  # of a Huffman table
_FEWEST_BITS = 2  # of a block of 8×8: one for its mean, one for its end

Content = bytearray | NDArray[np.uint8]
"""The bytes of a file as torch takes them without a copy, which it does not do with `bytes`."""


def segments(content: bytes, most: int) -> list[tuple[int, int, int]]:
    """The marker, the start and the end of each segment before the end of the image, as libjpeg goes through them.

    At most one more than `most`. Compressed data after the head of a scan belong to no segment. What lies inside of a
    segment, such as a thumbnail with markers of its own, is passed over.
    """
    listed, end = list[tuple[int, int, int]](), 2
    while len(listed) <= most and (found := MARKER.search(content, end)):
        marker = content[found.end() - 1]
        if marker in (START_OF_IMAGE, END_OF_IMAGE):
            break
        end = found.end() + int.from_bytes(content[found.end() : found.end() + 2], "big")
        listed.append((marker, found.start(), end))
    return listed


class BaselineJpeg(NamedTuple):
    """A file without metadata and without what follows the picture, and the size that it announces."""

    content: Content
    width: int
    height: int


def baseline_jpeg(content: bytes) -> BaselineJpeg | None:
    """The picture of a file that every decoder reads alike; None for any other file."""
    try:
        return _walk(content)
    except (ValueError, IndexError, struct.error):  # it is unusual, or too short
        return None


def _walk(content: bytes) -> BaselineJpeg:
    _require(content.startswith(b"\xff\xd8"))
    data, start = memoryview(content), 2
    kept, tables, frame, restarts = [data[:start]], set[int](), b"", False
    for _ in range(_MOST_SEGMENTS):
        fill, marker, length = _SEGMENT.unpack_from(content, start)
        end = start + 2 + length
        body = content[start + 4 : end]
        _require(fill == 0xFF and len(body) == length - 2)
        if marker in (_QUANTISATION, _HUFFMAN):
            tables |= _tables(marker, body)
        elif marker == _FRAME:
            _require(not frame)
            frame = body
        elif marker == _INTERVAL:
            _require(len(body) == 2)
            restarts = any(body)
        elif marker == _JFIF:
            _require(not body.startswith(b"JFIF") or len(body) >= 14)
        elif marker == _ADOBE:
            _require(len(body) == 12 and body.startswith(b"Adobe") and body[11] == 1)  # YCbCr
        elif marker not in METADATA:
            break
        if marker not in METADATA:
            kept.append(data[start:end])
        start = end
    _require(marker == START_OF_SCAN)
    width, height, blocks = _measure(frame)
    _require_all_scanned(frame, body, tables)
    stop = len(content) - 2
    if content[stop:] != _END or _has_marker(data[end : stop + 1], restarts):
        stop = content.index(_END, end)  # something follows the picture
        _require(not _has_marker(data[end : stop + 1], restarts))
    _require(8 * (stop - end) >= _FEWEST_BITS * blocks)
    return BaselineJpeg(bytearray().join((*kept, data[start : stop + 2])), width, height)


@lru_cache(maxsize=1024)
def _tables(marker: int, body: bytes) -> frozenset[int]:
    """The numbers of the tables in a segment."""
    found, at = set(), 0
    while at < len(body):
        number, size = body[at], 64
        if marker == _QUANTISATION:
            _require(number < 4)  # and has 8 bits
            found.add(_FROM + number)
        else:
            counts = body[at + 1 : at + 17]
            size = 16 + sum(counts)
            # The code of all ones must be free, and a mean differs from the last one by at most 15 bits.
            _require(
                size <= 16 + _MOST_CODES and 0 < sum(count << (15 - bits) for bits, count in enumerate(counts)) < 2**16
            )
            _require(number & ~0x13 == 0 and (number >= 16 or max(body[at + 17 : at + 1 + size]) <= 15))
            found.add(number)
        at += 1 + size
    _require(at == len(body))
    return frozenset(found)


def _measure(frame: bytes) -> tuple[int, int, int]:
    """The width, the height and the number of blocks of 8×8 values that are coded."""
    bits, height, width, count = _SIZE.unpack_from(frame)
    names, (luminance, *others) = frame[6::3], [divmod(both, 16) for both in frame[7::3]]
    _require(bits == 8 and count in (1, 3) and len(frame) == 6 + 3 * count and len(set(names)) == count)
    _require(1 <= width <= _LONGEST_SIDE and 1 <= height <= _LONGEST_SIDE and names != b"RGB")
    _require(luminance in _SAMPLINGS and set(others) == {(1, 1)} if others else luminance == (1, 1))
    across, down = luminance
    units = -(-width // (8 * across)) * -(-height // (8 * down))
    return width, height, units * (across * down + len(others))


def _require_all_scanned(frame: bytes, scan: bytes, tables: set[int]) -> None:
    """Refuse a scan that has not all components in order, whole and with tables that the file has."""
    names, coders = scan[1:-3:2], scan[2:-3:2]
    used = {*(_FROM + number for number in frame[8::3]), *(both >> 4 for both in coders)}
    used |= {16 + both % 16 for both in coders}
    _require(scan[0] == len(names) == len(coders) and names == frame[6::3] and scan[-3:] == _WHOLE and used <= tables)


def _has_marker(scan: memoryview, restarts: bool) -> bool:
    """Whether an FF in compressed data is followed by anything but 00, or a restart marker in data that restart."""
    data = np.frombuffer(scan, np.uint8)
    followers = (data[:-1] == 0xFF).view(np.uint8)
    followers *= data[1:]
    if restarts:
        followers = followers[followers & 0xF8 != 0xD0]
    return bool(followers.max(initial=0))


def _require(usual: bool) -> None:
    if not usual:
        raise ValueError

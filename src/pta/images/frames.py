"""Frames out of a pipe: JPEG or PNG pictures with nothing between them, as camera programs send them."""

from collections.abc import Iterator
from io import BufferedReader

from pta.errors import UnreadableSample
from pta.files import MAX_SAMPLE_BYTES

_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG = b"\xff\xd8"
_END_OF_IMAGE, _START_OF_SCAN = 0xD9, 0xDA
_PADDING = b"\0\r\n"  # what some cameras put between pictures
_WITHOUT_LENGTH = {0x01, *range(0xD0, 0xD8)}  # TEM and the restart markers stand alone


def split_frames(pipe: BufferedReader) -> Iterator[bytes]:
    """The pictures in a pipe, each as soon as its last byte has come.

    >>> import io
    >>> from PIL import Image
    >>> sent = io.BytesIO()
    >>> for side in (8, 16):
    ...     Image.new("RGB", (side, side)).save(sent, "JPEG")
    >>> frames = split_frames(io.BufferedReader(io.BytesIO(sent.getvalue())))
    >>> [Image.open(io.BytesIO(frame)).size for frame in frames]
    [(8, 8), (16, 16)]
    """
    frame = _Frame(pipe)
    while start := frame.begin():
        if start == _JPEG:
            _read_jpeg(frame)
        elif start == _PNG[:2] and start + frame.take(6) == _PNG:
            _read_png(frame)
        else:
            raise UnreadableSample(
                "the frames on standard input are neither JPEG nor PNG; with ffmpeg use -f image2pipe -c:v mjpeg -"
            )
        yield bytes(frame.content)


class _Frame:
    """One picture while it is read."""

    def __init__(self, pipe: BufferedReader) -> None:
        self.pipe = pipe
        self.content = bytearray()

    def begin(self) -> bytes:
        """The first two bytes of the next picture, after any padding; nothing when the pipe is at its end."""
        first = self.pipe.read(1)
        while first in _PADDING and first:
            first = self.pipe.read(1)
        self.content = bytearray(first + self.pipe.read(1) if first else b"")
        return bytes(self.content)

    def take(self, count: int) -> bytes:
        """More bytes of this picture."""
        if len(self.content) + count > MAX_SAMPLE_BYTES:
            raise UnreadableSample(f"a frame on standard input has more than {MAX_SAMPLE_BYTES >> 20} MiB")
        more = self.pipe.read(count)
        if len(more) < count:
            raise UnreadableSample("standard input ended in the middle of a frame")
        self.content += more
        return more

    def take_until(self, byte: bytes) -> None:
        """More bytes of this picture, to the next such byte and with it."""
        found = -1
        while found < 0:
            arrived = self.pipe.peek(1)
            found = arrived.find(byte)
            self.take(max(len(arrived), 1) if found < 0 else found + 1)


def _read_png(frame: _Frame) -> None:
    kind = b""
    while kind != b"IEND":
        head = frame.take(8)
        kind = head[4:]
        frame.take(int.from_bytes(head[:4], "big") + 4)  # the data and their checksum


def _read_jpeg(frame: _Frame) -> None:
    """Go from marker to marker: a thumbnail inside a segment also has an end-of-image, which is not ours."""
    marker = _next_marker(frame)
    while marker != _END_OF_IMAGE:
        if marker not in _WITHOUT_LENGTH:
            length = int.from_bytes(frame.take(2), "big")  # counts its own two bytes
            _require_sound(length >= 2)
            frame.take(length - 2)
        marker = _marker_after_scan(frame) if marker == _START_OF_SCAN else _next_marker(frame)


def _next_marker(frame: _Frame) -> int:
    _require_sound(frame.take(1) == b"\xff")
    return _marker_byte(frame)


def _marker_byte(frame: _Frame) -> int:
    marker = 0xFF
    while marker == 0xFF:  # padding
        marker = frame.take(1)[0]
    return marker


def _marker_after_scan(frame: _Frame) -> int:
    """Skip compressed data, in which FF is followed by 00 or a restart marker."""
    marker = 0
    while marker == 0 or marker in _WITHOUT_LENGTH:
        frame.take_until(b"\xff")
        marker = _marker_byte(frame)
    return marker


def _require_sound(sound: bool) -> None:
    if not sound:
        raise UnreadableSample("a JPEG frame on standard input is damaged")

"""Frames out of a pipe: JPEG or PNG pictures with nothing between them, as camera programs send them."""

import re
from collections.abc import Iterator
from io import BufferedReader

from pta.core.limits import USUAL_LIMITS
from pta.door.images.bare import END_OF_IMAGE, MARKER, START_OF_SCAN, WITHOUT_LENGTH
from pta.errors import UnreadableSample

_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG = b"\xff\xd8"
_BLOCK = 2**16  # bytes that are asked for at once; fewer are taken as soon as they come
_MOST_STEPS = 2**18  # from part to part of one picture
_NO_PADDING = re.compile(rb"[^\0\r\n]")  # some cameras put these between pictures
_NO_FILL = re.compile(rb"[^\xff]")


def split_frames(pipe: BufferedReader, most: int = USUAL_LIMITS.max_bytes) -> Iterator[bytes]:
    """The pictures in a pipe, of at most `most` bytes, each as soon as its last byte has come.

    >>> import io
    >>> from PIL import Image
    >>> sent = io.BytesIO()
    >>> for side in (8, 16):
    ...     Image.new("RGB", (side, side)).save(sent, "JPEG")
    >>> frames = split_frames(io.BufferedReader(io.BytesIO(sent.getvalue())))
    >>> [Image.open(io.BytesIO(frame)).size for frame in frames]
    [(8, 8), (16, 16)]
    """
    incoming = _Incoming(pipe, most)
    while incoming.begin():
        start = incoming.take(2)
        if start == _JPEG:
            _read_jpeg(incoming)
        elif start == _PNG[:2] and incoming.take(6) == _PNG[2:]:
            _read_png(incoming)
        else:
            raise UnreadableSample(
                "the frames on standard input are neither JPEG nor PNG; with ffmpeg use -f image2pipe -c:v mjpeg -"
            )
        yield incoming.frame()


class _Incoming:
    """What has come through a pipe since the picture began that is being read, and how much of it belongs to it.

    It never waits for a byte after the picture's last.
    """

    def __init__(self, pipe: BufferedReader, most: int) -> None:
        self._pipe, self._most = pipe, most
        self._bytes = bytearray()
        self._read = self._steps = 0  # bytes of the picture, and in how many steps they were read

    def begin(self) -> bool:
        """Go to the start of the next picture, after any padding; False where the pipe ends."""
        while not (found := _NO_PADDING.search(self._bytes)):
            self._bytes.clear()
            if not self._wait():
                return False
        del self._bytes[: found.start()]
        return True

    def take(self, count: int) -> bytes:
        """The next bytes of the picture."""
        start, self._read, self._steps = self._read, self._read + count, self._steps + 1
        if self._steps > _MOST_STEPS:
            raise UnreadableSample("a frame on standard input has far too many parts")
        while len(self._bytes) < self._read:
            self._wait_for_rest(self._read)
        return bytes(self._bytes[start : self._read])

    def take_through(self, wanted: re.Pattern[bytes]) -> int:
        """Go behind the next occurrence of something of one or two bytes, and give its last one."""
        start = self._read
        while not (found := wanted.search(self._bytes, start)):
            start = max(start, len(self._bytes) - 1)
            self._wait_for_rest(len(self._bytes) + 1)
        self._read = found.end()
        return self._bytes[self._read - 1]

    def frame(self) -> bytes:
        """The picture, which is complete."""
        self._require_short(self._read)
        content = bytes(self._bytes[: self._read])
        del self._bytes[: self._read]
        self._read = self._steps = 0
        return content

    def _wait(self) -> bool:
        """Wait for more bytes; False where the pipe ends."""
        arrived = self._pipe.read1(_BLOCK)
        self._bytes += arrived
        return bool(arrived)

    def _wait_for_rest(self, length: int) -> None:
        """Wait for more of a picture that has at least this length."""
        self._require_short(length)
        if not self._wait():
            raise UnreadableSample("standard input ended in the middle of a frame")

    def _require_short(self, length: int) -> None:
        if length > self._most:
            raise UnreadableSample(f"a frame on standard input has more than {self._most:,} bytes")


def _read_png(incoming: _Incoming) -> None:
    kind = b""
    while kind != b"IEND":
        head = incoming.take(8)
        kind = head[4:]
        incoming.take(int.from_bytes(head[:4]) + 4)  # the data and their checksum


def _read_jpeg(incoming: _Incoming) -> None:
    """Go from marker to marker: a thumbnail inside a segment also has an end-of-image, which is not ours."""
    marker = _next_marker(incoming)
    while marker != END_OF_IMAGE:
        if marker not in WITHOUT_LENGTH:
            length = int.from_bytes(incoming.take(2))  # counts its own two bytes
            _require_sound(length >= 2)
            incoming.take(length - 2)
        scan = marker == START_OF_SCAN
        marker = incoming.take_through(MARKER) if scan else _next_marker(incoming)


def _next_marker(incoming: _Incoming) -> int:
    _require_sound(incoming.take(1) == b"\xff")
    return incoming.take_through(_NO_FILL)


def _require_sound(sound: bool) -> None:
    if not sound:
        raise UnreadableSample("a JPEG frame on standard input is damaged")

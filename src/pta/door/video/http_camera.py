"""Cameras that speak HTTP: MJPEG (`multipart/x-mixed-replace`) and snapshots, by Python's own client.

Nothing but pictures is handed to ffmpeg's decoders. A redirect is followed on the same host only.
"""

import re
import ssl
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from string import punctuation
from typing import Any
from urllib.parse import SplitResult, quote, urljoin, urlsplit

import av
import numpy as np

from pta.door.video.address import PORTS
from pta.door.video.login import ASKED, REFUSED, Login
from pta.door.video.output import Output
from pta.door.video.wire import Picture
from pta.errors import MachineFailure, UnreadableFile, first_line

_SECONDS = 10.0  # for each step
_REDIRECTS = 3
_USUAL_EVERY = 1.0  # seconds between snapshots
_LONGEST_LINE, _MOST_LINES = 2**12, 64
_PART = 2**16
_MOST_BROKEN = 10  # one after the other
_BROKEN = "broken, have more pixels than --max-pixels allows, or are neither JPEG nor PNG"
_KINDS = {b"\xff\xd8\xff": "mjpeg", b"\x89PNG": "png"}
_BOUNDARY = re.compile(r'boundary="?([^";\s]{1,200})"?', re.IGNORECASE)


def play_http(request: dict[str, Any], output: Output) -> None:
    """Send the moments of a camera until the connection is lost."""
    av.logging.set_level(None)
    login = None if request["login"] is None else Login(*request["login"])
    began, in_a_row = time.monotonic(), 0
    try:
        for content in _pictures(_Source(request["place"], login), output, request["max_bytes"]):
            output.sign()
            if output.picker.takes(time.monotonic() - began):
                picture = _decoded(content, request["max_pixels"])
                if picture is None:
                    in_a_row, output.broken = in_a_row + 1, output.broken + 1
                    if in_a_row == _MOST_BROKEN:
                        raise UnreadableFile(f"{in_a_row} pictures in a row are {_BROKEN}")
                else:
                    in_a_row = 0
                    output.send(time.time(), picture)
    except ssl.SSLCertVerificationError as error:
        raise UnreadableFile(f"the certificate of the camera is not trusted: {error.verify_message}") from None
    except (OSError, HTTPException) as error:
        raise MachineFailure(
            f"the camera cannot be read: {getattr(error, 'strerror', None) or first_line(error)}"
        ) from None


class _Source:
    """Where answers come from: one host, with the login that it asks for."""

    def __init__(self, place: str, login: Login | None) -> None:
        self._url, self._login, self._challenges = urlsplit(place), login, list[str]()

    def get(self) -> HTTPResponse:
        """The answer to a request."""
        url, had_login = self._url, False
        for _ in range(_REDIRECTS + 2):
            answer = self._ask(url)
            if answer.status == 401:
                if self._login is None or had_login:
                    raise UnreadableFile(REFUSED if had_login else ASKED)
                self._challenges = answer.headers.get_all("WWW-Authenticate") or []
                had_login = True
            elif 300 <= answer.status < 400:
                url = _within(url, answer.getheader("Location") or "")
            elif answer.status in (408, 429) or answer.status >= 500:
                raise MachineFailure(f"the camera answers {answer.status}")
            elif answer.status != 200:
                there = ", there is nothing" if answer.status == 404 else ""
                raise UnreadableFile(f"the camera answers {answer.status}{there}")
            else:
                self._url = url
                return answer
            answer.close()
        raise UnreadableFile("the camera redirects again and again")

    def _ask(self, url: SplitResult) -> HTTPResponse:
        assert url.hostname is not None
        if url.scheme == "https":
            connection: HTTPConnection = HTTPSConnection(
                url.hostname, url.port, timeout=_SECONDS, context=ssl.create_default_context()
            )
        else:
            connection = HTTPConnection(url.hostname, url.port, timeout=_SECONDS)
        target = (url.path or "/") + (f"?{url.query}" if url.query else "")
        headers = {"User-Agent": "pta", "Accept": "multipart/x-mixed-replace, image/jpeg, image/png"}
        if self._login and (proof := self._login.answer(self._challenges, "GET", target)):
            headers["Authorization"] = proof
        connection.request("GET", target, headers=headers)
        return connection.getresponse()


def _within(url: SplitResult, location: str) -> SplitResult:
    """Where a redirect leads, which must be the same host."""
    try:
        to = urlsplit(urljoin(url.geturl(), quote(location, safe=punctuation)))
        is_same = _host(to) == _host(url)
    except ValueError:
        is_same = False
    if not is_same:
        raise UnreadableFile("the camera redirects to another host, port or protocol; give that address if it is meant")
    return to


def _host(url: SplitResult) -> tuple[str, str | None, int | None]:
    return url.scheme, url.hostname, url.port or PORTS.get(url.scheme)


def _pictures(source: _Source, output: Output, most: int) -> Iterator[bytes]:
    """The pictures of a camera, still encoded: parts of one endless answer, or one answer after the other."""
    while True:
        began = time.monotonic()
        answer = source.get()
        kind = answer.getheader("Content-Type") or ""
        if kind.lower().startswith("multipart/"):
            yield from _parts(answer, kind, most)
            raise MachineFailure("the camera has ended the connection")
        if kind.lower().partition(";")[0].strip() not in ("image/jpeg", "image/jpg", "image/png"):
            raise UnreadableFile(f"it is neither MJPEG nor a JPEG or PNG picture, but {kind[:60] or 'of no kind'}")
        content = answer.read(most + 1)
        if len(content) > most:
            raise UnreadableFile(f"a picture has more than {most:,} bytes (--max-bytes)")
        answer.close()
        yield content
        every = output.picker.timing.every or _USUAL_EVERY
        while (rest := began + every - time.monotonic()) > 0:
            output.sign()
            time.sleep(min(rest, 0.25))


def _parts(answer: HTTPResponse, kind: str, most: int) -> Iterator[bytes]:
    found = _BOUNDARY.search(kind)
    boundary = ("--" + found[1].removeprefix("--")).encode() if found else b"--"
    is_next = False  # whether its boundary was read
    while True:
        while not is_next:
            is_next = _line(answer).startswith(boundary)
        length = None
        for _ in range(_MOST_LINES):
            name, _, value = _line(answer).partition(b":")
            if not name:
                break
            if name.strip().lower() == b"content-length" and value.strip().isdigit():
                length = int(value)
        else:
            raise UnreadableFile("a part has too many lines before its picture")
        if length is not None and length > most:
            raise UnreadableFile(f"a picture has {length:,} bytes; at most {most:,} are read (--max-bytes)")
        yield _until(answer, boundary, most) if length is None else answer.read(length)
        is_next = length is None


def _line(answer: HTTPResponse) -> bytes:
    line = answer.readline(_LONGEST_LINE)
    if not line:
        raise MachineFailure("the camera has ended the connection")
    if len(line) == _LONGEST_LINE:
        raise UnreadableFile("what the camera sends is not MJPEG: a line is too long")
    return line.strip()


def _until(answer: HTTPResponse, boundary: bytes, most: int) -> bytes:
    """What comes before the next boundary, which is read, too."""
    content = bytearray()
    while (line := answer.readline(_PART)) and not line.startswith(boundary):
        content += line
        if len(content) > most:
            raise UnreadableFile(f"a picture has more than {most:,} bytes (--max-bytes)")
    return bytes(content)


def _decoded(content: bytes, max_pixels: int) -> Picture | None:
    """The pixels of a picture, if it is whole and not too large."""
    codec = next((codec for magic, codec in _KINDS.items() if content.startswith(magic)), None)
    if codec is None or (codec == "mjpeg" and b"\xff\xd9" not in content[-64:]):
        return None
    context: Any = av.CodecContext.create(codec, "r")
    context.options = {"max_pixels": str(max_pixels)}
    context.thread_count = 1
    try:
        frames = [*context.decode(av.Packet(content)), *context.decode(None)]
    except av.error.FFmpegError:
        return None
    return np.asarray(frames[0].to_ndarray(format="rgb24")) if frames and not frames[0].is_corrupt else None

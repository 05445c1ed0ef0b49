"""The address of a video: a file, rtsp(s)://, http(s):// or camera:N, checked, and shown without what is secret in it.

Addresses come from the command line and from configurations alone. Lists of samples hold files and nothing else.
"""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Literal
from urllib.parse import SplitResult, unquote, urlsplit

from pta.door.video.login import Login
from pta.errors import InvalidParameter, UnreadableFile, explaining, shown

Kind = Literal["file", "rtsp", "http", "camera"]
ENDINGS = (
    *(".mp4", ".m4v", ".mov", ".avi", ".mkv", ".webm", ".mpg", ".mpeg"),
    *(".wmv", ".flv", ".ts", ".m2ts", ".3gp", ".ogv"),
)
URL = re.compile(r"([a-z][a-z0-9+.-]+)://", re.IGNORECASE)
_CAMERA = re.compile(r"camera:(\d{1,3})")
PORTS = {"rtsp": 554, "rtsps": 322, "http": 80, "https": 443}
_HOST = re.compile(r"[\w.-]{1,253}|[0-9a-fA-F:.]{2,45}", re.ASCII)


def is_video(text: str) -> bool:
    """Whether a place is written like a video or a camera.

    >>> [is_video(text) for text in ("a.MP4", "rtsp://host/1", "http://host/jpg", "camera:0", "a.jpg", "srt://host")]
    [True, True, True, True, False, False]
    """
    url = URL.match(text)
    if url:
        return url[1].lower() in PORTS
    return _CAMERA.fullmatch(text) is not None or PurePath(text).suffix.lower() in ENDINGS


def how_to_pipe(scheme: str) -> str:
    """What to do with a stream of pictures that is not read."""
    command = "ffmpeg -i ADDRESS -r 2 -f image2pipe -c:v mjpeg - | pta predict - --frames …"
    return f"pta reads videos from files, rtsp://, http:// and camera:N, not {scheme}://; pipe the frames: {command}"


@dataclass(frozen=True)
class VideoAddress:
    """Where a video is. `place` may hold secrets in its query; `shown` does not."""

    kind: Kind
    shown: str
    place: str = field(repr=False)
    login: Login | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, given: str, login: Login | None = None, *, may_hold_login: bool = False) -> "VideoAddress":
        """The address that a text names, if it can be read; `may_hold_login` is for a configuration that is private."""
        if URL.match(given):
            return _parse_url(given, login, may_hold_login)
        if login is not None:
            raise InvalidParameter(f"{shown(given)} takes no user and password; only rtsp:// and http:// do")
        if camera := _CAMERA.fullmatch(given):
            return cls("camera", given, camera[1])
        path = Path(given)
        if "\0" in given or not os.path.lexists(path):
            raise UnreadableFile(f"no such file: {shown(given, 400)}")
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise UnreadableFile(f"{given} is not a regular file, so it is not read as a video")
        with explaining(f"{given} cannot be read"), path.open("rb"):
            return cls("file", given, os.path.realpath(path))

    def __str__(self) -> str:
        return self.shown

    @property
    def is_live(self) -> bool:
        """Whether frames come when they come."""
        return self.kind != "file"


def _parse_url(given: str, login: Login | None, may_hold_login: bool) -> VideoAddress:
    try:
        url = urlsplit(given)
        host, port = url.hostname or "", url.port
    except ValueError:
        raise InvalidParameter("the address of a camera cannot be read: it has no valid host and port") from None
    scheme = url.scheme.lower()
    if scheme not in PORTS:
        raise UnreadableFile(how_to_pipe(scheme))
    if not _HOST.fullmatch(host) or not given.isascii() or not given.isprintable() or " " in given or port == 0:
        raise InvalidParameter(f"a camera has an address like {scheme}://HOST:PORT/PATH, in ASCII and without spaces")
    if "@" in url.path + url.query + url.fragment:  # perhaps of a password with / or #, which would be shown
        raise InvalidParameter("write an @ of a camera's path as %40, and / ? # of its password as %2F %3F %23")
    if "@" in url.netloc:
        login = _login_inside(url, login, may_hold_login)
    address = f"[{host}]" if ":" in host else host
    netloc = address if port in (None, PORTS[scheme]) else f"{address}:{port}"
    shown_as = f"{scheme}://{netloc}{url.path}" + ("?…" if url.query else "")
    query = f"?{url.query}" if url.query else ""
    place = f"{scheme}://{address}:{port or PORTS[scheme]}{url.path or '/'}{query}"
    return VideoAddress("http" if scheme.startswith("http") else "rtsp", shown_as, place, login)


def _login_inside(url: SplitResult, login: Login | None, may_hold_login: bool) -> Login:
    where = "the address of the camera"
    if not may_hold_login:
        raise InvalidParameter(
            f"{where} holds a user or password, which others can see; put USER:PASSWORD into a file for --login"
        )
    if login is not None:
        raise InvalidParameter(f"{where} holds a user, and a login is given beside it; leave one of them out")
    return Login.parse(f"{unquote(url.username or '')}:{unquote(url.password or '')}", where)

"""Sources that pta does not read, each with the command that converts them."""

import shlex
from collections.abc import Sequence
from pathlib import PurePath

from pta.door.video.address import ENDINGS, PORTS, URL, how_to_pipe
from pta.errors import UnreadableFile

_OTHER_STREAMS = ("rtmp", "rtp", "udp", "srt")
_PHOTOS = (".heic", ".heif", ".avif")


def require_place_with_samples(given: str) -> None:
    """Refuse a URL, a video, a photograph in a format that is not read, and a file of features or of a state.

    >>> require_place_with_samples("s3://bucket/a b.jpg")
    Traceback (most recent call last):
    pta.errors.UnreadableFile: pta does not read URLs; copy the files to this machine first; ...
    """
    url = URL.match(given)
    scheme = url[1].lower() if url else ""
    if scheme in _OTHER_STREAMS:
        raise UnreadableFile(how_to_pipe(scheme))
    if url and not scheme.startswith("rtsp"):
        by_curl = "download it first: curl -fLO ADDRESS; of a camera, say how often: --every 2s"
        by_others = "copy the files to this machine first; --cluster reads object stores"
        raise UnreadableFile(f"pta does not read URLs; {by_curl if scheme in PORTS else by_others}")
    ending = PurePath(given).suffix.lower()
    if is_unread_photo(given):
        raise UnreadableFile(how_to_convert(given))
    if ending == ".safetensors":
        raise UnreadableFile(f"{given} holds features or a state, not samples; use pta eval --features, or --state")
    if url or ending in ENDINGS:
        commands = "pta predict, pta extract and pta watch take it; in Python: for frame in pta.frames(…)"
        raise UnreadableFile(f"{f'{url[1]}://…' if url else given} is a video, not a picture; {commands}")


def is_unread_photo(name: str) -> bool:
    """Whether a file has the ending of a photograph in a format that is not read."""
    return PurePath(name).suffix.lower() in _PHOTOS


def how_to_convert(name: str) -> str:
    """What to do with a photograph in a format that is not read.

    >>> how_to_convert("a.heic")
    'pta does not read .heic files; convert them, e.g. with ImageMagick: magick a.heic a.jpg'
    """
    path = PurePath(name)
    command = f"magick {shlex.quote(name)} {shlex.quote(str(path.with_suffix('.jpg')))}"
    return f"pta does not read {path.suffix.lower()} files; convert them, e.g. with ImageMagick: {command}"


def left_out(names: Sequence[str]) -> str:
    """A line about such photographs that are left out of a folder."""
    return f"{len(names):,} files are left out: {how_to_convert(names[0])}"

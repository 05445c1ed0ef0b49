"""Sources that pta does not read, each with the command that converts them."""

import re
import shlex
from pathlib import PurePath

from pta.errors import UnreadableFile

_URL = re.compile(r"([a-z][a-z0-9+.-]+)://", re.IGNORECASE)
_STREAMS = ("rtsp", "rtmp", "udp", "srt")
_VIDEOS = (".mp4", ".m4v", ".mov", ".avi", ".mkv", ".webm", ".mpg", ".mpeg", ".wmv", ".flv")


def require_place_with_samples(given: str) -> None:
    """Refuse a URL and a video.

    >>> require_place_with_samples("https://example.org/a b.jpg")
    Traceback (most recent call last):
    pta.errors.UnreadableFile: pta does not read URLs; download it first: curl -fLO 'https://example.org/a b.jpg'
    """
    url = _URL.match(given)
    if url and url[1].lower() not in _STREAMS:
        raise UnreadableFile(f"pta does not read URLs; download it first: curl -fLO {shlex.quote(given)}")
    if url or PurePath(given).suffix.lower() in _VIDEOS:
        frames = f"ffmpeg -i {shlex.quote(given)} -r 2 -f image2pipe -c:v mjpeg -"
        raise UnreadableFile(f"pta does not read videos; pipe the frames: {frames} | pta predict - --frames …")

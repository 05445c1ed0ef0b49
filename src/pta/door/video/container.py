"""Videos that ffmpeg's libraries decode (PyAV): files, cameras of this machine, and RTSP through a gate.

What is opened is held to one protocol, containers that name no other files, common codecs, and a largest frame.
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import Any

import av
import numpy as np

from pta.door.video.output import Output
from pta.door.video.rtsp_gate import RtspGate
from pta.door.video.wire import Picture
from pta.errors import MachineFailure, UnreadableFile

_CONTAINERS = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpegts,mpeg,flv,asf,ogg"
_SEEKABLE = ("mov", "matroska")  # their index is in the order of time
_CODECS = (
    *("h264", "hevc", "av1", "libdav1d", "vp8", "vp9", "mpeg1video", "mpeg2video", "mpeg4", "mjpeg", "png", "ffv1"),
    *("theora", "h263", "flv", "msmpeg4v2", "msmpeg4", "wmv1", "wmv2", "wmv3", "vc1", "prores", "rawvideo"),
)
_RTSP = {"rtsp_transport": "tcp", "allowed_media_types": "video", "timeout": "10000000"}  # microseconds
_CLOSE = 1e-6  # seconds: time stamps are rounded to ticks
_USUAL_STEP = 0.04  # seconds from frame to frame, where nothing says how many


def play_container(request: dict[str, Any], output: Output) -> None:
    """Send the moments of a file or a camera."""
    av.logging.set_level(None)
    if request["kind"] == "file":
        _play_file(request, output)
    elif request["kind"] == "camera":
        container = _opened(f"/dev/video{request['place']}", "video4linux2,v4l2", "file", {}, request)
        _play_live(container, request, output)
    else:
        gate = RtspGate(request["place"], request["login"])
        try:
            _play_live(_opened(gate.address, "rtsp", "tcp", _RTSP, request), request, output)
        finally:
            gate.require_kept()  # why it was, if the gate has ended it


def _opened(place: str, formats: str, protocol: str, options: dict[str, str], request: dict[str, Any]) -> Any:
    limits = {"format_whitelist": formats, "protocol_whitelist": protocol, "max_pixels": str(request["max_pixels"])}
    try:
        return av.open(place, options=options | limits | {"codec_whitelist": ",".join(_CODECS), "enable_drefs": "0"})
    except av.error.FFmpegError as error:
        if request["kind"] == "file":
            raise UnreadableFile(f"it is not a video that pta reads: {_reason(error)}") from None
        missing = isinstance(error, av.error.FileNotFoundError | av.error.PermissionError)
        kind = UnreadableFile if missing else MachineFailure
        raise kind(f"no pictures come: {_reason(error)}") from None


def _video_stream(container: Any, request: dict[str, Any], *, live: bool) -> Any:
    """The stream of pictures, whose decoder keeps to the limits."""
    streams = [one for one in container.streams.video if not one.disposition & av.stream.Disposition.attached_pic]
    if not streams:
        raise UnreadableFile("it holds no pictures" + (", only sound" if container.streams.audio else ""))
    stream, codec = streams[0], streams[0].codec_context
    if codec is None or codec.codec.name not in _CODECS:
        raise UnreadableFile(f"its codec is not decoded ({'unknown' if codec is None else codec.codec.name})")
    if codec.width * codec.height > request["max_pixels"]:
        raise UnreadableFile(
            f"{codec.width}×{codec.height} pixels are too many; --max-pixels allows {request['max_pixels']:,}"
        )
    codec.options = {"max_pixels": str(request["max_pixels"])}
    codec.thread_type = "SLICE" if live else "AUTO"  # frames of a camera are wanted at once
    codec.thread_count = 1 if live else request["threads"]
    codec.flags |= av.codec.context.Flags.output_corrupt  # so that broken frames are counted, and not only left out
    return stream


def _frames(container: Any, stream: Any, output: Output) -> Iterator[Any]:
    """The frames that decode; the others are counted."""
    for packet in container.demux(stream):
        output.sign()
        try:
            decoded = packet.decode()
        except av.error.EOFError:
            return
        except av.error.FFmpegError:
            output.broken += 1
            continue
        for frame in decoded:
            if frame.is_corrupt:
                output.broken += 1
            else:
                yield frame


def _pixels(frame: Any) -> Picture:
    """Rows×columns×3, red first, as the frame is to be shown."""
    return np.rot90(frame.to_ndarray(format="rgb24"), round(frame.rotation / 90) % 4)


def _play_live(container: Any, request: dict[str, Any], output: Output) -> None:
    with container:
        stream = _video_stream(container, request, live=True)
        began = time.monotonic()
        try:
            for frame in _frames(container, stream, output):
                if output.picker.takes(time.monotonic() - began):
                    output.send(time.time(), _pixels(frame))
        except av.error.FFmpegError as error:
            raise MachineFailure(f"the connection was lost: {_reason(error)}") from None
    raise MachineFailure("the camera has ended the connection")


def _play_file(request: dict[str, Any], output: Output) -> None:
    with _opened(f"file:{request['place']}", _CONTAINERS, "file", {}, request) as container:
        stream = _video_stream(container, request, live=False)
        first, clock, last = request["from"], _FileClock(stream), None
        for frame in _frames_from(first, clock, container, stream, output):
            before, last = last, clock.time(frame)
            if output.picker.is_past(last):
                break
            if last < first - _CLOSE:
                output.broken = 0  # of what nobody has asked for
            if last != before and output.picker.takes(last) and last >= first - _CLOSE:
                output.send(last, _pixels(frame), jumps=clock.jumps)


def _frames_from(first: float, clock: "_FileClock", container: Any, stream: Any, output: Output) -> Iterator[Any]:
    """The frames from a time on, and some before it.

    A file is entered at a key frame. Frames before it in time can come after it in the file, and are not decoded
    without it. So if the first frame comes too late, the file is entered earlier.
    """
    back = 0.0
    while back < first and container.format.name.startswith(_SEEKABLE):
        with suppress(av.error.FFmpegError):
            container.seek(clock.ticks(first - back), stream=stream)
            frames = _frames(container, stream, output)
            frame = next(frames, None)
            if frame is not None and frame.pts is not None and frame.pts <= clock.ticks(first):
                return chain([frame], frames)
        back = 2 * back + 1
    if back:
        container.seek(clock.ticks(0), stream=stream)
    return _frames(container, stream, output)


class _FileClock:
    """Seconds in a file. Where time stamps jump back, as where recordings were joined, time goes on."""

    def __init__(self, stream: Any) -> None:
        self._first, self._base = stream.start_time or 0, float(stream.time_base)
        self._step = 1 / float(stream.average_rate) if stream.average_rate else _USUAL_STEP
        self._last: float | None = None
        self._shift, self.jumps = 0.0, 0

    def ticks(self, seconds: float) -> int:
        """A time in the file's own units."""
        return self._first + round(seconds / self._base)

    def time(self, frame: Any) -> float:
        """The time of the next frame."""
        if frame.pts is None:
            now = 0.0 if self._last is None else self._last + self._step
        else:
            now = (frame.pts - self._first) * self._base + self._shift
            if self._last is not None and now < self._last:
                self.jumps += 1
                self._shift += self._last + self._step - now
                now = self._last + self._step
        self._last = now
        return now


def _reason(error: Any) -> str:
    """The words of ffmpeg without the address, which they may hold."""
    return str(error.strerror or type(error).__name__).lower()

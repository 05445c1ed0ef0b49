"""Videos and cameras as sources: a stream of frames and, for feature files, a list of those of a file.

A frame is a sample like any other: its content is a picture in bytes (PPM), and its key is the place and the time.
"""

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, cast

from pta.core.limits import USUAL_LIMITS, Limits
from pta.core.modality import IMAGES, Modality
from pta.data.sample_set import SampleSet
from pta.door.video import Camera, Frame, Login, Region, Timing, VideoAddress, video_frames
from pta.door.video.address import is_video
from pta.errors import InvalidParameter, StateMismatch, UnreadableFile, UnreadableSample

OF_FRAMES = ("time", "region", "gap")
"""Columns of rows of frames: with regions, and of live cameras, after the first."""
_UNREAD = 40  # frames that wait to be read: more than go to a thread at once
_KEY = re.compile(
    r"(.*)@(-?\d{1,12}\.\d{3})(~\d+)?(?:#[^#@]*)?", re.DOTALL
)  # PLACE@TIME, of which the place is anything
_MILLISECOND = 0.001  # keys are rounded to it
_REMARKS = (
    ("broken", "broken frames were skipped"),
    ("jumps", "time stamps jump back; times go on from there"),
    ("passed_over", "frames were passed over for newer ones"),
)


@dataclass(frozen=True)
class VideoReading:
    """Which frames of videos are read, which regions of them, and with which login."""

    timing: Timing = field(default_factory=Timing)
    regions: tuple[Region, ...] = ()
    login: Login | None = None

    def takes(self, place: str) -> bool:
        """Whether a place is read as a video; an address of the web only if it is said how often."""
        return is_video(place) and (self.timing.every is not None or not place.lower().startswith("http"))

    def camera(self, address: VideoAddress, limits: Limits, first: float = 0.0) -> Camera:
        """What reads it, from a time on."""
        return Camera(address, "", self.timing, self.regions, limits=limits, first=first)

    def frames(self, address: VideoAddress, limits: Limits, first: float = 0.0) -> Iterator[Frame]:
        """What it sees, from a time on."""
        return chain.from_iterable(video_frames(self.camera(address, limits, first)))


class VideoSample:
    """A frame that came; its picture is handed out once."""

    def __init__(self, frame: Frame, columns: Sequence[str], read: threading.Semaphore) -> None:
        gap = None if frame.gap is None else round(frame.gap, 3)
        about = {"time": round(frame.time, 3), "region": frame.region, "gap": gap}
        self.key, self.about = frame.key, {name: about[name] for name in columns}
        self.source = frame.place + (f"#{frame.region}" if frame.region else "")
        self.time, self._frame = frame.time, cast(Frame | None, frame)
        self._read = read

    def read(self, most: int = USUAL_LIMITS.max_bytes) -> bytes:
        """The picture; how large it may be was decided before it was decoded."""
        frame, self._frame = self._frame, None
        if frame is None:
            raise UnreadableSample(f"{self.key} was read before")
        self._read.release()
        return _as_ppm(frame)


def _require_pictures(modality: Modality) -> None:
    if modality != IMAGES:
        raise InvalidParameter(f"a video holds pictures, but the model reads {modality.name}s")


def _as_ppm(frame: Frame) -> bytes:
    height, width, _ = frame.image.shape
    return b"P6\n%d %d\n255\n" % (width, height) + frame.image.tobytes()


class VideoFrames:
    """The frames of video files one after the other, or of one camera, in the order in which they come."""

    def __init__(self, places: Sequence[str], reading: VideoReading, modality: Modality, limits: Limits) -> None:
        _require_pictures(modality)
        self._addresses = [VideoAddress.parse(place, reading.login) for place in places]
        self.is_live = any(address.is_live for address in self._addresses)
        if self.is_live and len(places) > 1:
            raise InvalidParameter("pta predict reads one camera, or files; pta watch reads several cameras")
        self.regions = reading.regions
        self._reading, self._limits, self._seen = reading, limits, ""
        reading.camera(self._addresses[0], limits)  # refuses what it cannot read
        self._cameras = list[Camera]()

    @property
    def remarks(self) -> list[str]:
        """What there is to say about what was read."""
        counts = [(camera.name, what, getattr(camera.counts, of)) for camera in self._cameras for of, what in _REMARKS]
        return [f"{name}: {count:,} {what}" for name, what, count in counts if count]

    def close(self) -> None:
        """Stop reading, from any thread."""
        for camera in self._cameras:
            camera.close()

    @property
    def columns(self) -> list[str]:
        """Those that rows have because samples are frames."""
        return ["time", *["region"] * bool(self.regions), *["gap"] * self.is_live]

    def check(self) -> None:
        """Refuse the first video if no frame of it comes, or if the regions are not inside."""
        with closing(video_frames(Camera(self._addresses[0], "", None, self.regions, limits=self._limits))) as moments:
            next(moments)

    def seen(self, key: str | None) -> None:
        """Count what is missing since a former run as a gap before the first frame of a camera."""
        self._seen = key or ""

    def __iter__(self) -> Iterator[VideoSample]:
        for address in self._addresses:
            yield from self._samples(address)

    def after(self, key: str) -> Iterator[VideoSample]:
        """The frames after one that was taken before; refused if it is not there."""
        place, time, was_joined = _place_and_time(key)
        places = [address.shown for address in self._addresses]
        if place not in places:
            raise StateMismatch(f"the state has seen {key}, which is not one of these videos")
        number = places.index(place)
        samples = self._samples(self._addresses[number], 0.0 if was_joined else time - _MILLISECOND)
        for sample in samples:
            if sample.key == key:
                break
            sample.read()
            if not was_joined and sample.time > time:
                raise StateMismatch(f"the state has seen {key}, but now there is no such frame")
        yield from samples
        for address in self._addresses[number + 1 :]:
            yield from self._samples(address)

    def _samples(self, address: VideoAddress, first: float = 0.0) -> Iterator[VideoSample]:
        self._cameras.append(camera := self._reading.camera(address, self._limits, first))
        room = threading.Semaphore(_UNREAD)
        for moment in video_frames(camera):
            for frame in self._with_gap(moment):
                room.acquire()
                yield VideoSample(frame, self.columns, room)

    def _with_gap(self, moment: list[Frame]) -> list[Frame]:
        seen, self._seen = self._seen, ""
        place, time, _ = _place_and_time(seen)
        if not self.is_live or place != moment[0].place:
            return moment
        return [replace(frame, gap=max(0.0, frame.time - time)) for frame in moment]


def _place_and_time(key: str) -> tuple[str, float, bool]:
    """What is in the key of a frame, the last whether time stamps had jumped back; no place, if it is another key."""
    found = _KEY.fullmatch(key)
    place, time, jumps = found.groups() if found else ("", "0", None)
    return place, float(time), jumps is not None


def frames(
    place: str | Path,
    *,
    every: str | float | None = None,
    fps: float | None = None,
    start: str | float | None = None,
    end: str | float | None = None,
    regions: Sequence[str] = (),
    login: str | Path | None = None,
    limits: Limits = USUAL_LIMITS,
) -> Iterator[Frame]:
    """The frames of a video file or a camera, one after the other, each as an array in `image` with its `time`.

    Args:
        place: a file, rtsp://…, http://… (MJPEG or snapshots) or camera:0.
        every: seconds between frames, or `fps` frames per second; without, every frame.
        regions: `NAME=X,Y,W,H` in pixels or per cent; each is a frame of its own.
        login: a file with USER:PASSWORD that only its owner can read.
    """
    known = None if login is None else Login.from_file(login)
    reading = VideoReading(Timing.of(every, fps, start, end), tuple(map(Region.parse, regions)), known)
    yield from reading.frames(VideoAddress.parse(str(place), known), limits)


@dataclass(frozen=True)
class ListedFrame:
    """A frame of a file, which is read when it is wanted."""

    key: str
    number: int
    stamp: tuple[int, int]  # of the file
    reader: "_Reader"

    def read(self, most: int = USUAL_LIMITS.max_bytes) -> bytes:
        """The picture."""
        return self.reader.read(self.number)


class _Reader:
    """Reads the frames of a file in about their order, for several threads."""

    def __init__(self, address: VideoAddress, reading: VideoReading, limits: Limits) -> None:
        self._address, self._reading, self._limits = address, reading, limits
        self._times = list[float]()
        self._lock, self._held = threading.Lock(), dict[int, bytes]()
        self._coming: Iterator[Frame] = iter(())
        self._next = -1

    def list(self) -> Iterator[str]:
        """The keys of all frames, each of which is decoded for that."""
        for frame in self._reading.frames(self._address, self._limits):
            self._times.append(frame.time)
            yield frame.key

    def read(self, number: int) -> bytes:
        """The content of a frame; those before it are kept for other threads."""
        with self._lock:
            if not 0 <= self._next <= number and number not in self._held:
                self._held.clear()
                self._next = next(n for n, time in enumerate(self._times) if time >= self._times[number] - _MILLISECOND)
                first = self._times[self._next] - _MILLISECOND / 2
                self._coming = self._reading.frames(self._address, self._limits, first)
            while number not in self._held:
                frame = next(self._coming, None)
                if frame is None or abs(frame.time - self._times[self._next]) > _MILLISECOND:
                    raise UnreadableSample(f"{self._address} has changed while it was read")
                self._held[self._next] = _as_ppm(frame)
                self._next += 1
            return self._held.pop(number)


def open_video(
    source: str, class_names: Sequence[str] | None, reading: VideoReading, modality: Modality, limits: Limits
) -> SampleSet:
    """The frames of a file, without labels. They are counted first, so the file is decoded twice."""
    _require_pictures(modality)
    address = VideoAddress.parse(source, reading.login)
    if address.is_live:
        raise UnreadableFile(f"{address} has no end, and a feature file has one; record it to a file first")
    status = Path(address.place).stat()
    reader = _Reader(address, reading, limits)
    stamp: Any = (status.st_size, status.st_mtime_ns)
    samples = tuple(ListedFrame(key, number, stamp, reader) for number, key in enumerate(reader.list()))
    return SampleSet(Path(source).stem, tuple(class_names or ()), samples, None)

"""A camera or a file: one thread that keeps a decoder running, and the frames that nobody has taken yet."""

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any, Self

from pta.core.limits import USUAL_LIMITS, Limits
from pta.door.safe_text import printable
from pta.door.video.address import VideoAddress
from pta.door.video.decoder import DecoderProcess
from pta.door.video.region import Region, require_regions
from pta.door.video.timing import Timing
from pta.door.video.wire import Picture
from pta.errors import MachineFailure, MissingPackage, PtaError, UnreadableFile, how_to_install

_log = logging.getLogger("pta.video")
_AHEAD = 4  # moments of a file that wait to be taken
_PAUSES = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
_LOOK = 0.2  # seconds between looks
_LATEST = 1e11  # seconds: no date is as late
_LASTED = 30.0  # seconds after which a lost connection is no longer one more failure


@dataclass(frozen=True, eq=False)
class Frame:
    """A picture of a camera or a file, or a region of one."""

    camera: str
    place: str  # the address as it is shown
    region: str  # empty for the whole frame
    time: float  # seconds in the file, or since the epoch
    image: Picture  # rows×columns×3, red first
    gap: float | None = None  # seconds that were lost before it because the camera was away
    jumps: int = 0  # how often time stamps have jumped back before it

    @property
    def key(self) -> str:
        """What rows call it."""
        jumps = f"~{self.jumps}" if self.jumps else ""
        return f"{self.place}@{self.time:.3f}{jumps}" + (f"#{self.region}" if self.region else "")


@dataclass
class CameraCounts:
    """What has happened so far."""

    moments: int = 0
    passed_over: int = 0  # of a live camera, replaced by newer ones before they were taken
    broken: int = 0  # frames that could not be decoded
    connections: int = 0
    jumps: int = 0  # of time stamps back


class Camera:
    """Frames of one address. Of a file, each waits to be taken; of a live camera, the newest replaces those before.

    Args:
        name: what its frames are called after; the address without.
        on_change: called in its thread when there may be something new.
        stall: seconds without a sign after which the decoder is stopped.
        first: of a file, the time from which frames are wanted, on the grid of `timing`.
    """

    def __init__(
        self,
        address: VideoAddress,
        name: str = "",
        timing: Timing | None = None,
        regions: Iterable[Region] = (),
        *,
        limits: Limits = USUAL_LIMITS,
        on_change: Callable[[], object] = lambda: None,
        stall: float = 30.0,
        threads: int = 0,
        first: float = 0.0,
        pauses: Iterable[float] = _PAUSES,
    ) -> None:
        require_pyav()
        timing = timing or Timing()
        if address.is_live and timing != Timing(timing.every):
            raise UnreadableFile(f"{address} is live; --start and --end are for files")
        self.address, self.name, self.counts = address, name or address.shown, CameraCounts()
        self.last: float | None = None
        self.failure: PtaError | None = None
        self._on_change, self._stall, self._pauses = on_change, stall, tuple(pauses)
        parts, login = require_regions(regions), address.login
        self._names = [region.name for region in parts] or [""]
        self._request: dict[str, Any] = {
            "kind": address.kind,
            "place": address.place,
            "login": None if login is None else [login.user, login.password],
            "timing": asdict(timing),
            "regions": [[region.name, region.box] for region in parts],
            "max_pixels": limits.max_pixels,
            "max_bytes": limits.max_bytes,
            "threads": threads,
            "from": max(first, timing.start),
        }
        self._waiting: deque[list[Frame]] = deque()
        self._changed = threading.Condition()
        self._closing, self._ended = threading.Event(), False
        self._decoder: DecoderProcess | None = None
        self._thread = threading.Thread(target=self._run, name=f"camera {self.name}", daemon=True)

    def start(self) -> None:
        """Begin; frames come later."""
        self._thread.start()

    def take(self) -> list[Frame]:
        """The next moment, one frame for each region; none if nothing has come. Never waits."""
        with self._changed:
            taken = self._waiting.popleft() if self._waiting else []
            self._changed.notify_all()
            return taken

    def wait(self, timeout: float) -> None:
        """Wait until there may be something new, but not longer than so many seconds."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._waiting or self._ended or (self.failure and self.last is None), timeout
            )

    @property
    def is_over(self) -> bool:
        """Whether no frame will come any more."""
        with self._changed:
            return self._ended and not self._waiting

    def close(self) -> None:
        """Stop the decoder, and wait for the thread."""
        self._closing.set()
        with self._changed:
            if self._decoder is not None:
                self._decoder.kill()
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        failures = 0
        while not self._closing.is_set():
            began = time.monotonic()
            failure = self._play()
            if self._closing.is_set():
                break
            if not self.address.is_live:
                self.failure = failure
                break
            if failure is not None and self.last is not None and str(failure) != str(self.failure):
                _log.warning("%s; it is tried again", failure)
            with self._changed:
                self.failure = failure
                self._changed.notify_all()
            self._on_change()
            failures = 1 if self.last is not None and time.monotonic() - began > _LASTED else failures + 1
            pause = self._pauses[min(failures, len(self._pauses)) - 1]
            self._closing.wait(pause * random.uniform(0.75, 1.25))
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._on_change()

    def _play(self) -> PtaError | None:
        """Take what one decoder sends; why it has ended, unless a file is over."""
        self.counts.connections += 1
        broken, is_new = self.counts.broken, True
        try:
            with DecoderProcess(self._request, self._stall) as decoder:
                with self._changed:
                    self._decoder = decoder
                if self._closing.is_set():
                    return None
                for header, pictures in decoder.messages():
                    self.counts.broken = broken + int(header["broken"])
                    if pictures:
                        self._add(header, pictures, is_new=is_new)
                        is_new = False
                    if self._closing.is_set():
                        return None
            return None if self.counts.moments else UnreadableFile(f"{self.name}: no frame is in that time")
        except PtaError as error:
            return type(error)(f"{self.name}: {printable(str(error))}")  # it may quote what a camera sends
        except OSError as error:
            return MachineFailure(f"{self.name}: its decoder cannot be started: {error.strerror}")
        except Exception as error:  # a file may have taken the decoder over, which then sends anything
            return MachineFailure(f"{self.name}: its decoder sent what it never sends ({type(error).__name__})")

    def _add(self, header: dict[str, Any], pictures: list[tuple[str, Picture]], *, is_new: bool) -> None:
        now = time.monotonic()
        gap = now - self.last if is_new and self.last is not None and self.address.is_live else None
        jumps, at = int(header.get("jumps", 0)), float(header["time"])
        if [name for name, _ in pictures] != self._names or not abs(at) < _LATEST:
            raise UnreadableFile("its time stamps or regions cannot be right")
        about = (self.name, self.address.shown)
        with self._changed:
            if not self.address.is_live:
                self._changed.wait_for(lambda: len(self._waiting) < _AHEAD or self._closing.is_set())
            elif self._waiting:
                before = self._waiting.pop()[0].gap
                gap = gap or before
                self.counts.passed_over += 1
            self._waiting.append([Frame(*about, name, at, picture, gap, jumps) for name, picture in pictures])
            self.counts.moments += 1
            self.counts.jumps, self.last, self.failure = jumps, now, None
            self._changed.notify_all()
        self._on_change()


def require_pyav() -> None:
    """Refuse a machine without what decodes videos."""
    if find_spec("av") is None:
        raise MissingPackage(f"videos need PyAV; {how_to_install('video')}")


def video_frames(camera: Camera) -> Generator[list[Frame]]:
    """The moments of a camera in order. What ends a file, or keeps a live camera from beginning, is raised."""
    with camera:
        while True:
            camera.wait(_LOOK)
            if moment := camera.take():
                yield moment
            elif camera.failure is not None and (camera.is_over or camera.last is None):
                raise camera.failure
            elif camera.is_over:
                return

"""The loop of `pta watch`: what the cameras have is answered in batches, and no camera waits for another."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event

import torch

from pta.core.samples import Samples
from pta.door.video import Camera, Frame
from pta.errors import PtaError
from pta.monitor.silence import Silence
from pta.run.watch.change import Change
from pta.run.watch.outlets import Outlets
from pta.run.watch.region import WatchedRegion
from pta.run.watch.rows import ChangeRows

_LOOK_SECONDS = 0.2  # between looks at the clock and for signals
_CLOSING_SECONDS = 10.0  # for what waits to be delivered
_log = logging.getLogger("pta.watch")


@dataclass
class WatchedCamera:
    """A camera with its regions, in the order of its frames."""

    camera: Camera
    regions: Sequence[WatchedRegion]
    silence: Silence
    frames: int = 0  # that were answered
    refused: int = 0  # that could not be
    complaint: str = ""  # what is the matter with it

    def take(self) -> list[tuple[WatchedRegion, Frame]]:
        """The regions of its next moment; those of a file that were answered before a stop are left out."""
        while frames := self.camera.take():
            if pairs := [(one, frame) for one, frame in zip(self.regions, frames, strict=True) if one.is_next(frame)]:
                return pairs
        return []


@dataclass
class Watch:
    """Watches cameras until all are over or it is told to stop."""

    cameras: Sequence[WatchedCamera]
    outlets: Outlets
    rows: ChangeRows | None
    changed: Event  # set by the cameras
    save_every: float  # seconds
    batch: int
    on_change: Callable[[Change], object]
    _complaint: str = ""  # about saving

    def run(self, stopping: Callable[[], bool]) -> None:
        """Watch them, deliver what waits, and save all states."""
        self._save(is_due=lambda region: True)
        seconds = 0.0
        try:
            for one in self.cameras:
                one.camera.start()
                one.silence.begin()
            while not stopping() and not all(one.camera.is_over for one in self.cameras):
                self.changed.wait(_LOOK_SECONDS)
                self.changed.clear()
                while (taken := self._take()) and not stopping():
                    self._answer(taken)
                    self._look()
                self._look()
            seconds = _CLOSING_SECONDS
        finally:
            for one in self.cameras:
                one.camera.close()
            self.outlets.close(seconds)
        self._save(is_due=lambda region: True)

    def _take(self) -> list[tuple[WatchedCamera, WatchedRegion, Frame]]:
        """What the cameras have, one moment of each in turn, up to the size of a batch."""
        taken: list[tuple[WatchedCamera, WatchedRegion, Frame]] = []
        while len(taken) < self.batch:
            more = [(one, *pair) for one in self.cameras for pair in one.take()]
            if not more:
                break
            taken += more
        return taken

    def _answer(self, taken: list[tuple[WatchedCamera, WatchedRegion, Frame]]) -> None:
        encode = taken[0][1].classifier.encoded
        try:
            samples = encode([frame.image for _, _, frame in taken])
        except PtaError as error:
            if len(taken) > 1:  # the others do not suffer
                for one in taken:
                    self._answer([one])
            else:
                self._refuse(taken[0][0], error)
            return
        places: dict[int, list[int]] = {}
        for place, (camera, region, _) in enumerate(taken):
            places.setdefault(id(region), []).append(place)
            camera.frames += 1
            for alarm in camera.silence.sample(camera.frames):
                self._tell(camera, alarm)
        for numbers in places.values():
            region, frames = taken[numbers[0]][1], [taken[number][2] for number in numbers]
            for change, frame in region.answer(frames, samples[torch.tensor(numbers)]):
                self.outlets.put(change, frame.image)
                self.on_change(change)

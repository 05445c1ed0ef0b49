"""The loop of `pta watch`: what the cameras have is answered in batches, and no camera waits for another."""

import logging
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event

import torch

from pta.door.video import Camera, Frame
from pta.errors import PtaError
from pta.monitor import Alarm
from pta.monitor.silence import Silence
from pta.run.watch.outlets import Outlets
from pta.run.watch.region import WatchedRegion
from pta.run.watch.rows import ChangeRows

_LOOK_SECONDS = 0.2  # between looks at the clock and for signals
_CLOSING_SECONDS = 10.0  # for what waits to be delivered
_log = logging.getLogger("pta.watch")


def leave_cores_to_decoders() -> None:
    """Use half of torch's threads, unless OMP_NUM_THREADS says how many.

    Threads of torch wait by spinning. Beside processes that decode, two on two cores took ten times as long as one.
    """
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, torch.get_num_threads() // 2))


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
    _complaint: str = ""  # about saving

    def run(self, stopping: Callable[[], bool]) -> None:
        """Watch them, deliver what waits, and save all states."""
        self._save_all()
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
            if not isinstance(sys.exception(), KeyboardInterrupt):  # told to stop at once
                self._save_all()

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
                camera = taken[0][0]
                camera.refused += 1
                if camera.refused == 1:
                    _log.warning("%s: a frame cannot be answered and is passed over: %s", camera.camera.name, error)
            return
        rows: dict[WatchedRegion, list[int]] = {}
        for row, (camera, region, _) in enumerate(taken):
            rows.setdefault(region, []).append(row)
            if not camera.frames:
                self.outlets.tell(camera.camera.name, is_seen=True)
            camera.frames += 1
            self._tell(camera, camera.silence.sample(camera.frames))
        for region, numbers in rows.items():
            frames = [taken[number][2] for number in numbers]
            for change, frame in region.answer(frames, samples[torch.tensor(numbers)]):
                self.outlets.put(change, frame.image)

    def _look(self) -> None:
        """Look at the clock, the cameras and the actions."""
        self.outlets.require_alive()
        for one in self.cameras:
            if one.camera.is_over:
                continue
            self._tell(one, one.silence.look(one.frames))
            complaint = str(one.camera.failure or "")
            if complaint != one.complaint:
                one.complaint = complaint
                self.outlets.tell(one.camera.name, is_seen=not complaint)
                if complaint and one.camera.last is None:  # of what is lost later, the camera tells
                    _log.warning("%s; it is tried again", complaint)
                elif not complaint:
                    _log.info("%s: frames come again", one.camera.name)
        self._save_if_due()

    def _tell(self, camera: WatchedCamera, alarms: Sequence[Alarm]) -> None:
        for alarm in alarms:
            name = camera.camera.name
            _log.log(logging.WARNING if alarm.raised else logging.INFO, "%s: alarm %s", name, alarm.sentence)
            self.outlets.alarm(name, alarm)
            self.outlets.tell(name, is_seen=not alarm.raised)

    def _save_if_due(self) -> None:
        """Save the states that are due; what cannot be saved now is tried again and does not stop the others."""
        due = [region for one in self.cameras for region in one.regions if region.is_due]
        if not due:
            return
        try:
            self._save(due)
        except PtaError as error:
            if str(error) != self._complaint:
                _log.warning("%s; it is tried again, and a kill before that loses what was learned since", error)
            self._complaint = str(error)
        else:
            self._complaint = ""

    def _save_all(self) -> None:
        self._save([region for one in self.cameras for region in one.regions])

    def _save(self, regions: Sequence[WatchedRegion]) -> None:
        """Save states: each even if another cannot be saved, whose error is raised then."""
        waiting, place, failure = self.outlets.waiting, None, None
        if self.rows is not None:
            place, numbers = self.rows.covered
            waiting["rows"] = [one for one in waiting["rows"] if one.number > numbers.get(one.place, 0)]
        for region in regions:
            try:
                region.save(place, waiting, self.save_every)
            except PtaError as error:
                failure = error
        if failure is not None:
            raise failure

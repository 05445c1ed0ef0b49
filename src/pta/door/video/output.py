"""What a decoder's process sends: moments, signs of life, and how it ended."""

import time
from typing import Any, BinaryIO

from pta.door.video.region import Region
from pta.door.video.timing import Picker, Timing
from pta.door.video.wire import Picture, write_message

_SIGN = 0.5  # seconds between signs of life


class Output:
    """Where the moments that `picker` takes are sent, with what was counted before them."""

    def __init__(self, pipe: BinaryIO, request: dict[str, Any]) -> None:
        self._pipe, self._signed = pipe, 0.0
        self._regions = [Region(name, tuple(box)) for name, box in request["regions"]]
        self.picker = Picker(Timing(**request["timing"]))
        self.broken = 0

    def send(self, at: float, picture: Picture, **more: Any) -> None:
        """Send a frame, or its regions."""
        pictures = [(region.name, region.cut(picture)) for region in self._regions] or [("", picture)]
        write_message(self._pipe, {"time": at, "broken": self.broken, **more}, pictures)
        self._signed = time.monotonic()

    def sign(self) -> None:
        """Say from time to time that decoding goes on."""
        if time.monotonic() - self._signed >= _SIGN:
            self.end(sign=True)

    def end(self, **how: Any) -> None:
        """Say how it ended, or goes on."""
        write_message(self._pipe, {"broken": self.broken, **how})
        self._signed = time.monotonic()

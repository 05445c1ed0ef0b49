"""Which moments of a video are taken: by its time stamps, on a grid that does not depend on where reading began."""

import math
import re
from dataclasses import dataclass

from pta.errors import InvalidParameter, shown

_CLOSE = 1e-6  # seconds: time stamps are rounded to ticks
_UNITS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ms|s|min|m|h|)")
_CLOCK = re.compile(r"(?:(\d{1,4}):)?(\d{1,2}):(\d{1,2}(?:\.\d{1,9})?)")


def seconds(given: str | float, what: str) -> float:
    """A time as a number of seconds, with a unit, or as a clock shows it.

    >>> seconds("500ms", "--every"), seconds("1:02:03.5", "--start"), seconds(2, "every")
    (0.5, 3723.5, 2.0)
    """
    text = str(given)
    if clock := _CLOCK.fullmatch(text):
        return int(clock[1] or 0) * 3600 + int(clock[2]) * 60 + float(clock[3])
    if found := _DURATION.fullmatch(text):
        return float(found[1]) * _UNITS[found[2]]
    raise InvalidParameter(f"{what} is a time such as 2s, 500ms or 0:01:30, not {shown(given)}")


@dataclass(frozen=True)
class Timing:
    """One moment in so many seconds, or every frame; of a file, from a time on and before another."""

    every: float | None = None
    start: float = 0.0
    end: float | None = None

    def __post_init__(self) -> None:
        if self.every is not None and not 0.001 <= self.every <= 10**6:
            raise InvalidParameter(f"frames are taken every 0.001 to 1,000,000 seconds, not every {self.every:g}")
        if self.end is not None and self.end <= self.start:
            raise InvalidParameter(f"the end, {self.end:g} s, must be after the start, {self.start:g} s")

    @classmethod
    def of(
        cls,
        every: str | float | None = None,
        fps: float | None = None,
        start: str | float | None = None,
        end: str | float | None = None,
    ) -> "Timing":
        """As users write it."""
        if every is not None and fps is not None:
            raise InvalidParameter("--every and --fps say the same thing; leave one of them out")
        if fps is not None and not 0 < fps <= 1000:
            raise InvalidParameter(f"--fps is a number of frames per second up to 1,000, not {fps:g}")
        step = seconds(every, "--every") if every is not None else None if fps is None else 1 / fps
        first = 0.0 if start is None else seconds(start, "--start")
        return cls(step, first, None if end is None else seconds(end, "--end"))


class Picker:
    """Takes the first moment of each step: at or after start, start + every, start + 2 every and so on.

    >>> picker = Picker(Timing(every=0.5))
    >>> [time for time in (0.0, 0.3, 0.6, 0.9, 1.2) if picker.takes(time)]
    [0.0, 0.6, 1.2]
    """

    def __init__(self, timing: Timing) -> None:
        self.timing, self._due = timing, timing.start

    def takes(self, time: float) -> bool:
        """Whether the moment at this time is taken; times must not decrease."""
        if time < self._due - _CLOSE or self.is_past(time):
            return False
        if self.timing.every is not None:
            steps = math.floor((time - self.timing.start) / self.timing.every + _CLOSE) + 1
            self._due = self.timing.start + steps * self.timing.every
        return True

    def is_past(self, time: float) -> bool:
        """Whether the end was reached."""
        return self.timing.end is not None and time >= self.timing.end - _CLOSE

"""Silence: the alarm of a stream to which no sample comes. It goes by the clock, so it is not the same for each run."""

import math
import time
from collections.abc import Callable

from pta.monitor.alarms import SILENT, Alarm


class Silence:
    """Raises `silent` if no sample came for so many seconds; the next sample ends it.

    >>> now = [0.0]
    >>> silence = Silence(10, lambda: now[0])
    >>> now[0] = 11.0
    >>> [alarm.raised for alarm in silence.look(5)], silence.look(5)
    ([True], [])
    >>> [alarm.raised for alarm in silence.sample(6)]
    [False]
    """

    def __init__(self, after: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._after, self._clock = math.inf if after is None else after, clock
        self.is_silent = False
        self.begin()

    def begin(self) -> None:
        """Count the seconds from now on."""
        self._last = self._clock()

    @property
    def is_due(self) -> bool:
        """Whether no sample came for so long, and the alarm does not stand."""
        return not self.is_silent and self._clock() - self._last >= self._after

    def look(self, position: int) -> list[Alarm]:
        """Look at the clock, after so many samples."""
        if not self.is_due:
            return []
        self.is_silent = True
        return [Alarm(SILENT, position, True, {"seconds": self._clock() - self._last})]

    def sample(self, position: int) -> list[Alarm]:
        """Samples came, with which there are so many."""
        self._last, was_silent = self._clock(), self.is_silent
        self.is_silent = False
        return [Alarm(SILENT, position, False, {})] if was_silent else []

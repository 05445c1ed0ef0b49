"""Room: how many pixels are in work at once, over all threads of the process."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition


class Room:
    """So many pixels may be in work; who needs more waits until there is room.

    A picture that is larger than the whole room is worked on alone.
    """

    def __init__(self, pixels: int) -> None:
        self.pixels = self.free = pixels
        self._changed = Condition()

    @contextmanager
    def of(self, pixels: int) -> Iterator[None]:
        """Room for so many pixels, once it is there and as long as the block lasts."""
        taken = min(pixels, self.pixels)
        with self._changed:
            self._changed.wait_for(lambda: self.free >= taken)
            self.free -= taken
        try:
            yield
        finally:
            with self._changed:
                self.free += taken
                self._changed.notify_all()


ROOM = Room(89_478_485)
"""For every picture of the process. A pixel takes up to 24 bytes while it is decoded, so this is at most 2 GiB."""

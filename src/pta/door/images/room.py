"""Room: how many pixels are in work at once, over all threads of the process."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition
from typing import TypeVar

from PIL import Image

from pta.door.images.preprocessing import Preprocessing
from pta.door.images.reading import load_image
from pta.errors import UnreadableSample

Made = TypeVar("Made")


class Room:
    """So many pixels may be in work; who needs more waits until there is room.

    A picture that is larger than the whole room is worked on alone.
    """

    def __init__(self, pixels: int) -> None:
        self.pixels = self.free = pixels
        self._changed = Condition()

    @contextmanager
    def of(self, pixels: int) -> Iterator[None]:
        """Room for this number of pixels, once it is there and as long as the block lasts."""
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


def made_in_room(picture: Image.Image, preprocess: Preprocessing, make: Callable[[Image.Image], Made]) -> Made:
    """What is made of an open picture, which is decoded and resized once there is room for it."""
    (width, height), _ = preprocess.geometry(*picture.size)  # refuses what would be blown up too far
    with ROOM.of(picture.width * picture.height + width * height):
        load_image(picture)
        try:
            return make(picture)
        except MemoryError:
            raise UnreadableSample("it needs too much memory") from None

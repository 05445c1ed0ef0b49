"""Regions of a frame: a name and a box in pixels or per cent."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pta.door.video.wire import Picture
from pta.errors import InvalidParameter, shown

_REGION = re.compile(r"([\w .-]{1,64})=" + ",".join([r"(\d{1,6}(?:\.\d{1,6})?%?)"] * 4))


@dataclass(frozen=True)
class Region:
    """A part of a frame; its left, top, width and height are pixels, or with % shares of the frame.

    >>> import numpy as np
    >>> Region.parse("gate=25%,0,50%,2").cut(np.arange(24, dtype=np.uint8).reshape(3, 8, 1))[..., 0].tolist()
    [[2, 3, 4, 5], [10, 11, 12, 13]]
    """

    name: str
    box: tuple[str, str, str, str]

    @classmethod
    def parse(cls, text: str) -> "Region":
        """The region that is written NAME=X,Y,W,H."""
        found = _REGION.fullmatch(text)
        if found is None or found[1] != found[1].strip():
            raise InvalidParameter(
                f"a region is NAME=X,Y,W,H in pixels or per cent (gate=10%,0,25%,50%), not {shown(text)}"
            )
        return cls(found[1], (found[2], found[3], found[4], found[5]))

    def cut(self, picture: Picture) -> Picture:
        """The region of a frame, rows×columns×3; refused if it is not inside."""
        height, width, _ = picture.shape
        x, y, w, h = map(_pixels, self.box, (width, height, width, height))
        if not (w >= 1 and h >= 1 and x + w <= width and y + h <= height):
            what = "empty" if w < 1 or h < 1 else f"not inside the frame, {width}×{height}"
            raise InvalidParameter(f"the region {self.name}={','.join(self.box)} is {what}")
        return picture[y : y + h, x : x + w]


def _pixels(text: str, side: int) -> int:
    return round(float(text[:-1]) / 100 * side) if text.endswith("%") else round(float(text))


def require_regions(regions: Iterable[Region]) -> tuple[Region, ...]:
    """The regions, which must have names of their own."""
    given = tuple(regions)
    names = [region.name.casefold() for region in given]
    for name in names:
        if names.count(name) > 1:
            raise InvalidParameter(f"two regions are called {name}; give each a name of its own")
    return given

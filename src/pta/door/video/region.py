"""Regions of a frame: a name and a box in pixels or per cent."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pta.errors import InvalidParameter, shown

_REGION = re.compile(r"([\w .-]{1,64})=" + ",".join([r"(\d{1,6}(?:\.\d{1,6})?%?)"] * 4))
Picture = NDArray[np.uint8]


@dataclass(frozen=True)
class Region:
    """A part of a frame; its left, top, width and height are pixels, or with % shares of the frame.

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
        region = cls(found[1], (found[2], found[3], found[4], found[5]))
        region.within(10**9, 10**9)
        return region

    def within(self, width: int, height: int) -> tuple[int, int, int, int]:
        """Left, top, right and bottom in pixels of a frame of this size; refused if that is not inside of it."""
        sides = (width, height, width, height)
        x, y, w, h = (_pixels(one, side) for one, side in zip(self.box, sides, strict=True))
        if not (w >= 1 and h >= 1 and x + w <= width and y + h <= height):
            raise InvalidParameter(
                f"the region {self.name}={','.join(self.box)} is not inside the frame, {width}×{height}"
            )
        return x, y, x + w, y + h

    def cut(self, picture: Picture) -> Picture:
        """The region of a frame, rows×columns×3."""
        left, top, right, bottom = self.within(picture.shape[1], picture.shape[0])
        return picture[top:bottom, left:right]


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


def cut_all(picture: Picture, regions: Iterable[Region]) -> list[tuple[str, Any]]:
    """The regions of a frame with their names, or without regions the frame itself."""
    return [(region.name, region.cut(picture)) for region in regions] or [("", picture)]

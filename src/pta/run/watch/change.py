"""A change of a confirmed answer, as rows, commands and messages have it."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple, Self

_UNSAFE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")  # in a variable of the environment


class RegionName(NamedTuple):
    """The names of a camera and of a region of its pictures; without regions the latter is empty."""

    camera: str
    region: str


@dataclass(frozen=True)
class AnswerChange:
    """The confirmed answer of a region changed with a picture."""

    time: str  # of the picture: seconds of a file, or UTC
    camera: str
    region: str
    label: str
    probability: float
    previous: str | None  # the answer before; None for the first
    number: int  # of the region's changes, from 1: by it one that comes twice is known
    gap: float | None = None  # seconds without pictures since the change before, if the camera was away

    @property
    def place(self) -> RegionName:
        """Where it happened."""
        return RegionName(self.camera, self.region)

    def as_dict(self) -> dict[str, Any]:
        """As messages and states have it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Self:
        """What `as_dict` gave, checked."""
        change = cls(**given)
        texts = (change.time, change.camera, change.region, change.label, change.previous or "")
        numbers = (change.probability, change.number, change.gap or 0)
        if not all(isinstance(one, str) for one in texts) or not all(isinstance(one, int | float) for one in numbers):
            raise TypeError("not a change")
        return change

    def environment(self) -> dict[str, str]:
        """As variables of a command, PTA_LABEL and so on; None is empty."""
        texts = {name: "" if value is None else str(value) for name, value in self.as_dict().items()}
        return {f"PTA_{name.upper()}": _UNSAFE.sub("�", text) for name, text in texts.items()}


COLUMNS = [one.name for one in fields(AnswerChange)]

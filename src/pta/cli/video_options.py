"""The options of videos and cameras."""

from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Annotated

from typer import Option

from pta.data.sources.video import VideoReading
from pta.door.video import Login, Region, Timing
from pta.errors import InvalidParameter


@dataclass(frozen=True)
class VideoOptions:
    """Which frames of videos and cameras are taken, and which parts of them."""

    every: Annotated[
        str | None,
        "Of a video or camera: one frame in so long, such as 2s.",
        Option(metavar="TIME", show_default="all"),
    ] = None
    fps: Annotated[float | None, "The same in frames per second."] = None
    region: Annotated[
        list[str] | None, "A part of the frame, in pixels or per cent; may be repeated.", Option(metavar="NAME=X,Y,W,H")
    ] = None
    start: Annotated[str | None, "Where in the file to begin: 90s, 0:01:30.", Option(metavar="TIME")] = None
    end: Annotated[str | None, "Where in the file to end.", Option(metavar="TIME")] = None
    login: Annotated[Path | None, "File with USER:PASSWORD of the camera, which only its owner can read."] = None
    login_variable: Annotated[
        str | None, "Variable of the environment with USER:PASSWORD of the camera.", Option(metavar="NAME")
    ] = None

    def __post_init__(self) -> None:
        if self.login is not None and self.login_variable is not None:
            raise InvalidParameter("--login and --login-variable say the same thing; leave one of them out")

    @cached_property
    def reading(self) -> VideoReading:
        """The same for the library, checked."""
        regions = tuple(map(Region.parse, self.region or []))
        login = None if self.login is None else Login.from_file(self.login)
        if self.login_variable is not None:
            login = Login.from_environment(self.login_variable)
        return VideoReading(Timing.of(self.every, self.fps, self.start, self.end), regions, login)

    def given(self) -> dict[str, bool]:
        """Which options were given."""
        return {f"--{one.name.replace('_', '-')}": bool(getattr(self, one.name)) for one in fields(self)}

    def require_none(self) -> None:
        """Refuse options of videos where there is none."""
        for option, is_given in self.given().items():
            if is_given:
                raise InvalidParameter(f"{option} is for videos and cameras; leave it out")

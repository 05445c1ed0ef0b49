"""The options of `pta watch`, and its configuration: a TOML file whose keys are the names of these options."""

import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

from typer import Option

from pta.cli import command_of, options
from pta.cli.monitor_options import AlarmOptions
from pta.cli.output import STDOUT
from pta.cli.video_options import VideoOptions
from pta.door.files import read_text
from pta.door.plain_files import require_no_link
from pta.door.video import Camera, Login, Timing, VideoAddress, require_private
from pta.errors import InvalidParameter, UnreadableFile, first_line, naming, nearest, shown
from pta.run.watch.change import RegionName
from pta.run.watch.command import Command
from pta.run.watch.confirm import Confirmation
from pta.run.watch.mqtt import Broker

Given = TypeVar("Given")
_USUAL_STEP = 0.5  # seconds
_NAME = re.compile(r"[\w .-]{1,64}")
_HAS_LOGIN = re.compile(r"\w+://[^/]*@")


@dataclass(frozen=True)
class CameraOptions:
    """What is seen of a camera, and when its answers count as changed."""

    video: VideoOptions
    classes: Annotated[
        list[str] | None,
        "Class names: a file, or a list with commas; REGION=… for one region; may be repeated.",
        Option(metavar="FILE|A,B,C"),
    ] = None
    templates: options.Templates = "clip"
    confirm: Annotated[int, "Equal answers in a row that make a change."] = 3
    enter: Annotated[float, "The least probability of a new answer."] = 0.5
    leave: Annotated[float, "The old answer must be less probable than this."] = 0.5
    silent_after: Annotated[
        float | None, "Seconds without a picture after which the alarm silent is raised.", Option(min=0.1)
    ] = None

    @property
    def needs(self) -> Confirmation:
        """What a change needs."""
        return Confirmation(self.confirm, self.enter, self.leave)

    @property
    def timing(self) -> Timing:
        """Which moments are taken: two per second, unless something else is asked for."""
        timing = self.video.reading.timing
        return timing if timing.every is not None else replace(timing, every=_USUAL_STEP)

    def names(self) -> dict[str, list[str]]:
        """The class names of each region, read from their files."""
        regions = [one.name for one in self.video.reading.regions] or [""]
        given: dict[str, str | None] = dict.fromkeys(regions)
        for one in self.classes or []:
            region, equals, rest = one.partition("=")
            if equals and region not in given:
                raise InvalidParameter(
                    f"--classes {one}: no region is called {shown(region)}; {nearest(region, given)}"
                )
            given |= {region: rest} if equals else {name: one for name in regions if given[name] is None}
        return {region: options.read_classes(classes) for region, classes in given.items()}


@dataclass(frozen=True)
class WatchOptions:
    """The model, the states, and what is done with changes: the same for all cameras."""

    model: options.ModelOptions
    method: options.MethodOptions
    alarms: AlarmOptions
    batch: options.Batch = 64
    state: Annotated[Path | None, "Folder for a state per region, from which a next run goes on."] = None
    save_every: Annotated[float, "Seconds between saves of a state.", Option(min=0)] = 30
    out: Annotated[str, "File for the rows, .jsonl or .csv, which are added, or - for stdout."] = STDOUT
    command: Annotated[str | None, "Program and arguments to run with each change, without a shell."] = None
    command_timeout: Annotated[float, "Seconds after which the command is ended.", Option(min=0.1)] = 30
    mqtt: Annotated[str | None, "Publish changes to this broker.", Option(metavar="mqtt[s]://HOST[:PORT][/PREFIX]")] = (
        None
    )
    mqtt_login: Annotated[Path | None, "File with USER:PASSWORD for the broker."] = None
    mqtt_certificates: Annotated[Path | None, "File with the certificates that the broker's may be signed by."] = None
    home_assistant: Annotated[bool, "Tell Home Assistant of the regions."] = True
    snapshots: Annotated[Path | None, "Folder for a picture of each change.", Option(show_default="none")] = None
    snapshots_mib: Annotated[float, "MiB of pictures that are kept.", Option(min=0.1)] = 256

    def __post_init__(self) -> None:
        if self.out != STDOUT and Path(self.out).suffix not in (".jsonl", ".csv"):
            raise UnreadableFile(f"--out {self.out}: the file must end in .jsonl or .csv")
        if self.mqtt is None and (self.mqtt_login is not None or self.mqtt_certificates is not None):
            raise InvalidParameter("--mqtt-login and --mqtt-certificates belong to --mqtt, which is missing")
        if self.command is not None:
            Command(self.program)
        if self.snapshots is not None:
            require_no_link(self.snapshots)
        _ = self.broker(), self.alarms.receiver()
        if self.state is not None and self.state.is_file():
            raise UnreadableFile(f"--state {self.state} is a file; it takes a folder, with a state per region")

    @property
    def rows(self) -> Path | None:
        """The file of the rows, unless they go to standard output."""
        return None if self.out == STDOUT else Path(self.out)

    @property
    def program(self) -> list[str]:
        """The command in its words."""
        try:
            return shlex.split(self.command or "")
        except ValueError as error:
            raise InvalidParameter(f"--command cannot be read: {first_line(error)}") from None

    def broker(self) -> Broker | None:
        """Where messages go."""
        if self.mqtt is None:
            return None
        login = None if self.mqtt_login is None else Login.from_file(self.mqtt_login)
        return Broker(self.mqtt, login, self.mqtt_certificates)


@dataclass(frozen=True)
class NamedCamera:
    """A camera as it is to be watched."""

    name: str
    address: VideoAddress
    options: CameraOptions
    classes: Mapping[RegionName, Sequence[str]]

    def camera(self, **how: Any) -> Camera:
        """The camera, which is not started."""
        return Camera(self.address, self.name, self.options.timing, self.options.video.reading.regions, **how)


def named_camera(name: str, source: str, given: CameraOptions, *, may_hold_login: bool = False) -> NamedCamera:
    """Check what can be checked without the camera."""
    if not _NAME.fullmatch(name):
        raise InvalidParameter(f"a camera has a name of letters, digits, spaces, dots and hyphens, not {shown(name)}")
    login = given.video.reading.login
    _ = given.needs, given.timing
    classes = {RegionName(name, region): names for region, names in given.names().items()}
    return NamedCamera(name, VideoAddress.parse(source, login, may_hold_login=may_hold_login), given, classes)


def read_configuration(path: Path) -> tuple[WatchOptions, list[NamedCamera]]:
    """What a configuration says: options of all cameras, options of each, and options that several cameras share."""
    text = read_text(path, "configuration")
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(f"{path} is not TOML: {first_line(error)}") from None
    with naming(str(path)):
        tables = content.pop("camera", {})
        if not isinstance(tables, dict) or not tables or not all(isinstance(one, dict) for one in tables.values()):
            raise InvalidParameter("each camera has a table: [camera.NAME] with source = ADDRESS")
        _, of_cameras, _ = _command(CameraOptions)
        shared = {key: content.pop(key) for key in of_cameras if key in content}
        watching = _options(WatchOptions, content, more=of_cameras)
        return watching, [_camera(path, name, {**shared, **table}) for name, table in tables.items()]


def _camera(path: Path, name: str, table: dict[str, Any]) -> NamedCamera:
    with naming(f"camera {name}"):
        source = table.pop("source", None)
        options = _options(CameraOptions, table, more=["source"])
        if not isinstance(source, str):
            raise InvalidParameter('the key source is missing: source = "rtsp://…", or a file')
        has_login = _HAS_LOGIN.match(source) is not None
        if has_login:
            require_private(path)
        return named_camera(name, source, options, may_hold_login=has_login)


def _command(kind: type[Given]) -> tuple[Any, dict[str, Any], list[Given]]:
    """A command with the options of a dataclass, these options by their keys, and where it puts what was given."""
    taken: list[Given] = []

    def take(given: Any) -> None:
        taken.append(given)

    take.__annotations__ = {"given": kind, "return": None}
    command = command_of(take)
    return command, {one.opts[0].removeprefix("--").replace("-", "_"): one for one in command.params}, taken


def _options(kind: type[Given], table: Mapping[str, Any], more: Iterable[str] = ()) -> Given:
    """The dataclass from a table of the configuration, as if its keys had been options of a command."""
    command, known, taken = _command(kind)
    for key in table:
        if key not in known:
            raise InvalidParameter(f"there is no key {shown(key)}; {nearest(key, [*known, *more])}")
    arguments = [word for key, value in table.items() for word in _words(key, value, known[key])]
    try:
        command.main(arguments, standalone_mode=False)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        raise InvalidParameter(error.format_message()) from None
    return taken[0]


def _words(key: str, value: Any, option: Any) -> Iterator[str]:
    """The words of a command line for a key: several for a list, NAME=VALUE for a table."""
    written = f"--{key.replace('_', '-')}"
    if isinstance(value, bool) and option.is_flag:
        yield written if value else option.secondary_opts[0]
    elif isinstance(value, list) and option.multiple and key != "classes":
        yield from (f"{written}={_text(key, one)}" for one in value)
    elif isinstance(value, dict) and option.multiple:
        yield from (f"{written}={name}={_text(key, one)}" for name, one in value.items())
    else:
        yield f"{written}={_text(key, value)}"


def _text(key: str, value: Any) -> str:
    """A value as a command line has it."""
    if isinstance(value, list) and key in ("classes", "command") and all(isinstance(one, str) for one in value):
        if key == "command":
            return shlex.join(value)
        if not any("," in one for one in value):
            return ",".join(value)
        raise InvalidParameter("classes: a name has a comma; put the names into a file, one per line")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InvalidParameter(f"{key} cannot be {shown(value)}")
    return str(value)

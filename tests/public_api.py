"""The public names: Python with signatures, commands with options, exit codes, routes, metrics, formats.

`python tests/public_api.py` writes the list to `tests/public_api/current.txt`; `make release` keeps it as that of the
version. What differs from the list of the last release must stand in the newest section of CHANGELOG.md, as code.
docs/stability.md says what is promised of it.
"""

import inspect
import re
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace

from typer.main import get_command

import pta
from pta.cli import COMMANDS, app, load_command
from pta.errors import MachineFailure, UserMistake
from pta.measure.leaderboard import _KEY, MEASURED
from pta.methods import Adapter, adapter_class
from pta.run.classifier import MORE
from pta.run.row_file import columns
from pta.serve.http.app import create_app
from pta.serve.http.monitoring import Metrics
from pta.serve.http.security import HttpSettings
from pta.serve.streams.served_model import ServedModel
from pta.serve.streams.service import Service, ServiceSettings

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tests" / "public_api"
CURRENT = FOLDER / "current.txt"
FORMATS = {
    "state": "pta.methods.state_file:_VERSION",
    "segment": "pta.engines.segments.segment:_VERSION",
    "snapshot": "pta.serve.streams.past:_VERSION",
    "journal": "pta.serve.journal.schema:FORMAT",
    "config.json of the hub": "pta.run.hub_config:_FORMAT",
}
PLUGINS = ("pta.methods.registry", "pta.models.load", "pta.data.open")
MESSAGES = ("quiet", "verbose", "log-file")  # options of every command
PLAIN = (str, int, float, bool, type(None))


def public_api():
    """A line per public name; each begins with what kind of name it is."""
    lines = [*_python(), *_methods(), *_commands(), *_exit_codes(), *_service(), *_formats(), *_environment()]
    return sorted(set(lines))


# -- Python -----------------------------------------------------------------------------------------------------------


def _python():
    """Of `pta` itself and what docs/api.md shows; the classes of methods are below."""
    listed = re.findall(r"^::: (\S+)", (ROOT / "docs" / "api.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    for name in pta.__all__:
        yield f"python pta.{name}"
        if not _is_method(getattr(pta, name)):
            yield from _of(f"pta.{name}", getattr(pta, name))
    for place in listed:
        home, _, name = place.rpartition(".")
        thing = getattr(import_module(home), name)
        if not _is_method(thing) and name not in pta.__all__:
            yield from _of(place, thing)


def _is_method(thing):
    return inspect.isclass(thing) and issubclass(thing, Adapter) and thing is not Adapter


def _of(place, thing):
    if isinstance(thing, ModuleType):
        for name, value in vars(thing).items():
            if inspect.isfunction(value) and value.__module__ == thing.__name__ and not name.startswith("_"):
                yield from _of(f"{place}.{name}", value)
        return
    yield f"python {place}{_signature(thing)}"
    if inspect.isclass(thing):
        yield from _members(place, thing)


def _members(place, kind, beside=()):
    """The public methods and properties that a class of ours declares."""
    for owner in kind.__mro__:
        if not owner.__module__.startswith("pta."):
            continue
        for name, value in vars(owner).items():
            if name.startswith("_") or name in beside:
                continue
            value = value.__func__ if isinstance(value, classmethod | staticmethod) else value
            if inspect.isfunction(value):
                yield f"python {place}.{name}{_signature(value, is_member=True)}"
            elif isinstance(value, property) or hasattr(value, "func"):
                yield f"python {place}.{name}"


def _signature(thing, *, is_member=False):
    """Names, kinds and plain defaults of the arguments, without types."""
    try:
        given = [*inspect.signature(thing).parameters.values()]
    except (TypeError, ValueError):
        return ""
    bare = [one.replace(annotation=one.empty, default=_default(one)) for one in given[is_member:]]
    return str(inspect.Signature(bare))


def _default(parameter):
    value = parameter.default
    if value is parameter.empty or isinstance(value, PLAIN):
        return value
    return Shown("…")


class Shown(str):
    """A default that stands in a signature without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def _methods():
    """Parameters with defaults and bounds, and what a method can do beyond `Adapter`."""
    for name in sorted(pta.methods.BUILT_IN):
        kind = adapter_class(name)
        yield f"method {name}"
        for parameter, one in kind.declared.items():
            yield f"method {name}.{parameter} = {one.default!r}, {one.bounds}"
        yield from _members(f"pta.{kind.__name__}", kind, beside=dir(Adapter))


# -- the command ------------------------------------------------------------------------------------------------------


def _commands():
    yield from _command("pta", get_command(app), ())
    for option in MESSAGES:
        yield f"command pta COMMAND --{option}"
    for name in COMMANDS:
        command = load_command(name)
        yield from _command(f"pta {name}", command, getattr(command, "commands", {}).items())


def _command(place, command, below):
    yield f"command {place}"
    for name, inside in below:
        yield from _command(f"{place} {name}", inside, getattr(inside, "commands", {}).items())
    for one in command.params:
        if getattr(one, "hidden", False) or one.name.replace("_", "-") in MESSAGES:
            continue
        names = (
            [*one.secondary_opts, *sorted(one.opts, key=len)] if one.param_type_name == "option" else [one.name.upper()]
        )
        default = str(one.default) if isinstance(one.default, Path) else one.default
        usual = "" if default in (None, "") or default is False else f" = {default!r}"
        several = ", several" if one.multiple or one.nargs != 1 else ""
        yield f"command {place} {' '.join(names)}{usual}{several}{', needed' if one.required else ''}"


def _exit_codes():
    yield "exit code 0 done"
    yield f"exit code {MachineFailure.exit_code} what the machine cannot do, a failed check or a defect"
    yield f"exit code {UserMistake.exit_code} the user's mistake"
    yield "exit code 130 interrupted"


# -- the service and its files ----------------------------------------------------------------------------------------


def _service():
    classifier = pta.ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"])
    with Service.open(ServedModel(classifier, "pta"), None, ServiceSettings()) as service:
        for path, endpoints in create_app(service, HttpSettings("token")).endpoints.items():
            yield from (f"route {method} {path}" for method in endpoints)
    idle = {"ready": True, "reason": None, "queued": 0, "streams_known": 0, "streams_loaded": 0, "journal_bytes": 0}
    idle |= {"snapshot_age": 0.0, "shape": SimpleNamespace(method="pta"), "health": lambda most: []}
    told = Metrics(SimpleNamespace(observe_commits=lambda call: None, **idle), per_stream=True).text().decode()
    yield from (f"metric {name}, {kind}" for name, kind in re.findall(r"^# TYPE (pta_\w+) (\w+)", told, flags=re.M))


def _formats():
    for name, place in FORMATS.items():
        home, _, constant = place.partition(":")
        yield f"format {name} {getattr(import_module(home), constant)}"
    for name in columns(2, MORE):
        yield f"column rows of pta predict: {name}"
    for name in (*_KEY, *MEASURED):
        yield f"column leaderboard: {name}"


def _environment():
    for module in PLUGINS:
        yield f"entry point {import_module(module).GROUP}"
    for path in (ROOT / "src" / "pta").rglob("*.py"):
        yield from (f"variable {name}" for name in re.findall(r"[\"'](PTA_[A-Z_]+)[\"']", path.read_text("utf-8")))


# -- what changed -----------------------------------------------------------------------------------------------------


def released():
    """The list of the last release, if there was one."""
    lists = [path for path in FOLDER.glob("*.txt") if path != CURRENT]
    newest = max(lists, key=lambda path: tuple(map(int, path.stem.split("."))), default=None)
    return [] if newest is None else newest.read_text(encoding="utf-8").splitlines()


def newest_section(changelog):
    """The text between the first and the second heading of a version."""
    return re.split(r"^## ", changelog, flags=re.MULTILINE)[1]


def unnamed(before, now, section):
    """The names that came, went or changed and do not stand in the section as code."""
    words = {word for code in re.findall(r"`([^`]+)`", section) for word in re.split(r"[\s.,:=()]+", code)}
    return sorted({_name(line) for line in set(before) ^ set(now)} - words)


def _name(line):
    """The last word of what a line is about, up to its value."""
    head = re.split(r"[(=,]| \d+$", line, maxsplit=1)[0].strip()
    return re.split(r"[\s.]+", head)[-1]


def main():
    CURRENT.write_text("\n".join(public_api()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

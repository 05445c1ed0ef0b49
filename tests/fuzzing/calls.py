"""One call and the contract it is held to: it succeeds, or raises `PtaError` with one line, and leaves nothing behind.

It prints nothing, lets no warning of another library through, leaves no thread, and writes only below its own folder.
"""

import io
import os
import re
import shutil
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import torch

from fuzzing import valid, values
from fuzzing.files import mutated
from pta.errors import PtaError

Value = TypeVar("Value")

_SOURCE = "src/pta/"
_OWN_WARNINGS = ("several classes are called", "float16 state rounds")
_SECONDS_FOR_A_THREAD_TO_END = 20
_LONGEST = 10_000  # items that are taken from an iterator


class Broken(AssertionError):
    """A law that a target checks itself does not hold."""


@dataclass
class Scene:
    """What a call is made from: its random numbers, a folder of its own, and a folder with valid files."""

    random: Random
    folder: Path
    files: Path
    exact: bool = False  # give valid input only

    def around(self, value: Value) -> Value | Any:
        """A valid value, most of the time; else something near it, or anything."""
        return value if self.exact else values.around(self.random, value)

    def odd(self, value: Any) -> Any:
        """Something near a value."""
        return value if self.exact else values.near(self.random, value)

    def file(self, name: str) -> Path:
        """A file, mutated."""
        return self._copy(valid.file(self.files, name))

    def state(self, method: str) -> Path:
        """The file of a method's state, mutated."""
        return self._copy(valid.state_file(self.files, method))

    def _copy(self, file: Path) -> Path:
        if not self.exact:
            return mutated(self.random, file, self.folder)
        copy = self.folder / file.name
        shutil.copytree(file, copy, dirs_exist_ok=True) if file.is_dir() else shutil.copy(file, copy)
        return copy


@dataclass(frozen=True)
class Target:
    """Something that is called: input is prepared for a scene, and then used."""

    name: str
    prepare: Callable[[Scene], Callable[[], Any]]
    weight: int = 2
    covers: tuple[str, ...] = ()  # public names, as `package.module:name`
    always_refused: bool = False  # where there is no valid input that a test could afford


@dataclass(frozen=True)
class Violation:
    """A call that did not keep the contract."""

    target: str
    kind: str  # the type of the exception, or what else was wrong
    where: str  # the innermost line of the package
    detail: str

    def __str__(self) -> str:
        return f"{self.target}: {self.kind} {self.where}\n{self.detail}"

    @property
    def group(self) -> tuple[str, str, str]:
        """Equal for violations that have one cause; those of all methods count together."""
        return self.where, self.kind, self.target.partition(" ")[0]


def make_call(target: Target, scene: Scene) -> Violation | None:
    """Make a call; what it violates, if anything."""
    printed, caught = io.StringIO(), []
    try:
        prepared = target.prepare(scene)
        before = set(threading.enumerate())
        with _quiet(printed, caught), _watched(scene.folder) as written:
            outcome = _outcome(target, prepared)
    except PtaError as error:  # valid input could not be made
        return Violation(target.name, "no input", _place(error), traceback.format_exc())
    if outcome is not None:
        return outcome
    for problem, detail in _left_behind(before, printed.getvalue(), caught, written, scene.folder):
        return Violation(target.name, problem, "", detail)
    return None


def _outcome(target: Target, prepared: Callable[[], Any]) -> Violation | None:
    try:
        _use(prepared())
    except PtaError as error:
        if len(str(error).splitlines()) != 1:
            return Violation(target.name, "not one line", _place(error), repr(str(error))[:500])
    except Broken as error:
        return Violation(target.name, str(error), _place(error), traceback.format_exc())
    except Exception as error:
        return Violation(target.name, type(error).__name__, _place(error), _shortened(traceback.format_exc()))
    return None


def _use(result: Any) -> None:
    """Take what an iterator gives, so that its work is done."""
    if isinstance(result, Iterator):
        for _ in islice(result, _LONGEST):
            pass


def _place(error: BaseException) -> str:
    """The innermost line of the package that an error came through."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _SOURCE in frame.filename]
    if not frames:
        return "outside"
    return f"{frames[-1].filename.partition(_SOURCE)[2]}:{frames[-1].lineno} {frames[-1].name}"


def _shortened(text: str) -> str:
    return "\n".join(line[:300] for line in text.splitlines()[-12:])


def _left_behind(
    before: set[threading.Thread], printed: str, caught: list[Any], written: list[str], folder: Path
) -> Iterator[tuple[str, str]]:
    for thread in set(threading.enumerate()) - before:
        thread.join(_SECONDS_FOR_A_THREAD_TO_END)
        if thread.is_alive():
            yield "a thread is left", thread.name
    for warning in caught:
        # what an earlier call has left open is told whenever memory is collected, so it says nothing about this call
        if not str(warning.message).startswith(_OWN_WARNINGS) and warning.category is not ResourceWarning:
            yield f"{warning.category.__name__}: {str(warning.message)[:60]}", str(warning)
    if printed:
        yield "something is printed", printed[:500]
    for path in written:
        yield "a file is written elsewhere", path
    for path in folder.rglob(".*"):
        if re.fullmatch(r"\..*\.\d+\.[0-9a-f]{8}", path.name):
            yield "a temporary file is left", path.name


@contextmanager
def _quiet(printed: io.StringIO, caught: list[Any]) -> Iterator[None]:
    with warnings.catch_warnings(record=True) as found, redirect_stdout(printed), redirect_stderr(printed):
        warnings.simplefilter("always")
        always, _ = torch.is_warn_always_enabled(), torch.set_warn_always(True)
        try:
            yield
        finally:
            torch.set_warn_always(always)
    caught += found


# -- files that are written -------------------------------------------------------------------------------------------

_allowed: str | None = None  # while a call is under way
_written: list[str] = []
_ANYWHERE = (
    "/dev/",
    "/proc/",
    *(str(Path.home() / place / "matplotlib") for place in (".config", ".cache")),
)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _allowed is None:
        return
    if event == "open":
        path, _, flags = arguments
        if isinstance(path, str | bytes) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            _note(path)
    elif event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "sqlite3.connect"):
        _note(arguments[0])


def _note(path: Any) -> None:
    place = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 (a path may be anything)
    if not place.startswith((str(_allowed), *_ANYWHERE)):
        _written.append(place)


@contextmanager
def _watched(folder: Path) -> Iterator[list[str]]:
    """In the folder, which is also the place for temporary files and caches; gives what is written elsewhere."""
    global _allowed
    _add_audit_hook()
    _written.clear()
    before = os.getcwd(), os.environ.get("PTA_CACHE"), tempfile.tempdir, sys.dont_write_bytecode  # noqa: PTH109
    os.chdir(folder)
    os.environ["PTA_CACHE"] = str(folder / "cache")
    tempfile.tempdir, sys.dont_write_bytecode, _allowed = str(folder), True, str(folder)
    try:
        yield _written
    finally:
        _allowed = None
        here, cache, tempfile.tempdir, sys.dont_write_bytecode = before
        os.chdir(here)
        os.environ.pop("PTA_CACHE") if cache is None else os.environ.update(PTA_CACHE=cache)


@cache
def _add_audit_hook() -> None:
    sys.addaudithook(_audit)

"""One call and the contract it is held to.

It gives a valid answer, or raises `PtaError` with one line. It prints nothing, lets no warning of another library
through, leaves no thread, and writes only below its own folder.
"""

import io
import re
import shutil
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from fuzzing import valid, values
from fuzzing.files import mutated
from fuzzing.writing import not_watched, watched
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

    def one_of(self, valid: Value, *others: Value) -> Value:
        """One of several values, of which the first is valid."""
        return valid if self.exact else self.random.choice((valid, *others))

    def some_of(self, *options: Value) -> list[Value]:
        """One of several options; all of them where all input is valid."""
        return [*options] if self.exact else [self.random.choice(options)]

    def file(self, name: str) -> Path:
        """The file or folder of that name, mutated."""
        with not_watched():
            file = valid.file(self.files, name)
            if not self.exact:
                return mutated(self.random, file, self.folder)
        copy = self.folder / file.name
        shutil.copytree(file, copy, dirs_exist_ok=True) if file.is_dir() else shutil.copy(file, copy)
        return copy

    def content(self, name: str) -> bytes:
        """What the mutated file of that name holds, if it is one that ends."""
        file = self.file(name)
        return file.read_bytes() if file.is_file() and not file.is_symlink() else b""


@dataclass(frozen=True)
class Target:
    """Something that is called with input from a scene."""

    name: str
    call: Callable[[Scene], Any]
    weight: int
    covers: frozenset[str]  # public names, as `package.module:name`
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
    printed, caught, before = io.StringIO(), list[warnings.WarningMessage](), set(threading.enumerate())
    try:
        with _quiet(printed, caught), watched(scene.folder) as written:
            require_valid(target.call(scene))
    except PtaError as error:
        if len(str(error).splitlines()) != 1:
            return Violation(target.name, "not one line", _place(error), repr(str(error))[:500])
    except Exception as error:
        kind = str(error) if isinstance(error, Broken) else type(error).__name__
        last = "\n".join(line[:300] for line in traceback.format_exc().splitlines()[-12:])
        return Violation(target.name, kind, _place(error), last)
    for problem, detail in _left_behind(before, printed.getvalue(), caught, written, scene.folder):
        return Violation(target.name, problem, "", detail)
    return None


def require_valid(result: Any) -> None:
    """Take what an iterator gives, so that its work is done; numbers must be finite."""
    match result:
        case Iterator() | list() | tuple():
            for one in islice(result, _LONGEST):
                require_valid(one)
        case Tensor() | np.ndarray() | float():
            numbers = torch.as_tensor(result)
            if not bool(torch.isfinite(numbers).all()):
                raise Broken("gives numbers that are not finite")


def _place(error: BaseException) -> str:
    """The innermost line of the package that an error came through."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _SOURCE in frame.filename]
    if not frames:
        return "outside"
    return f"{frames[-1].filename.partition(_SOURCE)[2]}:{frames[-1].lineno} {frames[-1].name}"


def _left_behind(
    before: set[threading.Thread], printed: str, caught: list[Any], written: list[str], folder: Path
) -> Iterator[tuple[str, str]]:
    for thread in set(threading.enumerate()) - before:
        if thread.name == "tqdm_monitor":  # of a library, one for the whole process
            continue
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
def _quiet(printed: io.StringIO, caught: list[warnings.WarningMessage]) -> Iterator[None]:
    with warnings.catch_warnings(record=True) as found, redirect_stdout(printed), redirect_stderr(printed):
        warnings.simplefilter("always")
        always, _ = torch.is_warn_always_enabled(), torch.set_warn_always(True)
        try:
            yield
        finally:
            torch.set_warn_always(always)
    caught += found

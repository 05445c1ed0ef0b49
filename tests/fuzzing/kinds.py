"""Kinds of targets: a function with valid input, and a command with its arguments."""

import io
import sys
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from fuzzing.calls import Broken, Scene, Target
from fuzzing.files import odd_argument
from pta.errors import PtaError


@dataclass(frozen=True)
class Own:
    """An object of the project, which is given as it is."""

    make: Callable[[Scene], Any]


@dataclass(frozen=True)
class Made:
    """A valid value that is made when it is needed, and mutated."""

    make: Callable[[Scene], Any]


@dataclass(frozen=True)
class File:
    """A file of this name, mutated."""

    name: str
    form: Callable[[Path], Any] = str


def calls(
    name: str,
    *arguments: Any,
    then: Callable[[Any], Any] | None = None,
    covers: Iterable[str] = (),
    weight: int = 2,
    **named: Any,
) -> Target:
    """A call of a public function with this valid input; `then` uses what it gives."""

    def prepare(scene: Scene) -> Callable[[], Any]:
        function = resolve_name(name)
        given = [_given(scene, one) for one in arguments]
        also = {key: _given(scene, one) for key, one in named.items()}

        def call() -> Any:
            result = function(*given, **also)
            return result if then is None else then(result)

        return call

    return Target(name, prepare, weight, (name, *covers))


def _given(scene: Scene, argument: Any) -> Any:
    match argument:
        case Own(make):
            return make(scene)
        case Made(make):
            return scene.around(make(scene))
        case File(name, form):
            return form(scene.file(name))
        case _:
            return scene.around(argument)


def command(*arguments: Any, stdin: str = "names.txt", weight: int = 2, always_refused: bool = False) -> Target:
    """A call of the command with these arguments, in this process."""
    return Target(
        f"pta {arguments[0]}",
        lambda scene: _prepare_command(scene, arguments, stdin),
        weight,
        (f"pta.cli:{arguments[0]}",),
        always_refused,
    )


def _prepare_command(scene: Scene, arguments: tuple[Any, ...], stdin: str) -> Callable[[], Any]:
    given = [str(scene.file(one.name)) if isinstance(one, File) else one for one in arguments]
    if not scene.exact:
        for at in range(1, len(given)):
            is_file = isinstance(arguments[at], File)  # mutated already, and part of its path may lie elsewhere
            if not is_file and scene.random.random() < (0.03 if given[at].startswith("--") else 0.12):
                given[at] = odd_argument(scene.random, given[at])
        if scene.random.random() < 0.1:
            del given[scene.random.randrange(1, len(given)) :]
    return partial(_run_command, given, scene.file(stdin))


def _run_command(arguments: list[str], stdin: Path) -> None:
    from pta.cli import main

    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="surrogateescape")
    error = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace")
    before = sys.argv, sys.stdin, sys.stdout, sys.stderr, warnings.showwarning
    with _readable(stdin).open("rb") as file:
        try:
            sys.argv, sys.stdin, sys.stdout, sys.stderr = ["pta", *arguments], file, out, error
            main()
        except SystemExit as stop:
            code = stop.code
        finally:
            sys.argv, sys.stdin, sys.stdout, sys.stderr, warnings.showwarning = before
    said = error.buffer.getvalue().decode("utf-8", "surrogateescape") if not error.flush() else ""
    if code not in (0, 1, 2):
        raise Broken(f"exit code {code}")
    if any((sign < " " and sign not in "\n") or sign in "\x7f\x9b" for sign in said):
        raise Broken("control characters on the terminal")
    if code == 2:
        if not said.strip() and arguments:
            raise Broken("exit code 2 without a line")
        raise PtaError(said.strip().splitlines()[-1] if said.strip() else "help was shown")


def _readable(path: Path) -> Path:
    """Standard input is a file that somebody could open."""
    return path if path.is_file() and not path.is_symlink() else Path("/dev/null")

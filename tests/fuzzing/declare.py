"""How targets are declared: a function with valid input, a piece of code, or a command with its arguments.

A target covers what of the package its code names, and the methods of these classes that it calls.
"""

import inspect
import io
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from types import CodeType, FunctionType
from typing import Any
from unittest.mock import patch

from fuzzing.calls import Broken, Scene, Target
from pta.cli import main
from pta.errors import PtaError

TARGETS: list[Target] = []


def target(weight: int, name: str = "", *, covers: Iterable[str] = ()) -> Callable[[Any], Any]:
    """Declare code that takes a scene; `covers` says what is called under a name that the code does not import."""

    def declare(call: Any) -> Any:
        code = call.func if isinstance(call, partial) else call
        TARGETS.append(Target(name or code.__name__, call, weight, frozenset((*covers, *_covered(code)))))
        return call

    return declare


class Call:
    """A call of a public function with this valid input, each part mutated; `then` uses what it gives.

    A function as an argument is called with the scene and gives it; another `Call` makes it.
    """

    def __init__(self, name: str, *arguments: Any, then: Callable[[Any], Any] | None = None, **named: Any) -> None:
        self._name, self._arguments, self._named, self._then = name, arguments, named, then
        inside = [one for one in (*arguments, *named.values()) if isinstance(one, Call)]
        used = _covered(then) if then else ()
        self.covers: frozenset[str] = frozenset((name, *used)).union(*(one.covers for one in inside))

    def __call__(self, scene: Scene) -> Any:
        given = [_given(scene, one) for one in self._arguments]
        result = resolve_name(self._name)(*given, **{key: _given(scene, one) for key, one in self._named.items()})
        return result if self._then is None else self._then(result)


def _given(scene: Scene, argument: Any) -> Any:
    return argument(scene) if isinstance(argument, FunctionType | Call) else scene.around(argument)


def calls(name: str, *arguments: Any, weight: int = 2, **named: Any) -> None:
    """Declare a `Call`."""
    call = Call(name, *arguments, **named)
    TARGETS.append(Target(name, call, weight, call.covers))


def file(name: str, form: Callable[[Path], Any] = str) -> Callable[[Scene], Any]:
    """An argument: a file of this name, mutated."""
    return lambda scene: form(scene.file(name))


def _covered(function: Any) -> Iterator[str]:
    names = set(_names(function.__code__))
    for one in filter(None, map(function.__globals__.get, names)):
        if inspect.isfunction(one) and one.__module__.startswith("fuzzing.") and one is not function:
            yield from _covered(one)
        elif callable(one) and getattr(one, "__module__", "").startswith("pta") and hasattr(one, "__qualname__"):
            place = f"{one.__module__}:{one.__qualname__}"
            yield from (place, *(f"{place}.{name}" for name in names & vars(one).keys() if inspect.isclass(one)))


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inside in code.co_consts:
        if isinstance(inside, CodeType):
            yield from _names(inside)


def command(line: str, *, stdin: str = "names.txt", weight: int = 2, always_refused: bool = False) -> None:
    """Declare a call of the command with these arguments, in this process; {NAME} is a file of that name, mutated."""
    name = line.split()[0]
    call = partial(_run_mutated, arguments=line.split(), stdin=stdin)
    TARGETS.append(Target(f"pta {name}", call, weight, frozenset({f"pta.cli:{name}"}), always_refused))


def _run_mutated(scene: Scene, arguments: list[str], stdin: str) -> None:
    given = [str(scene.file(one[1:-1])) if one.startswith("{") else _odd_argument(scene, one) for one in arguments[1:]]
    if not scene.exact and scene.random.random() < 0.1:
        del given[scene.random.randrange(len(given)) :]
    (scene.folder / "stdin").write_bytes(scene.content(stdin))
    _run_command([arguments[0], *given], scene.folder / "stdin")


def _odd_argument(scene: Scene, argument: str) -> str:
    if scene.random.random() > (0.03 if argument.startswith("--") else 0.12):
        return argument
    odd = scene.odd(argument).replace("\0", "0")  # no program can be given a zero byte
    return odd.replace("..", ".").lstrip("/")  # what is written where it says is no violation


def _run_command(arguments: list[str], stdin: Path) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="surrogateescape")
    error = io.TextIOWrapper(written := io.BytesIO(), encoding="utf-8", errors="backslashreplace", write_through=True)
    code: Any = None
    streams = {"argv": ["pta", *arguments], "stdout": out, "stderr": error}
    with stdin.open("rb") as given, patch.object(warnings, "showwarning"), patch.multiple(sys, stdin=given, **streams):
        try:
            main()
        except SystemExit as stop:
            code = stop.code
    said = written.getvalue().decode("utf-8", "surrogateescape").strip()
    if code not in (0, 1, 2):
        raise Broken(f"exit code {code}")
    if any((sign < " " and sign != "\n") or sign in "\x7f\x9b" for sign in said):
        raise Broken("control characters on the terminal")
    if code == 2:
        if not said:
            raise Broken("exit code 2 without a line")
        raise PtaError(said.splitlines()[-1])

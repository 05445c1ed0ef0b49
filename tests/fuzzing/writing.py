"""What a call writes outside of its folder."""

import io
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

_allowed: str | None = None  # while a call is under way
_written: list[str] = []
_ANYWHERE = ("/dev/", "/proc/", *(str(Path.home() / place / "matplotlib") for place in (".config", ".cache")))


@contextmanager
def watched(folder: Path) -> Iterator[list[str]]:
    """In the folder, which is also the place for temporary files and caches; gives what is written elsewhere."""
    _add_audit_hook()
    _written.clear()
    here = patch.multiple(tempfile, tempdir=str(folder)), patch.dict(os.environ, PTA_CACHE=str(folder / "cache"))
    with chdir(folder), here[0], here[1], patch.object(sys, "dont_write_bytecode", True), _allow(str(folder)):
        yield _written


@contextmanager
def not_watched() -> Iterator[None]:
    """While a file is made, by libraries that show how far they are."""
    quiet = redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO())
    with quiet[0], quiet[1], warnings.catch_warnings(record=True), _allow(None):
        yield


def _allow(folder: str | None) -> Any:
    return patch.object(sys.modules[__name__], "_allowed", folder)


_CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "sqlite3.connect")


@cache
def _add_audit_hook() -> None:
    sys.addaudithook(_audit)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _allowed is None:
        return
    if event == "open":
        path, _, flags = arguments
        if isinstance(path, str | bytes) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            _note(path)
    elif event in _CHANGES and not isinstance(arguments[0], int):  # a descriptor, whose file was opened before
        _note(arguments[0])


def _note(path: Any) -> None:
    place = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 (a path may be anything)
    if not place.startswith((str(_allowed), *_ANYWHERE)) and "__pycache__" not in place:  # compiled code
        _written.append(place)

"""What a call writes outside of its folder."""

import io
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

_allowed: str | None = None  # while a call is under way
_written: list[str] = []
_ANYWHERE = ("/dev/", "/proc/", *(str(Path.home() / place / "matplotlib") for place in (".config", ".cache")))


@contextmanager
def watched(folder: Path) -> Iterator[list[str]]:
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


@contextmanager
def not_watched() -> Iterator[None]:
    """While a valid file is made, by libraries that show how far they are."""
    global _allowed
    before, _allowed = _allowed, None
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), warnings.catch_warnings(record=True):
            yield
    finally:
        _allowed = before


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
    elif event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "sqlite3.connect"):
        _note(arguments[0])


def _note(path: Any) -> None:
    place = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 (a path may be anything)
    if not place.startswith((str(_allowed), *_ANYWHERE)) and "__pycache__" not in place:  # compiled code
        _written.append(place)

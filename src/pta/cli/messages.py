"""What is said to the person at the terminal, and what happens where that cannot be written."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pta.errors import UnreadableFile, reason
from pta.safe_text import printable

_LONGEST, _END = 2000, 400


class ReaderLeft(Exception):
    """Nobody reads standard output any more, which is no mistake."""


class _Terminal(logging.Handler):
    """Standard error, whichever it is at the time; nothing is said where the terminal is gone."""

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):
            print(f"pta: {record.getMessage()}", file=sys.stderr)


class _LogFile(logging.FileHandler):
    """A file that lines are added to; the work goes on where that fails."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (logging's name)
        pass


_LOG, _TERMINAL = logging.getLogger("pta"), _Terminal(logging.INFO)
_LOG.setLevel(logging.DEBUG)
_LOG.propagate = False
_LOG.addHandler(_TERMINAL)


def say(message: str, level: int = logging.INFO) -> None:
    """One line on stderr, beside whatever goes to stdout; of a very long one the start and the end.

    What is said at the level INFO, --quiet leaves out; what is said at the level DEBUG, only --verbose shows. The log
    file has both.
    """
    line = printable(" ".join(message.split()))
    if len(line) > _LONGEST:
        line = f"{line[: _LONGEST - _END]} … {line[-_END:]}"
    _LOG.log(level, "%s", line)


def warn(message: str) -> None:
    """Say what --quiet does not leave out."""
    say(message, logging.WARNING)


def detail(message: str) -> None:
    """Say what only --verbose and the log file show."""
    say(message, logging.DEBUG)


def show_from(level: int) -> None:
    """Show on the terminal what is said at this level or above."""
    _TERMINAL.setLevel(level)


def is_shown(level: int) -> bool:
    """Whether the terminal shows what is said at this level."""
    return _TERMINAL.level <= level


def keep_log(path: Path) -> None:
    """Add everything that is said from now on to a file, with the time."""
    try:
        file = _LogFile(path, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise UnreadableFile(f"--log-file {path} cannot be written: {reason(error)}") from None
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    _LOG.addHandler(file)


@contextmanager
def talking() -> Iterator[None]:
    """As much is said as is usual, unless options change that inside the block; its log file ends with it."""
    show_from(logging.INFO)
    try:
        yield
    finally:
        for file in _LOG.handlers[1:]:
            _LOG.removeHandler(file)
            file.close()


@contextmanager
def writing_stdout() -> Iterator[None]:
    """Write out what was printed so far, also inside the block, or say in one line why that cannot be done."""
    try:
        yield
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left would be tried again at the end
        if isinstance(error, BrokenPipeError):
            raise ReaderLeft from None
        raise UnreadableFile(f"standard output cannot be written: {reason(error)}") from None

"""Messages to the terminal and the log file, and what happens if they cannot be written."""

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pta.door.safe_text import printable
from pta.errors import MachineFailure, explaining, reason

_LONGEST, _END = 2000, 400


class ReaderLeft(Exception):
    """The reader of standard output has closed it; that is not an error."""


class _Terminal(logging.Handler):
    """Writes to the current standard error; messages are dropped if the terminal is gone."""

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):
            print(f"pta: {record.getMessage()}", file=sys.stderr)


class _LogFile(logging.FileHandler):
    """Appends lines to a file; a failed write does not stop the command."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (logging's name)
        pass


_LOG, _TERMINAL = logging.getLogger("pta"), _Terminal(logging.INFO)
_LOG.setLevel(logging.DEBUG)
_LOG.propagate = False
_LOG.addHandler(_TERMINAL)


def say(message: str, level: int = logging.INFO) -> None:
    """Print one line on stderr. A very long line is shortened in the middle.

    --quiet hides messages of level INFO, and only --verbose shows those of level DEBUG. The log file has both.
    """
    line = printable(" ".join(message.split()))
    if len(line) > _LONGEST:
        line = f"{line[: _LONGEST - _END]} … {line[-_END:]}"
    _LOG.log(level, "%s", line)


def warn(message: str) -> None:
    """Print a message that --quiet does not hide."""
    say(message, logging.WARNING)


def detail(message: str) -> None:
    """Print a message that only --verbose and the log file show."""
    say(message, logging.DEBUG)


def show_from(level: int) -> None:
    """Show messages of this level or above in the terminal."""
    _TERMINAL.setLevel(level)


def is_shown(level: int) -> bool:
    """Whether the terminal shows messages of this level."""
    return _TERMINAL.level <= level


def keep_log(path: Path) -> None:
    """Append all later messages to a file, with timestamps."""
    with explaining(f"--log-file {path} cannot be written"):
        file = _LogFile(path, encoding="utf-8", errors="backslashreplace")
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    _LOG.addHandler(file)


@contextmanager
def talking() -> Iterator[None]:
    """Set up messages for one command. Options may change the level and add a log file, which the end closes."""
    show_from(logging.INFO)
    try:
        yield
    finally:
        for file in _LOG.handlers[1:]:
            _LOG.removeHandler(file)
            file.close()


def write_stdout(write: Callable[[], object] = lambda: None) -> None:
    """Write to standard output and flush it. A failed write becomes a one-line error."""
    try:
        write()
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes again at exit
        if isinstance(error, BrokenPipeError):
            raise ReaderLeft from None
        raise MachineFailure(f"standard output cannot be written: {reason(error)}") from None

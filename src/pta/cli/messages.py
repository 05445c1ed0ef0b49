"""What is said to the person at the terminal, and what happens where that cannot be written."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pta.errors import UnreadableFile, reason
from pta.safe_text import printable

_LONGEST, _END = 2000, 400


class ReaderLeft(Exception):
    """Nobody reads standard output any more, which is no mistake."""


def say(message: str) -> None:
    """One line on stderr, beside whatever goes to stdout; of a very long one the start and the end.

    Nothing is said where the terminal is gone.
    """
    line = printable(" ".join(message.split()))
    if len(line) > _LONGEST:
        line = f"{line[: _LONGEST - _END]} … {line[-_END:]}"
    with suppress(OSError):
        print(f"pta: {line}", file=sys.stderr)


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

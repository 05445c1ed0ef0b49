"""Ctrl-C and a polite kill: finish what is under way, then stop."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stopping_on_interrupt() -> Iterator[Callable[[], int | None]]:
    """Gives a function that says by which signal the user wants to stop, if so; a second Ctrl-C stops at once."""
    wanted: int | None = None

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal wanted
        if wanted:
            raise KeyboardInterrupt
        wanted = number

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: wanted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

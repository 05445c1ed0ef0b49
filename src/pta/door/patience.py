"""Bytes that a storage does not give: told apart from bytes that cannot be decoded, and asked for again.

What cannot be *read* now (a mount that is gone, a refusal, a timeout, fewer bytes than there are) may be there a moment
later, or for another machine. What cannot be *decoded* came whole and stays as it is.
"""

import errno
import random
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from pta.errors import MachineFailure, UnreadableSample, UnreadSample, first_line, reason

Made = TypeVar("Made")

MOST_UNREAD = 256
"""After so many unread samples, a run or a block does not go on to others."""

AGAIN = "run the same command again when it can be read"
ADVICE = f"{AGAIN}, or use --give-up-unread to continue without it"
_NAMED = 5  # in an error
_OF_THE_NAME = {errno.ELOOP, errno.ENAMETOOLONG}  # which time does not change
_ABSENT = {403, 404}


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Whatever a storage raises in the block means that a sample is unread, unless its name is no good.

    >>> with reading("cat.jpg"):
    ...     raise OSError(errno.ESTALE, "Stale file handle")
    Traceback (most recent call last):
    pta.errors.UnreadSample: cat.jpg cannot be read: stale file handle
    """
    try:
        yield
    except (UnreadableSample, UnreadSample):
        raise
    except Exception as error:
        kind = UnreadableSample if getattr(error, "errno", None) in _OF_THE_NAME else UnreadSample
        raise kind(f"{name} cannot be read: {said_by(error)}") from error


def said_by(error: Exception) -> str:
    """What a storage says.

    >>> said_by(OSError(errno.EIO, "Input/output error")), said_by(FileNotFoundError("bucket/cat.jpg"))
    ('input/output error', 'it is not there (bucket/cat.jpg)')
    """
    if isinstance(error, OSError) and error.strerror:
        return reason(error)
    said = first_line(error)
    return f"it is not there ({said})" if isinstance(error, FileNotFoundError) else said


def require_whole(name: str, came: int, expected: int) -> None:
    """Refuse a short read, and what a server gives that does not keep to a range."""
    if came != expected:
        what = "it ends too early" if came < expected else "more came than was asked for"
        raise UnreadSample(f"{name} cannot be read: {what}, {came:,} of {expected:,} bytes came")


def is_absent(error: BaseException | None) -> bool:
    """Whether a storage says that there is nothing, or nothing for this user, so that waiting rarely helps."""
    status = getattr(error, "status", getattr(getattr(error, "__cause__", None), "status", None))  # of HTTP
    return isinstance(error, FileNotFoundError | PermissionError) if status is None else status in _ABSENT


@dataclass(eq=False)
class Patience:
    """How often something is asked for again, and after how many seconds.

    What is absent is asked for once more, at once. After the last wait was in vain nothing is waited for until
    something comes, so that a storage that is gone does not cost every sample the same wait.
    """

    waits: tuple[float, ...] = (0.2, 1.0, 4.0)  # times 0.5 to 1.5, so that a thousand machines do not come together
    sleep: Callable[[float], None] = time.sleep
    is_in_vain: bool = False

    def ask(self, get: Callable[[], Made]) -> Made:
        """What `get` gives, asked for again while the machine cannot do it."""
        tries = 0
        while True:
            try:
                made = get()
            except MachineFailure as failure:
                is_short = self.is_in_vain or is_absent(failure.__cause__)
                if tries >= (1 if is_short else len(self.waits)):
                    self.is_in_vain |= not is_short
                    raise
                if not is_short:
                    self.sleep(self.waits[tries] * random.uniform(0.5, 1.5))
                tries += 1
            else:
                self.is_in_vain = False
                return made


USUAL_PATIENCE = Patience()


@dataclass(frozen=True)
class Unread:
    """Samples that could not be read: how many, and the complaints about the first of them."""

    count: int = 0
    first: tuple[str, ...] = ()

    @classmethod
    def of(cls, complaints: Iterable[object]) -> "Unread":
        """Those that are complained about."""
        found = tuple(map(str, complaints))
        return cls(len(found), found[:_NAMED])

    def __add__(self, other: "Unread") -> "Unread":
        return Unread(self.count + other.count, (self.first + other.first)[:_NAMED])

    def __bool__(self) -> bool:
        return self.count > 0

    def error(self, advice: str = ADVICE) -> UnreadSample:
        """The error that a run ends with, with what to do.

        >>> str(Unread.of(f"{number}.jpg cannot be read" for number in range(7)).error())[:60]
        '7 samples could not be read (0.jpg cannot be read; 1.jpg can'
        """
        more = f"; and {self.count - len(self.first):,} more" if self.count > len(self.first) else ""
        samples = "1 sample" if self.count == 1 else f"{self.count:,} samples"
        return UnreadSample(f"{samples} could not be read ({'; '.join(self.first)}{more}); {advice}")


NO_UNREAD = Unread()

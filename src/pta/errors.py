"""Errors in two families: the user's mistake, and what the machine cannot do.

Each has a one-line message that says what to do. The command line prints it and exits with the family's `exit_code`.
"""

import errno
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches

_USER_OF_ADDRESS = re.compile(r"://[^/@\s]*:[^/\s]*@")


class PtaError(Exception):
    """The base class of all exceptions that `pta` raises on purpose; each is of one of the two families below.

    Its message is one line and holds no password of an address, whatever it quotes.

    >>> str(UserMistake("no such file: a\\nb"))
    'no such file: a b'
    >>> str(UserMistake("nothing answers at http://me:secret@host/x"))
    'nothing answers at http://…@host/x'
    """

    exit_code: int

    def __str__(self) -> str:
        return _USER_OF_ADDRESS.sub("://…@", " ".join(super().__str__().splitlines()))


class UserMistake(PtaError, ValueError):
    """What was given cannot be used: a parameter, a file, a model, a place to write to."""

    exit_code = 2


class MachineFailure(PtaError):
    """The machine cannot do it: the disk is full, a worker died, a cluster, a connection or a database was lost."""

    exit_code = 1


class InvalidSamples(UserMistake):
    """A batch cannot be used; no state was changed."""


class InvalidParameter(UserMistake):
    """An argument, a parameter or a classifier does not exist or has an invalid value."""


class StateMismatch(UserMistake):
    """A state or segment was made by another method, for other classes or with other parameters."""


class UnreadableFile(UserMistake):
    """A file is missing, truncated or of the wrong kind, or its place cannot be written to."""


class FileInUse(UserMistake):
    """Another process is writing the file."""


class UnreadableSample(UserMistake):
    """A sample, such as an image, cannot be decoded, or is too large to try: a property of the sample."""


class UnreadSample(MachineFailure):
    """The bytes of a sample did not come, or not all of them: a property of the moment."""

    key: str | None = None  # of the sample before which a stream ended


class UnavailableModel(UserMistake):
    """A model cannot be loaded: its weights are missing, or a package is not installed."""


class MissingPackage(UserMistake, ImportError):
    """An optional package is not installed; the message says how to install it."""


# A disk that is full, broken or read-only, too little memory, too many open files, a network folder that is gone.
_NAMES = ("ENOSPC", "EDQUOT", "EFBIG", "EIO", "EROFS", "ENOMEM", "EMFILE", "ENFILE", "ESTALE")
_OF_THE_MACHINE = {getattr(errno, name) for name in _NAMES if hasattr(errno, name)}
_OF_SQLITE = {7, 10, 13}  # its codes for too little memory, failed input or output, and a full disk


def family(error: Exception, mistake: type[UserMistake] = UnreadableFile) -> type[PtaError]:
    """What an error of the system or of SQLite is reported as: `MachineFailure`, or a `mistake` of the user.

    >>> family(OSError(errno.ENOSPC, "No space left on device")), family(FileNotFoundError(errno.ENOENT, ""))
    (<class 'pta.errors.MachineFailure'>, <class 'pta.errors.UnreadableFile'>)
    """
    code, code_of_sqlite = getattr(error, "errno", None), getattr(error, "sqlite_errorcode", 0) & 0xFF
    is_lost = isinstance(error, ConnectionError | TimeoutError)
    return MachineFailure if is_lost or code in _OF_THE_MACHINE or code_of_sqlite in _OF_SQLITE else mistake


@contextmanager
def explaining(what: str) -> Iterator[None]:
    """Turn an error of the system in the block into one line that begins with what cannot be done.

    >>> with explaining("cannot write a.csv"):
    ...     raise OSError(errno.ENOSPC, "No space left on device")
    Traceback (most recent call last):
    pta.errors.MachineFailure: cannot write a.csv: no space left on device
    """
    try:
        yield
    except OSError as error:
        raise family(error)(f"{what}: {reason(error)}") from None


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Prefix every error of the block with its subject.

    >>> with naming("experiment mine"):
    ...     raise InvalidParameter("no rows")
    Traceback (most recent call last):
    pta.errors.InvalidParameter: experiment mine: no rows
    """
    try:
        yield
    except PtaError as error:
        raise type(error)(f"{what}: {error}") from None


def reason(error: OSError) -> str:
    """The operating system's reason, as the end of an error message.

    >>> reason(FileNotFoundError(2, "No such file or directory"))
    'no such file or directory'
    """
    return (error.strerror or "unknown reason").lower()


def nearest(name: object, known: Iterable[str], most: int = 20) -> str:
    """The end of an error message about an unknown name: the closest known name, or all, or the first `most`.

    >>> nearest("min_probabilty", ["h", "w", "min_probability"])
    "did you mean 'min_probability'?"
    >>> nearest("TDA", ["pta", "tda"])
    "did you mean 'tda'?"
    >>> nearest("zzz", ["h", "w"])
    'known: h, w'
    >>> nearest("zzz", ["h", "w", "min_probability"], most=2)
    'known: h, w, …'
    """
    known = list(known)
    if not known:
        return "none are known"
    by_small_letters = {one.lower(): one for one in known}
    given = name[:80] if isinstance(name, str) else shown(name)
    close = get_close_matches(given.lower(), by_small_letters, n=1, cutoff=0.5)
    if close:
        return f"did you mean '{by_small_letters[close[0]]}'?"
    return f"known: {', '.join(known[:most])}" + (", …" if len(known) > most else "")


def require_known(what: str, name: object, known: Collection[str]) -> None:
    """Refuse a name that is none of the known ones, with the nearest of those."""
    if name not in known:
        raise InvalidParameter(f"no {what} is called {shown(name)}; {nearest(name, filter(None, known))}")


def how_to_install(extra: str) -> str:
    """The end of an error message about a package that an extra of this one installs.

    >>> how_to_install("hf")
    "run pip install 'pta-vlm[hf]'"
    """
    return f"run pip install 'pta-vlm[{extra}]'"


def first_line(error: BaseException) -> str:
    """The first line of a library's error, short enough to be quoted.

    >>> first_line(OSError("no such file\\nand a page of advice"))
    'no such file'
    """
    return (str(error).strip() or type(error).__name__).splitlines()[0][:160]


def shown(value: object, most: int = 80) -> str:
    """A value as an error message quotes it: one short line; only the type of a tensor, which may hold no numbers.

    >>> shown("cat"), shown(list(range(10)), most=12), shown(10**5000)
    ("'cat'", '[0, 1, 2, 3…', '<int>')
    """
    try:
        text = "" if hasattr(type(value), "untyped_storage") else " ".join(repr(value).split())
    except ValueError:  # of an int with too many digits to print
        text = ""
    text = text or f"<{type(value).__name__}>"
    return text if len(text) <= most else f"{text[: most - 1]}…"


def some_of(names: Sequence[str], most: int = 5) -> str:
    """The first names of a list, as an error message quotes them.

    >>> some_of(["cat", "dog", "owl"], most=2)
    "'cat', 'dog' and 1 more"
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(map(shown, names[:most])) + more

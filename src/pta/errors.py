"""Errors in a user's input: one exception per kind, each with a one-line message that says what to do.

The command line prints this line for every `PtaError` and exits with code 2.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches


class PtaError(ValueError):
    """The base class of all exceptions that `pta` raises on purpose: an error in the user's input.

    Its message is one line, whatever it quotes.

    >>> str(PtaError("no such file: a\\nb"))
    'no such file: a b'
    """

    def __str__(self) -> str:
        return " ".join(super().__str__().splitlines())


class InvalidClassifier(PtaError):
    """Anchors, class names or scale do not make a classifier."""


class InvalidSamples(PtaError):
    """A batch cannot be used; no state was changed."""


class InvalidParameter(PtaError):
    """A parameter does not exist or has an invalid value."""


class UnknownAdapter(PtaError):
    """No method of that name is registered."""


class StateMismatch(PtaError):
    """A state or segment was made by another method, for other classes or with other parameters."""


class UnreadableFile(PtaError):
    """A file is missing, truncated or of the wrong kind."""


class FileInUse(PtaError):
    """Another process is writing the file."""


class UnreadableSample(PtaError):
    """A sample, such as an image, cannot be read or decoded, or is too large to try."""


class UnavailableModel(PtaError):
    """A model cannot be loaded: its weights are missing, or a package is not installed."""


class MissingPackage(PtaError, ImportError):
    """An optional package is not installed; the message says how to install it."""


class ClusterFailed(PtaError):
    """A cluster cannot be reached, or its workers die."""


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


def how_to_install(extra: str) -> str:
    """The end of an error message about a package that an extra of this one installs.

    >>> how_to_install("hf")
    "run pip install -e '.[hf]' in the clone of pta"
    """
    return f"run pip install -e '.[{extra}]' in the clone of pta"


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
    except Exception:  # of an int with too many digits to print, or of a caller's own class
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

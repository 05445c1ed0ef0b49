"""Code of others, such as a compiler or the method of a plugin: it may raise whatever it likes."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pta.errors import PtaError, first_line


def failure_of(work: Callable[[], object]) -> BaseException | None:
    """Call foreign code, and give back what it has raised; the caller goes on without it.

    >>> failure_of(lambda: 1 / 0), failure_of(lambda: 1)
    (ZeroDivisionError('division by zero'), None)
    """
    try:
        work()
    except (Exception, SystemExit) as error:
        return error
    return None


def works(trial: Callable[[], object], without: str) -> bool:
    """Whether foreign code works; if not, warns of what is done `without` it, and why."""
    failure = failure_of(trial)
    if failure is not None:
        warnings.warn(f"{without}: {first_line(failure)}", stacklevel=3)
    return failure is None


@contextmanager
def in_words(say: Callable[[Exception], PtaError], passing: type[PtaError] | tuple[()] = PtaError) -> Iterator[None]:
    """Raise what is said about an error of foreign code in the block, unless it is one that passes."""
    try:
        yield
    except passing:
        raise
    except Exception as error:
        raise say(error) from None

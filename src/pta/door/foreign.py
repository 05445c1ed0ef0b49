"""Code of others, such as a compiler or the method of a plugin: it may raise whatever it likes."""

import warnings
from collections.abc import Callable

from pta.errors import first_line


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

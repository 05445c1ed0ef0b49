"""Code of others, such as a compiler or the method of a plugin: it may raise whatever it likes."""

from collections.abc import Callable


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

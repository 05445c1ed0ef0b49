"""Open files, of which the system gives a process only so many: what is left of them, and what fails without one."""

import errno
import os
import sqlite3
from contextlib import ExitStack

from pta.errors import InvalidParameter
from pta.serve.refusals import Refused

_BESIDE_CONNECTIONS = 128  # that a service needs: journal, snapshots, temporary files, the log
_FOR_AN_OPERATION = 16


def affordable_connections(most: int) -> int:
    """No more connections than files may be open, less those that the service needs besides."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows has no such limit
        return most
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return most
    if files <= _BESIDE_CONNECTIONS:
        least = _BESIDE_CONNECTIONS + 1
        raise InvalidParameter(f"{files} files may be open, and pta serve needs at least {least}; ulimit -n sets more")
    return min(most, files - _BESIDE_CONNECTIONS)


def require_free_files() -> None:
    """Refuse an operation that could fail half-way for want of a file."""
    with ExitStack() as stack:
        try:
            for _ in range(_FOR_AN_OPERATION):
                stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            if not is_out_of_files(error):
                raise
            raise Refused(503, "nothing was changed: too many files are open; try again soon", 1) from None


def is_out_of_files(error: BaseException) -> bool:
    """Whether a file could not be opened; SQLite's own are open all the time, so that only temporary ones are meant."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CANTOPEN
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)

"""The system's limit of open files: how many connections it allows, and which errors mean that it is reached."""

import errno
import os
import resource
import sqlite3
from contextlib import ExitStack

from pta.errors import InvalidParameter
from pta.serve.requests import Refused

_BESIDE_CONNECTIONS = 128  # files of a service: journal, snapshots, temporary files, the log
_FOR_AN_OPERATION = 16


def affordable_connections(most: int) -> int:
    """At most as many connections as files may be open, less those that the service needs besides."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return most
    if files <= _BESIDE_CONNECTIONS:
        least = _BESIDE_CONNECTIONS + 1
        raise InvalidParameter(f"{files} files may be open, and pta serve needs at least {least}; ulimit -n sets more")
    return min(most, files - _BESIDE_CONNECTIONS)


def require_free_files() -> None:
    """Refuse an operation that could fail half-way because no more files can be opened."""
    with ExitStack() as stack:
        try:
            for _ in range(_FOR_AN_OPERATION):
                stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            if not is_out_of_files(error):
                raise
            raise Refused("nothing was changed: too many files are open; try again soon", 503, 1) from None


def is_out_of_files(error: BaseException) -> bool:
    """Whether the limit is reached; SQLite's own files stay open, so that it can only miss a temporary one."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CANTOPEN
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)

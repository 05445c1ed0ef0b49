"""A lock on a file, which the system ends with the process that holds it, however that ends."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import lock_descriptor

from pta.errors import UnreadableFile, reason


@contextmanager
def claimed(lock: Path, *, wait: bool) -> Iterator[bool]:
    """Hold a lock file for as long as the block lasts; without `wait`, False if another process holds it."""
    try:
        descriptor = _hold(lock, wait)
    except OSError as error:
        raise UnreadableFile(f"cannot claim {lock}: {reason(error)}") from None
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            with suppress(OSError):  # where an open file cannot be removed, or its folder is gone
                lock.unlink()
            os.close(descriptor)


def holder(lock: Path) -> str:
    """The process that holds a lock file, for a message."""
    with suppress(OSError):
        if (pid := lock.read_bytes()[:20]).isdigit():
            return f"process {pid.decode()}"
    return "another process"


def _hold(lock: Path, wait: bool) -> int | None:
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        if not lock_descriptor(descriptor, blocking=wait):
            os.close(descriptor)
            return None
        if _is_at(lock, descriptor):
            with suppress(OSError):  # where the disk is full
                os.ftruncate(descriptor, 0)  # a killed holder's number
                os.write(descriptor, str(os.getpid()).encode())
            return descriptor
        os.close(descriptor)  # the last holder removed it, so that another process would lock a new file


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False

"""One writer per file: a process locks a file before writing it, and a second one is refused or waits.

The operating system releases the lock when the process ends, however it ends.
"""

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from filelock import lock_descriptor

from pta.errors import FileInUse, UnreadableFile, reason
from pta.files import require_writable


@contextmanager
def sole_writer(path: str | Path, *, wait: bool = False) -> Iterator[None]:
    """Be the only writer of a file during the block, and remove the leftovers of killed writers.

    Raises:
        FileInUse: another process writes it and `wait` is False.
    """
    require_writable(path)
    target = Path(os.path.realpath(path))  # unlike Path.resolve, it accepts circular links
    with claimed(target.with_name(f".{target.name}.lock"), wait=wait) as mine:
        if not mine:
            raise FileInUse(f"another process is writing {path} now; wait until it ends, or choose another file")
        _remove_temporary_files(target)
        yield


@contextmanager
def sole_writers(*paths: Path | None) -> Iterator[None]:
    """The same for several files; None is ignored."""
    with ExitStack() as stack:
        for path in paths:
            if path is not None:
                stack.enter_context(sole_writer(path))
        yield


@contextmanager
def claimed(lock: Path, *, wait: bool) -> Iterator[bool]:
    """Hold a lock file during the block; without `wait`, yields False if another process holds it."""
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


def _hold(lock: Path, wait: bool) -> int | None:
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        if not lock_descriptor(descriptor, blocking=wait):
            os.close(descriptor)
            return None
        if _is_at(lock, descriptor):
            return descriptor
        os.close(descriptor)  # the last holder removed it, so that another process would lock a new file


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _remove_temporary_files(target: Path) -> None:
    """Remove temporary files that `write_atomically` left in killed processes."""
    ours = re.compile(rf"\.{re.escape(target.name)}\.\d+\.[0-9a-f]{{8}}")
    for path in target.parent.iterdir():
        if ours.fullmatch(path.name):
            with suppress(OSError):
                path.unlink()

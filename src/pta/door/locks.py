"""A lock on a file: the first process holds it, and a second one is refused or waits. So a file has one writer.

The operating system releases a lock when the process that holds it ends, however that ends. A lock file lies beside a
user's files, under a derived name. Anything else of that name is refused and stays as it is.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from filelock import lock_descriptor

from pta.door.plain_files import MOVE_IT_AWAY, require_plain_file
from pta.errors import FileInUse, UnreadableFile, explaining

_LONGEST = 20  # digits of a process number
# without waiting for the other end of a pipe
_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK


@contextmanager
def sole_writer(path: str | Path, *, wait: bool = False) -> Iterator[None]:
    """Be the only writer of a file during the block, and remove the leftovers of killed writers.

    Raises:
        FileInUse: another process writes it and `wait` is False.
    """
    from pta.door.files import remove_temporary_files, require_writable  # not before: a journal is locked without torch

    require_writable(path)
    target = Path(os.path.realpath(path))  # unlike Path.resolve, it accepts circular links
    with claimed(target.with_name(f".{target.name}.lock"), wait=wait) as mine:
        if not mine:
            raise FileInUse(f"another process is writing {path} now; wait until it ends, or choose another file")
        remove_temporary_files(target.parent, target.name)
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
    """Hold a lock file for as long as the block lasts; without `wait`, False if another process holds it."""
    with explaining(f"cannot claim {lock}"):
        descriptor = _hold(lock, wait)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            with suppress(OSError):  # where an open file cannot be removed, or its folder is gone
                if _is_at(lock, descriptor):
                    lock.unlink()
            os.close(descriptor)


def holder(lock: Path) -> str:
    """The process that holds a lock file, for a message."""
    with suppress(OSError):
        if (pid := lock.read_bytes()[:_LONGEST]).isdigit():
            return f"process {pid.decode()}"
    return "another process"


def _hold(lock: Path, wait: bool) -> int | None:
    while True:
        descriptor = _open(lock)
        with ExitStack() as unless_held:
            unless_held.callback(os.close, descriptor)
            if not lock_descriptor(descriptor, blocking=wait):
                return None
            if _is_at(lock, descriptor):  # else the last holder removed it, and another process would lock a new file
                _sign(lock, descriptor)
                unless_held.pop_all()
                return descriptor


def _open(lock: Path) -> int:
    """A lock file that was made here, or that a process of this user has made."""
    while True:
        with suppress(FileExistsError):
            return os.open(lock, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
        with suppress(FileNotFoundError):  # its holder has removed it
            _require_lock(lock, lock.lstat())  # before it is opened, which has effects on a device
            descriptor = os.open(lock, _FLAGS)
            with ExitStack() as unless_refused:
                unless_refused.callback(os.close, descriptor)
                _require_lock(lock, os.fstat(descriptor))
                unless_refused.pop_all()
            return descriptor


def _require_lock(lock: Path, status: os.stat_result) -> None:
    require_plain_file(lock, status)  # which has no link left once its holder has removed it
    if status.st_uid != os.geteuid():
        raise UnreadableFile(f"{lock} is of another user, who may be writing there; wait, or have it removed")


def _sign(lock: Path, descriptor: int) -> None:
    """Write the number of this process into a lock file that is empty or holds a killed holder's number."""
    content = os.read(descriptor, _LONGEST + 1)
    if len(content) > _LONGEST or content.strip(b"0123456789\0"):  # zeros after a power failure
        raise UnreadableFile(f"{lock} holds something else than a lock: {MOVE_IT_AWAY}")
    with suppress(OSError):  # where the disk is full
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, str(os.getpid()).encode())


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False

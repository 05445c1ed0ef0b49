"""One writer per file: a process claims what it is going to write, and a second one is refused or waits.

A claim is a lock on a file (`locks.py`).
"""

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from pta.errors import FileInUse
from pta.files import require_writable
from pta.locks import claimed


@contextmanager
def sole_writer(path: str | Path, *, wait: bool = False) -> Iterator[None]:
    """Be the only process that writes a file, for as long as the block lasts, and remove what killed writers left.

    Raises:
        FileInUse: another process writes it, and this one is not to `wait`.
    """
    require_writable(path)
    target = Path(os.path.realpath(path))  # which, unlike Path.resolve, takes links in a circle
    with claimed(target.with_name(f".{target.name}.lock"), wait=wait) as mine:
        if not mine:
            raise FileInUse(f"another process is writing {path} now; wait for its end, or choose another file")
        _remove_temporary_files(target)
        yield


@contextmanager
def sole_writers(*paths: Path | None) -> Iterator[None]:
    """The same for several files; None is no file."""
    with ExitStack() as stack:
        for path in paths:
            if path is not None:
                stack.enter_context(sole_writer(path))
        yield


def _remove_temporary_files(target: Path) -> None:
    """Remove what `write_atomically` leaves behind where a process is killed."""
    ours = re.compile(rf"\.{re.escape(target.name)}\.\d+\.[0-9a-f]{{8}}")
    for path in target.parent.iterdir():
        if ours.fullmatch(path.name):
            with suppress(OSError):
                path.unlink()

"""One writer per file: a process locks a file before writing it, and a second one is refused or waits.

Apart from locks, which the journal of a service uses without torch.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pta.door.files import remove_temporary_files, require_writable
from pta.door.locks import claimed
from pta.errors import FileInUse


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

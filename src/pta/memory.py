"""Memory limits: a file that needs more is refused before it is read."""

import os
import sys
from contextlib import suppress
from pathlib import Path

from pta.errors import UnreadableFile

_SHARE = 0.75  # of what is available; the rest is for what is made of it
_MEMORY_OF_THIS_MACHINE = Path("/proc/meminfo")
_LIMITS_OF_THIS_CONTAINER = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def available_memory() -> int:
    """The memory that is still available to the process, as far as the system tells."""
    found = [sys.maxsize]
    with suppress(AttributeError, OSError, ValueError):
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(OSError, ValueError, StopIteration):
        lines = _MEMORY_OF_THIS_MACHINE.read_text().splitlines()
        found.append(1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")))
    for limit in _LIMITS_OF_THIS_CONTAINER:
        with suppress(OSError, ValueError):  # "max" stands for none
            found.append(int(limit.read_text()))
    return min(found)


def require_memory(path: str | Path, size: int) -> None:
    """Refuse a file whose content does not fit into memory."""
    most = _SHARE * available_memory()
    if size > most:
        gib = f"{size / 2**30:.3g} GiB; {most / 2**30:.3g} GiB of memory"
        raise UnreadableFile(f"{path} unpacks to {gib} are available")

"""Memory limits: a file that needs more is refused before it is read."""

import os
import sys
from contextlib import suppress
from pathlib import Path

from pta.errors import UnreadableFile

_SHARE = 0.75  # of what is available; the rest is for what is made of it
_ALWAYS_UNPACKED = 256 * 2**20  # bytes
_MOST_TIMES = 32  # deflate reaches 1,032 on zeros; features 1.1, and labels and names are few beside them
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


def require_unpackable(path: Path, size: int) -> None:
    """Refuse a packed file whose content is far larger than the file, or does not fit into memory."""
    require_memory(path, size)
    packed = path.stat().st_size
    if size > max(_ALWAYS_UNPACKED, _MOST_TIMES * packed):
        raise UnreadableFile(
            f"{path} has {packed:,} bytes and unpacks to {size:,}, more than {_ALWAYS_UNPACKED >> 20} MiB and "
            f"{_MOST_TIMES} times as many; save it without compression"
        )

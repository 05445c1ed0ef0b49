"""How large a sample may be, and how much memory a file may need. What is larger is refused before any work."""

import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pta.errors import InvalidParameter, UnreadableFile

_MOST_PIXELS = 178_956_970  # more are refused by Pillow itself


@dataclass(frozen=True)
class Limits:
    """The largest sample that is read.

    >>> Limits(max_pixels=10**6).max_bytes
    268435456
    """

    max_bytes: int = 256 * 2**20  # of a file or a frame, still encoded
    max_pixels: int = 89_478_485  # of a picture; they take 256 MiB as bytes of red, green and blue

    def __post_init__(self) -> None:
        for name, largest in (("max_bytes", 2**40), ("max_pixels", _MOST_PIXELS)):
            given = getattr(self, name)
            if type(given) is not int or not 1 <= given <= largest:
                raise InvalidParameter(f"{name} must be a whole number from 1 to {largest:,}, not {given!r}")


USUAL_LIMITS = Limits()


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

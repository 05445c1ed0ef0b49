"""Is the end of a journal lost? A log that is removed or cut leaves an older journal, in which every row is whole.

Two files can show it. A snapshot may have learned more rows than there are. And `journal.count` has the number of rows
written. It is written after each transaction and never synced: after a kill it has the last count, after a power
failure perhaps an older one, but never one that is ahead of the journal.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pta.errors import explaining
from pta.serve.journal.schema import COUNT, StreamRow, seal

_NO_SEQUENCE = 2**62  # which no row reaches: a file of such a name is no snapshot


@dataclass(frozen=True)
class Witnesses:
    """Evidence of how far a journal once went: its count, and for each stream the snapshots by their last row."""

    count: int
    snapshots: dict[int, dict[int, Path]]

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Read it before the journal, which may be written meanwhile."""
        snapshots: dict[int, dict[int, Path]] = {}
        for path in folder.glob("streams/*/snapshots/[0-9]*.safetensors"):
            stream, (sequence, *_) = path.parent.parent.name, path.stem.split("-")
            if stream.isdecimal() and sequence.isdecimal() and int(sequence) < _NO_SEQUENCE:
                snapshots.setdefault(int(stream), {})[int(sequence)] = path
        return cls(_read_count(folder), snapshots)

    def lost(self, streams: Iterable[StreamRow]) -> Iterator[str]:
        """What proves that the journal had more rows than these streams have, one line each."""
        known = {stream.id: stream for stream in streams}
        for number, paths in sorted(self.snapshots.items()):
            stream, (last, path) = known.get(number), max(paths.items())
            if stream is None:
                yield f"rows are lost: {path} was learned by a stream that the journal does not have"
            elif last > stream.last:
                there = f"stream {stream.name} ends at sequence {stream.last}"
                yield f"rows are lost: {there}, and {path} has learned up to sequence {last}"
        if self.count > (found := count_of(known.values())):
            yield f"rows are lost: {self.count:,} rows and streams were written, and {found:,} are there"

    def newer(self, ends: Mapping[int, int]) -> Iterator[Path]:
        """The snapshots after the ends of the streams that are there, and the folders of those that are not."""
        for number, paths in self.snapshots.items():
            if number not in ends:
                yield next(iter(paths.values())).parent.parent
            else:
                yield from (path for sequence, path in paths.items() if sequence > ends[number])


def count_of(streams: Iterable[StreamRow]) -> int:
    """A number that grows with every row and stream, and never falls, as deleted streams keep theirs."""
    return sum(1 + stream.last for stream in streams)


def _record(count: int) -> bytes:
    return f"{count:020} {seal(count).hex()}\n".encode()


_LENGTH = len(_record(0))


class CountFile:
    """The count of a journal that this process writes."""

    def __init__(self, folder: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        with explaining(f"cannot write {folder / COUNT}"):
            self._file = os.open(folder / COUNT, flags, 0o600)
        if os.fstat(self._file).st_size > _LENGTH:  # damaged: what is longer would make every later count unreadable
            os.ftruncate(self._file, _LENGTH)

    def write(self, count: int) -> None:
        """Put the count in place of the one before; where the disk refuses, less is known later."""
        with suppress(OSError):
            os.lseek(self._file, 0, os.SEEK_SET)
            os.write(self._file, _record(count))

    def close(self) -> None:
        """End writing."""
        os.close(self._file)


def _read_count(folder: Path) -> int:
    """0 where there is none, and where a power failure has torn it."""
    with suppress(OSError, ValueError):
        number, checksum = (folder / COUNT).read_bytes().split()
        if seal(int(number)).hex().encode() == checksum:
            return int(number)
    return 0

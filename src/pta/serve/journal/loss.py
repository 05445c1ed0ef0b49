"""Is the end of a journal lost, or its log damaged in the middle, so that SQLite would ignore acknowledged groups?

A log that is removed or cut leaves an older journal, in which every row is whole.

Two files can show it. A snapshot may have learned more rows than there are. And `journal.count` has the number of rows
written. It is written after each transaction and never synced: after a kill it has the last count, after a power
failure perhaps an older one, but never one that is ahead of the journal.

SQLite reads a log up to the first frame whose checksum is wrong, because that is how the last transaction looks after a
power failure. A transaction is written only after the one before it has reached the disk. So a wrong frame is damage if
the end of one transaction and a part of another come after it. In the last transaction damage cannot be told from a
torn write. The format: https://www.sqlite.org/fileformat2.html#the_write_ahead_log.
"""

import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pta.errors import explaining
from pta.serve.journal.data_folder import COUNT
from pta.serve.journal.schema import StreamRow, seal

_HEADER = struct.Struct(">8I")  # magic, version, page size, checkpoint, two salts, two sums
_FRAME = struct.Struct(">6I")  # page, size of the database if a transaction ends here, two salts, two sums
_MAGIC = 0x377F0682  # its last bit says that the words are big-endian
_STATE = ".safetensors"
_NO_SEQUENCE = 2**62  # which no row reaches: a file of such a name is not a snapshot


def _names_in(folder: str) -> list[str]:
    with suppress(OSError), os.scandir(folder) as entries:  # it may not be there
        return [entry.name for entry in entries]
    return []


@dataclass(frozen=True)
class Witnesses:
    """Evidence of how far a journal once went: its count, and for each stream the snapshots by their last row."""

    count: int
    snapshots: dict[int, dict[int, Path]]

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Read it before the journal, which may be written meanwhile."""
        snapshots: dict[int, dict[int, Path]] = {}
        for stream in filter(str.isdecimal, _names_in(f"{folder}/streams")):
            place = f"{folder}/streams/{stream}/snapshots"
            for name in _names_in(place):
                sequence = name.removesuffix(_STATE).split("-")[0]
                if name.endswith(_STATE) and sequence.isdecimal() and int(sequence) < _NO_SEQUENCE:
                    snapshots.setdefault(int(stream), {})[int(sequence)] = Path(place, name)
        with suppress(OSError, ValueError):  # there is none, or a power failure has torn it
            number, checksum = (folder / COUNT).read_bytes().split()
            if seal(int(number)).hex().encode() == checksum:
                return cls(int(number), snapshots)
        return cls(0, snapshots)

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
        with explaining(f"cannot write {folder / COUNT}"):
            self._file = os.open(folder / COUNT, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
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


def is_damaged(path: Path) -> bool:
    """Whether a log has transactions that SQLite would not reach."""
    log = path.read_bytes() if path.exists() else b""
    if len(log) <= _HEADER.size:
        return False
    magic, _, page, _, *salts_and_sums = _HEADER.unpack_from(log)
    salts, stored = salts_and_sums[:2], salts_and_sums[2:]
    words: np.dtype[np.uint32] = np.dtype("<u4" if magic == _MAGIC else ">u4")
    if magic | 1 != _MAGIC | 1 or _sums(np.frombuffer(log[:24], words)[None], [0, 0])[0] != stored:
        return True  # frames are written only after the header has reached the disk
    step = _FRAME.size + page
    count = (len(log) - _HEADER.size) // step
    frames = np.frombuffer(log, np.uint8, count * step, _HEADER.size).reshape(count, step)
    heads = [_FRAME.unpack(head) for head in map(bytes, frames[:, : _FRAME.size])]
    is_ours = [list(head[2:4]) == salts for head in heads]
    summed = np.concatenate([frames[:, :8], frames[:, _FRAME.size :]], axis=1).view(words)
    sums = _sums(summed, stored)
    is_right = [list(head[4:]) == sum for head, sum in zip(heads, sums, strict=True)]
    whole = next((i for i in range(count) if not is_ours[i] or not is_right[i]), count)
    if whole < count and is_right[whole]:
        return True  # only its salts are wrong, which no sum includes: it was written after the frame before it
    ends = [i for i in range(whole, count) if is_ours[i] and heads[i][1]]
    return bool(ends) and any(is_ours[ends[0] + 1 :])


def _sums(rows: NDArray[np.uint32], start: list[int]) -> list[list[int]]:
    """The running checksum after each row of words."""
    of_words, of_sums = _coefficients(rows.shape[1] // 2)
    sums, state = [], np.array(start, np.uint32)
    for added in rows.astype(np.uint32) @ of_words:
        state = of_sums @ state + added
        sums.append(state.tolist())
    return sums


@cache
def _coefficients(steps: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """How the words of a row and the sums before it add up to the sums after it.

    One step is s0 += a + s1; s1 += b + s0 for two words a and b, which is linear modulo 2³².
    """
    once = np.array([[1, 1], [1, 2]], np.uint32)
    entry = np.array([[1, 0], [1, 1]], np.uint32)
    power, of_words = np.eye(2, dtype=np.uint32), []
    for _ in range(steps):
        of_words.append(power @ entry)
        power = power @ once
    return np.concatenate(of_words[::-1], axis=1).T.copy(), power

"""Damage in the middle of a write-ahead log, after which SQLite would silently ignore acknowledged groups.

SQLite reads a log up to the first frame whose checksum is wrong, because that is how the last transaction looks after a
power failure. A transaction is written only after the one before it has reached the disk. So a wrong frame is no torn
write but damage if the end of one transaction and a part of another come after it. In the last transaction damage
cannot be told from a torn write. The format: https://www.sqlite.org/fileformat2.html#the_write_ahead_log.
"""

import struct
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_HEADER = struct.Struct(">8I")  # magic, version, page size, checkpoint, two salts, two sums
_FRAME = struct.Struct(">6I")  # page, size of the database if a transaction ends here, two salts, two sums
_MAGIC = 0x377F0682  # its last bit says that the words are big-endian


def log_of(database: Path) -> Path:
    """The write-ahead log of a database."""
    return database.with_name(f"{database.name}-wal")


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
    once, entry = np.array([[1, 1], [1, 2]], np.uint32), np.array([[1, 0], [1, 1]], np.uint32)
    power, of_words = np.eye(2, dtype=np.uint32), []
    for _ in range(steps):
        of_words.append(power @ entry)
        power = power @ once
    return np.concatenate(of_words[::-1], axis=1).T.copy(), power

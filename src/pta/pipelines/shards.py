"""A folder of finished shards: what a killed extraction leaves behind, and where the next one goes on.

A shard is written whole or not at all. One process works in a folder at a time.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from torch import Tensor

from pta.errors import StateMismatch, UnreadableFile
from pta.files import load_tensors, save_tensors, write_atomically


@dataclass(frozen=True)
class Shards:
    """Consecutive ranges of images, one file each."""

    folder: Path
    ranges: Sequence[range]

    def path(self, numbers: range) -> Path:
        """Where the shard of these images is, or will be."""
        return self.folder / f"{numbers.start:09d}-{numbers.stop:09d}.safetensors"

    def write(self, numbers: range, tensors: Mapping[str, Tensor], skipped: Sequence[str]) -> None:
        """Finish a shard."""
        save_tensors(self.path(numbers), tensors, {"kind": "shard", "skipped": list(skipped)})

    def read(self, numbers: range) -> tuple[dict[str, Tensor], list[str]]:
        """The tensors of a finished shard, and what was skipped in it."""
        tensors, about = load_tensors(self.path(numbers), kind="shard")
        return tensors, about["skipped"]

    def missing(self) -> list[range]:
        """The ranges that still have to be done; a file that cannot be read counts as missing."""
        return [numbers for numbers in self.ranges if not self._is_whole(numbers)]

    def _is_whole(self, numbers: range) -> bool:
        try:
            self.read(numbers)
        except UnreadableFile:
            return False
        return True


@contextmanager
def claim_shards(folder: Path, inputs: Mapping[str, Any], count: int, size: int) -> Iterator[Shards]:
    """The shards of `count` images made from `inputs`, for this process alone."""
    folder.mkdir(exist_ok=True)
    lock = FileLock(folder / "lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise StateMismatch(f"another process is extracting into {folder} right now") from None
    try:
        _require_same(folder, {**inputs, "shard": size})
        for leftover in folder.glob(".*"):  # of writes that were killed
            leftover.unlink()
        yield Shards(folder, [range(start, min(start + size, count)) for start in range(0, count, size)])
    finally:
        lock.release()


def _require_same(folder: Path, inputs: dict[str, Any]) -> None:
    record = folder / "inputs.json"
    if not record.exists():
        write_atomically(record, json.dumps(inputs, indent=2).encode())
    elif json.loads(record.read_bytes()) != inputs:
        raise StateMismatch(
            f"{folder} holds an unfinished extraction of other images or by other means; "
            "delete that folder, or write to another file"
        )

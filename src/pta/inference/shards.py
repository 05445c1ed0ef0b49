"""A folder of finished shards: what a killed extraction leaves behind, and where the next one goes on.

A shard is written whole or not at all. One process works in a folder at a time.
"""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from torch import Tensor

from pta.errors import StateMismatch, UnreadableFile
from pta.files import load_tensors, make_folder, read_json, save_tensors, write_atomically


@dataclass(frozen=True)
class Shards:
    """Consecutive ranges of samples, one file each."""

    folder: Path
    ranges: Sequence[range]

    def path(self, numbers: range) -> Path:
        """Where the shard of these samples is, or will be."""
        return self.folder / f"{numbers.start:09d}-{numbers.stop:09d}.safetensors"

    def write(self, numbers: range, tensors: Mapping[str, Tensor], skipped: Sequence[str]) -> None:
        """Finish a shard."""
        save_tensors(self.path(numbers), tensors, {"kind": "shard", "skipped": list(skipped)})

    def contents(self, numbers: range) -> tuple[list[int], list[str]]:
        """Which samples are in a finished shard, and what was skipped in it."""
        tensors, about = load_tensors(self.path(numbers), kind="shard", only=["kept"])
        return tensors["kept"].tolist(), about["skipped"]

    def missing(self) -> list[range]:
        """The ranges that still have to be done; a file that cannot be read counts as missing."""
        missing = list(self.ranges)
        for numbers in self.ranges:
            with suppress(UnreadableFile):
                self.contents(numbers)
                missing.remove(numbers)
        return missing


@contextmanager
def claim_shards(out: Path, inputs: Mapping[str, Any], count: int, size: int) -> Iterator[Shards]:
    """The shards of `count` samples made from `inputs` for the file `out`, for this process alone.

    They are kept if something goes wrong, and removed when the work is done.
    """
    folder = folder_of_shards(out)
    make_folder(folder)
    lock = FileLock(folder / "lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise StateMismatch(f"another process is extracting into {folder} right now") from None
    try:
        size = _shard_size(folder, inputs, size)
        for leftover in (*folder.glob(".*"), *out.parent.glob(f".{out.name}.*")):  # of writes that were killed
            leftover.unlink()
        yield Shards(folder, [range(start, min(start + size, count)) for start in range(0, count, size)])
        shutil.rmtree(folder)
    finally:
        lock.release()


def discard_shards(out: Path, inputs: Mapping[str, Any]) -> None:
    """Remove what a process left behind that was killed just after it had finished."""
    if folder_of_shards(out).exists():
        with suppress(StateMismatch), claim_shards(out, inputs, 0, 1):
            pass


def folder_of_shards(out: Path) -> Path:
    """Where the shards for a file are collected."""
    return out.with_name(f"{out.name}.parts")


def _shard_size(folder: Path, inputs: Mapping[str, Any], wanted: int) -> int:
    """The size that a new extraction is to have, or that of the one which is to go on."""
    record = folder / "inputs.json"
    if not record.exists():
        write_atomically(record, json.dumps({"shard": wanted, "images": inputs}, indent=2).encode())
    try:
        begun = read_json(record, "record")
    except UnreadableFile:
        begun = None  # damaged: then it is not known to be the same
    if not isinstance(begun, dict) or begun.get("images") != inputs:
        raise StateMismatch(
            f"{folder} holds an unfinished extraction of other images or by other means; "
            "delete that folder, or write to another file"
        )
    return int(begun["shard"])

"""A folder of finished shards, from which an interrupted extraction resumes.

A shard is written whole or not at all. Whoever works in the folder is the only writer of the file it is for.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pta.door.files import load_tensors, read_json, remove_temporary_files, save_tensors, write_atomically
from pta.door.plain_files import make_own_folder
from pta.errors import StateMismatch, UnreadableFile

_RECORD, _STAMPS = "inputs.json", "stamps"

Stamps = Sequence[tuple[int | str, ...]]


class LeftOut(NamedTuple):
    """The errors of samples without features."""

    skipped: Sequence[str]  # of those that cannot be decoded
    given_up: Sequence[str] = ()  # of those that could not be read


@dataclass(frozen=True)
class Shards:
    """Consecutive ranges of samples, one file each."""

    folder: Path
    batch: int  # samples that are encoded at once, which decides the last bits of their features
    ranges: Sequence[range]

    def path(self, numbers: range) -> Path:
        """Where the shard of these samples is, or will be."""
        return self.folder / f"{numbers.start:09d}-{numbers.stop:09d}.safetensors"

    def write(self, numbers: range, tensors: Mapping[str, Tensor], left_out: LeftOut) -> None:
        """Finish a shard."""
        about = {name: list(lines) for name, lines in left_out._asdict().items()}
        save_tensors(self.path(numbers), tensors, {"kind": "shard", **about})

    def contents(self, numbers: range) -> tuple[list[int], LeftOut]:
        """Which samples are in a finished shard, and which were left out of it."""
        tensors, about = load_tensors(self.path(numbers), kind="shard", only=["kept"])
        return tensors["kept"].tolist(), LeftOut(about["skipped"], about.get("given_up", ()))

    def missing(self, *, give_up: bool) -> list[range]:
        """The ranges that still have to be done, as is one whose file cannot be read.

        So is one without samples that were given up, unless samples still are.
        """
        missing = list(self.ranges)
        for numbers in self.ranges:
            with suppress(UnreadableFile):
                _, left_out = self.contents(numbers)
                if give_up or not left_out.given_up:
                    missing.remove(numbers)
        return missing


@contextmanager
def open_shards(out: Path, inputs: Mapping[str, Any], stamps: Stamps, *, size: int, batch: int) -> Iterator[Shards]:
    """The shards of samples with these stamps made from `inputs` for the file `out`, of about `size` samples each.

    Size and batch are those that an unfinished extraction was begun with, if there is one. The shards are kept if
    something goes wrong, and removed when the work is done.
    """
    folder, count = _folder_of_shards(out), len(stamps)
    make_own_folder(folder)
    size, batch = _begun(folder, inputs) or _begin(folder, inputs, stamps, max(1, size // batch) * batch, batch)
    remove_temporary_files(folder)
    yield Shards(folder, batch, [range(start, min(start + size, count)) for start in range(0, count, size)])
    for shard in folder.glob("*.safetensors"):
        shard.unlink()  # before the record that says whose they are
    (folder / _RECORD).unlink()
    (folder / _STAMPS).unlink(missing_ok=True)
    with suppress(OSError):  # something else is in it
        folder.rmdir()


def discard_shards(out: Path, inputs: Mapping[str, Any]) -> None:
    """Remove the folder of an extraction that was killed just after it had finished."""
    if _folder_of_shards(out).exists():
        with suppress(StateMismatch), open_shards(out, inputs, (), size=1, batch=1):
            pass


def _folder_of_shards(out: Path) -> Path:
    return out.with_name(f"{out.name}.parts")


def stamps_begun_with(out: Path) -> Stamps | None:
    """The stamps that the samples of an unfinished extraction had when it was begun, if they are known."""
    folder = _folder_of_shards(out)
    if not any(folder.glob("*.safetensors")):
        return None
    with suppress(UnreadableFile):
        return list(map(tuple, load_tensors(folder / _STAMPS, _STAMPS, [_STAMPS])[0][_STAMPS].tolist()))
    return None


def _begin(folder: Path, inputs: Mapping[str, Any], stamps: Stamps, size: int, batch: int) -> tuple[int, int]:
    record = {"shard": size, "batch": batch, "images": inputs}
    (folder / _STAMPS).unlink(missing_ok=True)
    write_atomically(folder / _RECORD, json.dumps(record, indent=2).encode())
    with suppress(ValueError, TypeError):  # of samples that are in no file and so never away
        save_tensors(folder / _STAMPS, {_STAMPS: torch.tensor(stamps, dtype=torch.int64)}, {"kind": _STAMPS})
    return size, batch


def _begun(folder: Path, inputs: Mapping[str, Any]) -> tuple[int, int] | None:
    """Size and batch of the extraction that is to go on; None if it has not finished any shard."""
    if not any(folder.glob("*.safetensors")):
        return None
    with suppress(UnreadableFile, KeyError, TypeError):  # damaged: then it is not known to be the same
        begun = read_json(folder / _RECORD, "record")
        size, batch = begun["shard"], begun["batch"]
        if begun["images"] == inputs and batch > 0 and size > 0 and size % batch == 0:
            return size, batch
    raise StateMismatch(
        f"{folder} holds an unfinished extraction of other samples or with other options; "
        "delete that folder, or write to another file"
    )

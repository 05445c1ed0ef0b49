"""Weights from a file, by name: no code in it is run, and the tensors have memory of their own.

A file of `torch.save` or `torch.jit.save` is a zip archive: the record `data.pkl` describes objects, and one more
record per storage holds numbers. Code in the archive is never read.
"""

import io
import sys
import zipfile
from collections.abc import Collection
from math import prod
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from pta.core.limits import require_memory
from pta.door.files import existing_file, read_exactly, read_tensors, understanding
from pta.door.weights.inert_pickle import Inert, StoredTensor, read_pickle, state_dict_in
from pta.errors import UnreadableFile, naming, shown

_ZIP, _PICKLE = b"PK\3\4", b"\x80"  # how files begin
_LARGEST_PICKLE = 64 * 2**20
_LONGEST_LIST = 8 * 2**20  # of the entries
_LONGEST_WORD = 64
_MOST_SHARING = 2  # weights that are tied lie in the file once and have several names


class Weights(NamedTuple):
    """Tensors by name, and whether they come from a TorchScript archive, as OpenAI's do."""

    tensors: dict[str, Tensor]
    torchscript: bool


def read_weights(file: Path) -> Weights:
    """The weights in a safetensors file or in a zip archive of torch; that of before version 1.6 is refused."""
    if file.suffix == ".safetensors":
        return Weights(read_tensors(file, "checkpoint")[0], torchscript=False)
    existing_file(file, "checkpoint")  # a pipe would be waited for
    with understanding(file, "checkpoint file"), naming(f"{file} cannot be read"):
        _require_zip(file)
        require_memory(file, file.stat().st_size)
        return _read_archive(file)


def _require_zip(file: Path) -> None:
    with file.open("rb") as opened:
        start = opened.read(len(_ZIP))
    if start.startswith(_PICKLE):
        raise UnreadableFile(
            "it is a pickle, as torch.save wrote before version 1.6; save the model's state_dict() as safetensors"
        )
    if start != _ZIP:
        raise UnreadableFile("it is neither a safetensors file nor a zip archive of torch (truncated or damaged?)")


def _read_archive(file: Path) -> Weights:
    """The tensors of a state dict or TorchScript module."""
    with _ShortReads(file) as opened, zipfile.ZipFile(opened) as archive:
        records = _Records(archive)
        if "byteorder" in records and records.content("byteorder", _LONGEST_WORD) != sys.byteorder.encode():
            raise UnreadableFile("it was written on a machine with another byte order")
        root = read_pickle(records.content("data.pkl", _LARGEST_PICKLE))
        stored = state_dict_in(root)
        _require_bounded(stored.values(), records, file.stat().st_size)
        storages = {key: records.read(f"data/{key}") for key in {tensor.record for tensor in stored.values()}}
    tensors = {name: _view(storages[tensor.record], tensor) for name, tensor in stored.items()}
    return Weights(tensors, isinstance(root, Inert))


class _ShortReads(io.FileIO):
    """A file that gives little at a time: only an absurdly long list of entries asks for more."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > _LONGEST_LIST:
            raise UnreadableFile(f"its list of entries is longer than {_LONGEST_LIST >> 20} MiB")
        return super().read(size)


class _Records:
    """The entries of an archive, by their names within the one folder that they are in."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        names = archive.namelist()
        folders = [folder for folder, _, name in (entry.partition("/") for entry in names) if name == "data.pkl"]
        if len(set(names)) < len(names) or len(folders) != 1:
            raise UnreadableFile("it is a zip archive, but not of torch: that has one data.pkl and no name twice")
        self._archive, self._folder = archive, folders[0]
        self._names = set(names)

    def __contains__(self, name: str) -> bool:
        return f"{self._folder}/{name}" in self._names

    def entry(self, name: str) -> zipfile.ZipInfo:
        """A record, which must be stored as it is; torch stores all of them so, except for code."""
        if name not in self:
            raise UnreadableFile(f"its record {shown(name)} is missing")
        entry = self._archive.getinfo(f"{self._folder}/{name}")
        if entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size or entry.flag_bits & 1:
            raise UnreadableFile(f"its record {shown(name)} is compressed or encrypted, which torch does not do")
        return entry

    def read(self, name: str) -> Tensor:
        """The bytes of a record."""
        entry = self.entry(name)
        with self._archive.open(entry) as record:
            return read_exactly(record, entry.file_size)

    def content(self, name: str, most: int) -> bytes:
        """The bytes of a record that should be small."""
        if self.entry(name).file_size > most:
            raise UnreadableFile(f"its record {shown(name)} has more than {most:,} bytes")
        return self.read(name).numpy().tobytes()


def _require_bounded(tensors: Collection[StoredTensor], records: _Records, file_bytes: int) -> None:
    """Refuse tensors that are larger than their records or the file, before anything is allocated."""
    lengths = {tensor.record: records.entry(f"data/{tensor.record}").file_size for tensor in tensors}
    if any(tensor.record_bytes > lengths[tensor.record] for tensor in tensors):
        raise UnreadableFile("a tensor in it is larger than its record")
    named = sum(prod(tensor.size) * tensor.dtype.itemsize for tensor in tensors)
    if sum(lengths.values()) > file_bytes or named > _MOST_SHARING * file_bytes:
        raise UnreadableFile("its tensors are together larger than the file")


def _view(storage: Tensor, tensor: StoredTensor) -> Tensor:
    flags = tensor.dtype == torch.bool  # of which any byte but zero is one
    numbers = storage[: tensor.record_bytes].view(torch.uint8 if flags else tensor.dtype)
    view = numbers.as_strided(tensor.size, tensor.stride, tensor.offset)
    return view.bool() if flags else view

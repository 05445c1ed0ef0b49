"""Mutations of files: what a format holds with one place altered, or bytes; and odd places where a file should be.

A format is a function that reads a file as a list or dictionary, and says how a file is made of another one.
"""

import io
import json
import os
import shutil
import sqlite3
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor

from fuzzing.values import BASE_TENSORS, altered, array_like, bytes_like, json_value, tensor_like, text_like

Format = Callable[[bytes, Random], tuple[Any, Callable[[Any], bytes]]]  # what is held, and what makes bytes of it

_LARGEST = 2**20  # numbers of a tensor or array that is written


def mutated(random: Random, file: Path, folder: Path) -> Path:
    """A copy of a file or folder below another folder: as it is, mutated, or something else in its place."""
    target = folder / f"{random.randrange(1000)}-{file.name}"
    if file.is_dir():
        return _mutated_folder(random, file, target)
    drawn = random.random()
    if drawn < 0.1:
        return _odd_place(random, target)
    target.write_bytes(file.read_bytes() if drawn < 0.2 else changed(random, file.read_bytes(), file.suffix))
    return target


def changed(random: Random, content: bytes, suffix: str) -> bytes:
    """The content of a file of this kind, mutated."""
    if suffix in _FORMATS and random.random() < 0.85:
        try:
            held, build = random.choice(_FORMATS[suffix])(content, random)
            for _ in range(random.choice((1, 1, 2))):
                held = altered(random, held, _stored_instead)
            return build(held)
        except Exception:
            pass  # some alterations make what the format cannot hold
    return bytes_like(random, content)


def _stored_instead(random: Random, value: Any) -> Any:
    """Something that a file may hold in the place of a value."""
    match value:
        case Tensor():
            return _stored_tensor(random, value)
        case np.ndarray():
            other = np.asarray(array_like(random, value))
            return other if other.size <= _LARGEST else value[:0]
        case bytes() if b"'shape': (" in value and random.random() < 0.3:  # the header of an array
            return value.replace(b"'shape': (", b"'shape': (99999999999, ")
        case bytes():
            return bytes_like(random, value)
        case str() if random.random() < 0.5:
            return text_like(random, value)
        case _:
            return json_value(random, value)


def _stored_tensor(random: Random, tensor: Tensor) -> Tensor:
    other = tensor_like(random, tensor if tensor.ndim else random.choice(BASE_TENSORS))
    if other.is_complex() or other.is_quantized or other.is_nested or other.layout != torch.strided or other.is_meta:
        return tensor.new_zeros(0)
    return tensor.new_zeros(3) if other.numel() > _LARGEST else other.detach().contiguous().clone()


def _mutated_folder(random: Random, folder: Path, target: Path) -> Path:
    shutil.copytree(folder, target)
    inside = sorted(path for path in target.rglob("*") if path.is_file())
    for file in random.sample(inside, min(len(inside), random.choice((0, 1, 1, 1, 2)))):
        if random.random() < 0.2:
            file.unlink()
            _odd_place(random, file)
        else:
            file.write_bytes(changed(random, file.read_bytes(), file.suffix))
    if random.random() < 0.2:
        folders = sorted(path for path in target.rglob("*") if path.is_dir() and not path.is_symlink())
        _odd_place(random, random.choice(folders or [target]) / "odd.png")
    return target


def _odd_place(random: Random, target: Path) -> Path:
    """Not a file of the right kind, at this place."""
    match random.randrange(8):
        case 0:
            target.mkdir()
        case 1:
            os.mkfifo(target)
        case 2:
            target.touch()
        case 3:
            target.write_bytes(random.randbytes(random.randrange(1, 300)))
        case _:
            target.symlink_to(random.choice((target, target.parent, "/dev/zero", "/proc/self/mem")))
    return target


def _as_json(value: Any) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogatepass")


def _json(content, random):
    return json.loads(content), _as_json


def _json_lines(content, random):
    return [json.loads(line) for line in content.splitlines()], lambda held: b"\n".join(map(_as_json, held))


def _cells(separator: str) -> Format:
    """Lines of text cells; for TOML a value that is no text is written as JSON, which is nearly the same."""

    def line(row: list[Any]) -> str:
        return separator.join(cell if isinstance(cell, str) else json.dumps(cell) for cell in row)

    return lambda content, random: (
        [text.split(separator) for text in content.decode().splitlines()],
        lambda held: "\n".join(map(line, held)).encode("utf-8", "surrogatepass"),
    )


def _tensors_header(content, random):
    """What a file says about its tensors, which then is not true."""
    start = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:start]), lambda held: _sized(_as_json(held)) + content[start:]


def _sized(text: bytes) -> bytes:
    return len(text).to_bytes(8, "little") + text


def _tensors(content, random):
    """Tensors, and the JSON texts of the metadata."""
    texts = _tensors_header(content, random)[0].get("__metadata__", {})
    held = [load(content), {key: json.loads(text) for key, text in texts.items()}]
    return held, lambda held: save(held[0], {key: json.dumps(value) for key, value in held[1].items()})


def _arrays(content, random):
    def build(held: Any) -> bytes:
        np.savez(written := io.BytesIO(), **held)
        return written.getvalue()

    return dict(np.load(io.BytesIO(content), allow_pickle=False)), build


def _zip(content, random):
    def build(held: Any) -> bytes:
        written = io.BytesIO()
        with zipfile.ZipFile(written, "w", random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
            for name, inside in held:
                archive.writestr(zipfile.ZipInfo(name), inside, archive.compression)
        return written.getvalue()

    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return [[name, archive.read(name)] for name in archive.namelist()], build


def _tar(content, random):
    def build(held: Any) -> bytes:
        written = io.BytesIO()
        with tarfile.open(fileobj=written, mode="w", errors="surrogateescape") as archive:
            for name, inside in held:
                member = tarfile.TarInfo(name)
                member.size = len(inside)
                archive.addfile(member, io.BytesIO(inside))
        return written.getvalue()

    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return [[member.name, archive.extractfile(member).read()] for member in archive], build


def _fields(layout: str, starts: Callable[[bytes], Sequence[int]], finish: Callable[[bytes], bytes] = bytes) -> Format:
    """The fields of one of the binary headers in a file; `finish` makes a header's checksum right."""

    def opened(content, random):
        start = random.choice(starts(content))
        rest = start + struct.calcsize(layout)

        def build(held: Any) -> bytes:
            return content[:start] + finish(struct.pack(layout, *held)) + content[rest:]

        return list(struct.unpack(layout, content[start:rest])), build

    return opened


def _tar_checksum(header: bytes) -> bytes:
    return header[:148] + b"%06o\0 " % (sum(header[:148]) + 256 + sum(header[156:])) + header[156:]


def _png_checksum(header: bytes) -> bytes:
    return header[:17] + struct.pack(">I", zlib.crc32(header[:17]))


def _rows(content, random):
    """The rows of a result store."""

    def build(held: Any) -> bytes:
        with closing(sqlite3.connect(":memory:")) as database:
            database.deserialize(content)
            database.execute("DELETE FROM results")
            database.executemany("INSERT INTO results VALUES (?, ?, ?, ?)", held)
            database.commit()
            return database.serialize()

    with closing(sqlite3.connect(":memory:")) as database:
        database.deserialize(content)
        return [[*row] for row in database.execute("SELECT * FROM results")], build


_ZIP_DIRECTORY = _fields(
    "4s" + 6 * "2s" + 3 * "4s" + 5 * "2s" + 2 * "4s", lambda content: [content.rindex(b"PK\x01\x02")]
)
_TAR_HEADER = _fields(
    "100s8s8s8s12s12s8s1s100s6s2s32s32s8s8s155s12s", lambda content: range(0, len(content), 512), _tar_checksum
)
_PNG_HEADER = _fields("4s4s4s1s1s1s1s1s4s", lambda content: [12], _png_checksum)
_FORMATS: dict[str, tuple[Format, ...]] = {
    ".safetensors": (_tensors_header, _tensors, _tensors),
    ".npz": (_arrays, _arrays, _zip, _ZIP_DIRECTORY),
    ".pt": (_zip, _zip, _ZIP_DIRECTORY),
    ".json": (_json, _json, _cells("\n")),
    ".jsonl": (_json_lines, _cells("\n")),
    ".toml": (_cells("="), _cells("="), _cells("\n")),
    ".txt": (_cells("\n"), _cells(" ")),
    ".csv": (_cells(","), _cells("\n")),
    ".tar": (_tar, _TAR_HEADER),
    ".png": (_PNG_HEADER,),
    ".sqlite": (_rows,),
}

"""Mutations of files: of bytes, of the JSON inside, of tensors, of archives; and odd places where a file should be."""

import io
import json
import os
import shutil
import sqlite3
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save

from fuzzing.values import (
    BASE_TENSORS,
    OBJECTS,
    TEXTS,
    array_like,
    bytes_like,
    deep_json,
    json_like,
    json_value,
    near,
    tensor_like,
    text_like,
)

Mutation = Callable[[Random, bytes], bytes]


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
    kinds = [bytes_like, *_BY_SUFFIX.get(suffix, ())]
    mutate = random.choice([*kinds, *kinds[1:], *kinds[1:]])
    try:
        return mutate(random, content)
    except Exception:
        return bytes_like(random, content)  # some mutations make what the format cannot hold


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
        _odd_place(random, random.choice([path for path in target.rglob("*") if path.is_dir()] or [target]) / "odd.png")
    return target


def _odd_place(random: Random, target: Path) -> Path:
    """Not a file of the right kind, at this place."""
    match random.randrange(8):
        case 0:
            target.mkdir()
        case 1:
            target.symlink_to(target)
        case 2:
            target.symlink_to(target.parent)
        case 3:
            os.mkfifo(target)
        case 4:
            target.touch()
        case 5:
            target.symlink_to("/dev/zero")
        case 6:
            target.write_bytes(random.randbytes(random.randrange(1, 300)))
        case _:
            target.symlink_to("/proc/self/mem")
    return target


# -- JSON, TOML, CSV and other text -----------------------------------------------------------------------------------


def _json(random: Random, content: bytes) -> bytes:
    if random.random() < 0.05:
        return deep_json(random).encode()
    return json.dumps(json_like(random, json.loads(content))).encode("utf-8", "surrogatepass")


def _json_lines(random: Random, content: bytes) -> bytes:
    lines = content.splitlines()
    lines[random.randrange(len(lines))] = _json(random, random.choice(lines))
    return b"\n".join(lines)


def _text(random: Random, content: bytes) -> bytes:
    return text_like(random, content.decode()).encode("utf-8", random.choice(("surrogatepass", "replace")))


def _lines(random: Random, content: bytes) -> bytes:
    lines = content.splitlines(keepends=True)
    at = random.randrange(len(lines))
    match random.randrange(4):
        case 0:
            del lines[at]
        case 1:
            lines.insert(random.randrange(len(lines)), lines[at])
        case 2:
            lines.insert(at, _text(random, lines[at]))
        case _:
            lines[at] = _text(random, lines[at])
    return b"".join(lines)


_TOML_VALUES = (
    *("0", "-1", "1e400", "nan", "inf", "true", '""', '"x"', "[]", "{}", "[[]]", '["x", 1]', "1979-05-27"),
    *("07:32:00", "[1]"),
    *('"\\u0000"', "'''\n'''", "{a = 1}", "9" * 30, "9" * 5000, '[""]', "[nan]", "[-1]", "[1, 1]", "10000000"),
    *('"pta"', '"{x}"'),
)


def _toml_value(random: Random, content: bytes) -> bytes:
    lines = content.decode().splitlines()
    at = random.choice([number for number, line in enumerate(lines) if "=" in line])
    lines[at] = f"{lines[at].partition('=')[0]}= {random.choice(_TOML_VALUES)}"
    return "\n".join(lines).encode()


def _csv(random: Random, content: bytes) -> bytes:
    rows = [line.split(",") for line in content.decode().splitlines()]
    row = random.choice(rows)
    row[random.randrange(len(row))] = random.choice((*TEXTS, '"', '"a\nb"', "'", '""""'))
    return "\n".join(map(",".join, rows)).encode("utf-8", "surrogatepass")


# -- tensors ----------------------------------------------------------------------------------------------------------


def _header(content: bytes) -> tuple[dict[str, Any], bytes]:
    size = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + size]), content[8 + size :]


def _with_header(header: Any, data: bytes) -> bytes:
    text = json.dumps(header).encode("utf-8", "surrogatepass")
    return len(text).to_bytes(8, "little") + text + data


def _tensors_header(random: Random, content: bytes) -> bytes:
    header, data = _header(content)
    return _with_header(json_like(random, header), data)


def _tensors_metadata(random: Random, content: bytes) -> bytes:
    """Another value on any level of the JSON texts in the metadata."""
    header, data = _header(content)
    about = header["__metadata__"]
    key = random.choice(list(about))
    inside = json.loads(about[key])
    for _ in range(random.choice((1, 1, 2))):
        inside = json_like(random, inside)
    about[key] = deep_json(random) if random.random() < 0.03 else json.dumps(inside)
    return _with_header(header, data)


def _tensors_values(random: Random, content: bytes) -> bytes:
    """Another tensor in the place of one: other numbers, another shape, another type."""
    header, _ = _header(content)
    tensors = load(content)
    for name in random.sample(list(tensors), min(len(tensors), random.choice((1, 1, 2)))):
        tensors[name] = _storable(random, tensors[name])
    return save(tensors, metadata=header.get("__metadata__"))


def _storable(random: Random, tensor: torch.Tensor) -> torch.Tensor:
    if tensor.numel() and random.random() < 0.5:
        tensor = tensor.clone()
        values = (-1, 0, 1, 2, 1.01, -1e-3, 1e30, 1e18, 1e308, float("nan"), float("inf"), 2**62, -(2**63), 1e-45)
        tensor.view(-1)[random.randrange(tensor.numel())] = random.choice(values)
        return tensor
    other = tensor_like(random, tensor if tensor.ndim else random.choice(BASE_TENSORS))
    if other.is_complex() or other.is_quantized or other.is_nested or other.layout != torch.strided or other.is_meta:
        return tensor.new_zeros(0)
    return tensor.new_zeros(3) if other.numel() > 2**20 else other.detach().contiguous().clone()


def _npz_values(random: Random, content: bytes) -> bytes:
    arrays = dict(np.load(io.BytesIO(content), allow_pickle=False))
    name = random.choice(list(arrays))
    match random.randrange(6):
        case 0:
            del arrays[name]
        case 1:
            arrays[name] = np.array([random.choice(OBJECTS)() for _ in range(2)], dtype=object)
        case _:
            arrays[name] = array_like(random, arrays[name])
    if any(np.asarray(array).nbytes > 2**24 for array in arrays.values()):
        raise ValueError("too large to write")
    written = io.BytesIO()
    random.choice((np.savez, np.savez_compressed))(written, **arrays)
    return written.getvalue()


# -- archives ---------------------------------------------------------------------------------------------------------


def _zip(random: Random, content: bytes) -> bytes:
    """Entries that are mutated, renamed, doubled, left out or packed otherwise, in a sound archive."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = [(entry.filename, archive.read(entry)) for entry in archive.infolist()]
    at = random.randrange(len(entries))
    name, inside = entries[at]
    match random.randrange(6):
        case 0:
            del entries[at]
        case 1:
            entries[at] = (text_like(random, name), inside)
        case 2:
            entries.append((name, bytes_like(random, inside)))
        case 3:
            entries[at] = (name, inside.replace(b"'shape': (", b"'shape': (99999999999, "))
        case _:
            entries[at] = (name, bytes_like(random, inside))
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for name, inside in entries:
            archive.writestr(zipfile.ZipInfo(name), inside, archive.compression)
    return written.getvalue()


def _zip_directory(random: Random, content: bytes) -> bytes:
    """An archive whose directory does not tell the truth about sizes and places."""
    start = content.rindex(b"PK\x01\x02")
    field = random.choice((6, 8, 10, 16, 20, 24, 28, 30, 42))
    lie = random.choice((0, 1, 8, 2**16 - 1, 2**31, 2**32 - 1)).to_bytes(4, "little")
    return content[: start + field] + lie + content[start + field + 4 :]


def _tar(random: Random, content: bytes) -> bytes:
    """A shard with an odd member, or with a header that says something else and has a right checksum."""
    if random.random() < 0.5:
        start = 512 * random.randrange(len(content) // 512)
        header = bytearray(content[start : start + 512])
        field = random.choice((0, 100, 124, 136, 156, 157, 257, 345))
        header[field : field + 8] = random.choice(
            (b"77777777", b"\xff" * 8, b"\0" * 8, b"\x80" + b"\xff" * 7, b"../../..", b"x")
        )
        header = header[:512].ljust(512, b"\0")
        header[148:156] = b"%06o\0 " % (sum(header[:148]) + 256 + sum(header[156:]))
        return content[:start] + bytes(header) + content[start + 512 :]
    written = io.BytesIO(content)
    with tarfile.open(fileobj=written, mode="a") as archive:
        member = tarfile.TarInfo(
            random.choice(("odd.jpg", "000.jpg", "/abs.jpg", "../up.jpg", "a" * 300, "caf\udce9.cls", "x.cls"))
        )
        member.type = random.choice(
            (tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, b"x")
        )
        member.linkname, member.size = "000.jpg", random.choice((0, 5, 512))
        archive.addfile(member, io.BytesIO(random.randbytes(member.size)))
    return written.getvalue()


def _png(random: Random, content: bytes) -> bytes:
    """A header that promises other pixels, with a right checksum."""
    header = bytearray(content[16:29])
    at = random.randrange(13)
    header[at : at + 4] = struct.pack(">I", random.choice((0, 1, 2, 17, 60_000, 89_000_000, 2**31 - 1, 2**32 - 1)))[
        : 13 - at
    ]
    return content[:16] + bytes(header) + struct.pack(">I", zlib.crc32(b"IHDR" + header)) + content[33:]


def _sqlite(random: Random, content: bytes) -> bytes:
    """A store whose rows hold something else."""
    database = sqlite3.connect(":memory:")
    with closing(database):
        database.deserialize(content)
        column = random.choice(("key", "inputs", "record", "made"))
        value = random.choice(
            (None, 0, 1.5, "", "x", b"\xff", "[]", "{}", "null", "[" * 5000, json.dumps(json_value(random)))
        )
        database.execute(f"UPDATE OR REPLACE results SET {column} = ?", (value,))
        database.commit()
        return database.serialize()


_BY_SUFFIX: dict[str, tuple[Mutation, ...]] = {
    ".safetensors": (_tensors_header, _tensors_metadata, _tensors_values, _tensors_values),
    ".npz": (_npz_values, _npz_values, _zip, _zip_directory),
    ".pt": (_zip, _zip, _zip_directory),
    ".json": (_json, _json, _text),
    ".jsonl": (_json_lines, _lines),
    ".toml": (_toml_value, _toml_value, _lines),
    ".txt": (_lines, _text),
    ".csv": (_csv, _csv, _lines),
    ".tar": (_tar, _tar),
    ".png": (_png,),
    ".sqlite": (_sqlite, _sqlite),
}


def odd_argument(random: Random, argument: str) -> str:
    """An argument of a command, mutated; no program can be given a zero byte."""
    return near(random, argument).replace("\0", "0").replace("..", ".") if isinstance(argument, str) else argument

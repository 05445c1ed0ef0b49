"""Atomic writing of files; reading of text, JSON, npy and safetensors with one-line errors."""

import json
import math
import os
import re
import secrets
import shlex
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import cache
from importlib import resources
from io import BytesIO
from pathlib import Path
from threading import Lock
from typing import IO, Any

import numpy as np
import torch
from numpy.lib import format as npy
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import load, save
from torch import Tensor

from pta.core.limits import USUAL_LIMITS, require_memory
from pta.door.foreign import in_words
from pta.door.patience import reading, require_whole
from pta.door.plain_files import sync_folder
from pta.errors import (
    MachineFailure,
    PtaError,
    UnreadableFile,
    UnreadableSample,
    explaining,
    family,
    first_line,
    reason,
    shown,
)

_TEMPORARY = re.compile(r"\.(.+)\.\d+\.[0-9a-f]{8}")  # beside the file that the name stands for
_LARGEST_TEXT = 64 * 2**20
_MOST_TENSORS = 2**14
_BYTES_AT_ONCE = 2**20
_ONE_HEADER_AT_A_TIME = Lock()  # numpy parses it with ast, which fails now and then in threads before CPython 3.11.9
_NPY_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_LONGEST_NPY_HEADER = 2**14  # numpy itself refuses more than 10,000 letters


def write_atomically(path: str | Path, content: bytes | Iterable[bytes], *, sync: bool = True) -> None:
    """Write a file so that readers see the old or the new content, never a part, even if the process is killed.

    With `sync` it survives a power failure as far as the disk keeps what it says it has written.
    """
    target = as_path(path)
    temporary, file = _beside(target)
    with explaining(f"cannot write {target}"):
        try:
            with file:
                file.writelines([content] if isinstance(content, bytes) else content)
                if sync:
                    file.flush()
                    os.fsync(file.fileno())
            temporary.replace(target)
            if sync:
                sync_folder(target.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def as_path(given: object) -> Path:
    """A valid path of this system; it need not exist."""
    if not is_path(given):
        raise UnreadableFile(f"{shown(given)} is not a path")
    return Path(given)  # type: ignore[arg-type]


def is_path(given: object) -> bool:
    """Whether the path is valid on this system."""
    try:
        return isinstance(given, str | Path) and b"\0" not in os.fsencode(given)
    except UnicodeEncodeError:  # half of a surrogate pair
        return False


def exists(path: Path) -> bool:
    """Whether a file or folder exists; False for a path that is too long for the system, or closed to this user."""
    with explaining(f"{path} cannot be reached"):
        try:
            return path.exists()
        except OSError as error:
            if family(error) is MachineFailure:
                raise
    return False


def require_writable(path: str | Path) -> None:
    """Refuse a path that `write_atomically` could not write to, before any work."""
    temporary, file = _beside(as_path(path))
    file.close()
    temporary.unlink(missing_ok=True)


def _beside(target: Path) -> tuple[Path, IO[bytes]]:
    """A new file in the folder of the target, with the permissions a new file there should have, and open for writing.

    It is never opened by its name: by then that could be a link.
    """
    with explaining(f"cannot write {target}"):
        if not target.name or (target.exists() and not target.is_file()):
            raise UnreadableFile(f"cannot write {target}: it is not a file")
        if not target.parent.is_dir():
            raise UnreadableFile(f"cannot write {target}: the folder {target.parent} does not exist")
        temporary = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}")
        return temporary, temporary.open("xb")


def remove_temporary_files(folder: Path, target: str | None = None) -> None:
    """Remove what `write_atomically` left in a folder in killed processes, or only what it left for one file."""
    for path in folder.iterdir():
        found = _TEMPORARY.fullmatch(path.name)
        if found and target in (None, found[1]):
            with suppress(OSError):
                path.unlink()


def understanding(path: str | Path, kind: str) -> AbstractContextManager[None]:
    """Turn any error that a file's content causes into one line about the file."""

    def said(error: Exception) -> PtaError:
        if isinstance(error, OSError) and error.strerror:  # the system's; libraries raise it for damage as well
            return family(error)(f"{path} cannot be read: {reason(error)}")
        return UnreadableFile(f"{path} cannot be read as a {kind} (truncated or damaged?): {first_line(error)}")

    return in_words(said)


def read_text(path: Path, kind: str, largest: int = _LARGEST_TEXT) -> str:
    """The UTF-8 text of a file of at most `largest` bytes; `kind` is its name in messages, e.g. "template"."""
    with explaining(f"{path} cannot be read"):
        if not path.is_file():
            raise UnreadableFile(f"no such {kind} file: {path}")
        size = path.stat().st_size
        if size > largest:
            raise UnreadableFile(f"{path} has {size:,} bytes; a {kind} file has at most {largest:,}")
        content = path.read_bytes()
        require_whole(str(path), min(len(content), size), size)  # it may grow
    try:
        text = content.decode("utf-8-sig")  # spreadsheets put a mark in front
        if "\0" in text:
            raise UnicodeDecodeError("utf-8", content, 0, 1, "UTF-16 without a mark")
        return text
    except UnicodeDecodeError:
        encoding = "UTF-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in content else "LATIN1"
        convert = f"iconv -f {encoding} -t UTF-8 {shlex.quote(str(path))} > converted{path.suffix}"
        raise UnreadableFile(f"{path} is not UTF-8 text; convert it: {convert}") from None


def read_sample(path: Path, most: int = USUAL_LIMITS.max_bytes) -> bytes:
    """The content of a sample's file, of at most `most` bytes."""
    if not is_path(path):
        raise UnreadableSample(
            f"{str(path)[:40]!a}… is not a path: it holds a zero byte or half a letter "
            "(paths come one per line; --frames reads pictures)"
        )
    with reading(str(path)):
        size = (status := path.stat()).st_size
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableSample(f"{path} is not a file")
        require_short(str(path), size, most)
        content = _read(path, size)
    require_whole(str(path), len(content), size)
    return content


def _read(path: Path, size: int) -> bytes:
    """The first bytes of a file, in few calls: after each, a thread waits for the interpreter lock."""
    file = os.open(path, os.O_RDONLY)
    try:
        content = os.read(file, size)
        while len(content) < size and (more := os.read(file, size - len(content))):
            content += more
        return content
    finally:
        os.close(file)


def require_short(name: str, size: int, most: int) -> None:
    """Refuse a sample that is larger than the limit."""
    if size > most:
        raise UnreadableSample(f"{name} has {size:,} bytes; at most {most:,} are read")


def read_json(path: Path, kind: str, largest: int = _LARGEST_TEXT) -> Any:
    """The content of a JSON file of at most `largest` bytes; `kind` is its name in messages."""
    text = read_text(path, kind, largest)
    try:
        content = json.loads(text)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(content, ensure_ascii=False).encode()  # half of a surrogate pair is not text
        return content
    except (ValueError, RecursionError, MemoryError) as error:
        raise UnreadableFile(f"{path} is not JSON (truncated or damaged?): {first_line(error)}") from None


@cache
def packaged_json(name: str) -> dict[str, Any]:
    """A JSON object of the package's own data. It is read once and shared: do not change it.

    >>> packaged_json("datasets.json")["dtd"]["classes"]
    47
    """
    return json.loads((resources.files("pta") / "assets" / name).read_text(encoding="utf-8"))


def packaged_arrays(name: str) -> dict[str, NDArray[Any]]:
    """The arrays of a file of the package's own data."""
    with (resources.files("pta") / "assets" / name).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return dict(arrays)


def save_tensors(path: str | Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Save tensors with a description; equal contents give equal files."""
    if not isinstance(path, str | Path):
        raise UnreadableFile(f"cannot write to {shown(path)}: it is not a path")
    write_atomically(path, pack_tensors(tensors, about))


def pack_tensors(tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> bytes:
    """The content of the file that `save_tensors` writes."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return save(plain, metadata={"about": json.dumps(about, sort_keys=True)})


def unpack_tensors(content: bytes, kind: str, name: str = "this") -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the description that `pack_tensors` packed, as `load_tensors`; messages use the name."""
    with understanding(name, f"{kind} file"):
        size = int.from_bytes(content[:8], "little")
        if size > _LARGEST_TEXT:
            raise ValueError(f"a header of {size:,} bytes")
        header = json.loads(content[8 : 8 + size])
        metadata = header.pop("__metadata__", {})
        _few(name, header)
        require_memory(name, len(content))
        tensors = {key: tensor.clone() for key, tensor in load(content).items()}  # clones are aligned
        return _described(name, kind, tensors, metadata)


def join_tensors(
    path: str | Path,
    parts: Sequence[Path],
    joined: Sequence[str],
    whole: Mapping[str, Tensor],
    metadata: dict[str, str],
) -> None:
    """Save one file with the concatenated rows of the `joined` tensors of all parts, and the `whole` tensors.

    Only a few rows are in memory at a time, however long the parts are.
    """
    held = [_shapes(part) for part in parts]
    declared = {}
    for name in joined:
        dtype, shape = held[0][name]
        declared[name] = dtype, [sum(one[name][1][0] for one in held), *shape[1:]]
    write_atomically(path, _joined_bytes(parts, declared, whole, metadata))


def packed_in_order(tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> bytes:
    """The content of a safetensors file with metadata in their order: equal contents are equal bytes."""
    return b"".join(_joined_bytes([], {}, tensors, metadata))


_ROWS_AT_ONCE = 1024
_NAMES = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.int64: "I64", torch.uint8: "U8"}
_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1}


def _shapes(path: Path) -> dict[str, tuple[str, list[int]]]:
    """The type and the shape of every tensor of a file."""
    with safe_open(path, framework="pt") as file:
        slices = {name: file.get_slice(name) for name in _few(path, file.keys())}
        return {name: (slice.get_dtype(), slice.get_shape()) for name, slice in slices.items()}


def _few(path: str | Path, names: Collection[str]) -> Collection[str]:
    """The names of the tensors in a file, each of which takes time, also if it is empty."""
    if len(names) > _MOST_TENSORS:
        raise UnreadableFile(f"{path} has {len(names):,} tensors; a file has at most {_MOST_TENSORS:,}")
    return names


def _joined_bytes(
    parts: Sequence[Path],
    joined: Mapping[str, tuple[str, list[int]]],
    whole: Mapping[str, Tensor],
    metadata: dict[str, str],
) -> Iterator[bytes]:
    """A safetensors file; of the joined tensors type and shape are given."""
    header: dict[str, Any] = {"__metadata__": metadata}
    end, added = 0, {name: (_NAMES[tensor.dtype], list(tensor.shape)) for name, tensor in whole.items()}
    for name, (dtype, shape) in {**joined, **added}.items():
        start, end = end, end + math.prod(shape) * _BYTES[dtype]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the format aligns data to eight bytes
    yield len(text).to_bytes(8, "little") + text
    for name in joined:
        for part in parts:
            with safe_open(part, framework="pt") as file:
                rows = file.get_slice(name)
                for start in range(0, rows.get_shape()[0], _ROWS_AT_ONCE):
                    yield rows[start : start + _ROWS_AT_ONCE].numpy().tobytes()
    for tensor in whole.values():
        yield tensor.detach().cpu().contiguous().numpy().tobytes()


def load_tensors(
    path: str | Path, kind: str, only: Sequence[str] | None = None
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Load a file of `save_tensors`, or `only` some of its tensors; `kind` is its name in messages."""
    tensors, metadata = read_tensors(path, kind, only)
    return _described(path, kind, tensors, metadata, only or ())


def _described(
    path: str | Path, kind: str, tensors: dict[str, Tensor], metadata: Mapping[str, str], needed: Iterable[str] = ()
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        about = json.loads(metadata.get("about", "null"))
    except (ValueError, RecursionError):
        raise UnreadableFile(f"{path} cannot be read as a {kind} file: its description is not JSON") from None
    if not isinstance(about, dict) or about.get("kind") != kind or not set(needed) <= tensors.keys():
        raise UnreadableFile(f"{path} is a safetensors file, but not a {kind} file of pta")
    return tensors, about


def read_tensors(
    path: str | Path, kind: str, only: Sequence[str] | None = None
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a safetensors file, or those of `only` that it has, and its metadata.

    They are copies: later writes to the file do not change them. They are aligned like any other tensor, because
    alignment decides how matrix products round.
    """
    path = existing_file(path, kind)
    with understanding(path, f"{kind} file"), safe_open(path, framework="pt") as file:
        names = [name for name in _few(path, file.keys()) if only is None or name in only]
        require_memory(path, path.stat().st_size if names else 0)
        return {name: file.get_tensor(name).clone() for name in names}, file.metadata() or {}


def tensor_names(path: Path) -> list[str]:
    """The names of the tensors in a safetensors file."""
    return list(_shapes(path))


def read_exactly(file: IO[bytes], size: int) -> Tensor:
    """The next bytes of a file, in memory that is aligned like any tensor's."""
    content = torch.empty(size, dtype=torch.uint8)
    rest = content.numpy().data
    while rest:
        part = file.read(min(len(rest), _BYTES_AT_ONCE))
        if not part:
            raise UnreadableFile("it is shorter than its header says")
        rest[: len(part)] = part
        rest = rest[len(part) :]
    return content


def read_npy(file: IO[bytes], size: int) -> NDArray[Any]:
    """The array of an npy file of `size` bytes, in memory that is aligned like any tensor's.

    Nothing is read before the header and the size agree, and no Python object is ever made.
    """
    head = BytesIO(file.read(_LONGEST_NPY_HEADER))  # numpy would read as long a header as the file says
    with _ONE_HEADER_AT_A_TIME:
        shape, is_fortran, dtype = _NPY_HEADERS[npy.read_magic(head)](head)
    length = math.prod(shape) * dtype.itemsize
    if dtype.hasobject or length != size - file.seek(head.tell()):
        raise ValueError("it holds Python objects, or its size is not that of its header")
    return read_exactly(file, length).numpy().view(dtype).reshape(shape, order="F" if is_fortran else "C")


def existing_file(path: object, kind: str) -> Path:
    """The path of an existing file; `kind` is its name in messages."""
    with suppress(OSError):  # a name that is too long for a path
        if isinstance(path, str | Path) and Path(path).is_file():
            return Path(path)
    raise UnreadableFile(
        f"no such {kind} file: {path if isinstance(path, str | Path) and str(path).isprintable() else shown(path)}"
    )

"""Writing and reading safetensors: atomically, without pickle, with one JSON object of metadata."""

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from pta.errors import UnreadableFile


def write_atomically(path: str | Path, content: bytes) -> None:
    """Write a file so that a reader sees the old one or the new one, never a part, even after a kill."""
    target = Path(path)
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise UnreadableFile(f"cannot write {target}: {error.strerror}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def save_tensors(path: str | Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Save tensors with a description of what they are; equal contents give equal files."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomically(path, save(plain, metadata={"about": json.dumps(about, sort_keys=True)}))


def load_tensors(path: str | Path, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Load what `save_tensors` wrote; `kind` is what the file should be, for the message when it is not."""
    if not Path(path).is_file():
        raise UnreadableFile(f"no such {kind} file: {path}")
    try:
        with safe_open(path, framework="pt") as file:
            about = json.loads((file.metadata() or {}).get("about", "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except (SafetensorError, ValueError, OSError) as error:
        raise UnreadableFile(f"{path} is not a readable {kind} file (truncated or damaged?): {error}") from None
    if not isinstance(about, dict) or about.get("kind") != kind:
        raise UnreadableFile(f"{path} is a safetensors file, but not a {kind} file of pta")
    return tensors, about

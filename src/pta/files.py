"""Writing and reading safetensors: atomically, without pickle, with one JSON object of metadata."""

import json
import os
import secrets
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
    temporary = _beside(target)
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def require_writable(path: str | Path) -> None:
    """Refuse a place that `write_atomically` could not write to, before any work is done for it."""
    _beside(Path(path)).unlink()


def _beside(target: Path) -> Path:
    """A new empty file in the folder of the target, with the permissions a new file there should have."""
    if target.exists() and not target.is_file():
        raise UnreadableFile(f"cannot write {target}: it is not a file")
    if not target.parent.is_dir():
        raise UnreadableFile(f"cannot write {target}: the folder {target.parent} does not exist")
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        temporary.touch(exist_ok=False)
    except OSError as error:
        raise UnreadableFile(f"cannot write {target}: {(error.strerror or 'impossible').lower()}") from None
    return temporary


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

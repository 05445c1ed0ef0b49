"""A disk cache of text anchors: the same model and texts are encoded once.

Cached files are checked like computed anchors, and no failure of the cache stops a computation.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from pta.door.files import load_tensors, save_tensors
from pta.errors import PtaError

_KIND = "text anchors"


def default_cache() -> Path:
    """`$PTA_CACHE`, else `$XDG_CACHE_HOME/pta`, else `~/.cache/pta`."""
    if own := os.environ.get("PTA_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pta"


def anchors_key(fingerprint: str, dtype: torch.dtype, texts: Sequence[Sequence[str]]) -> str:
    """The sha256 of everything that anchors depend on: the model, its precision, and the texts of each class."""
    about = json.dumps([fingerprint, str(dtype), [list(own) for own in texts]])
    return hashlib.sha256(about.encode()).hexdigest()


def read_anchors(folder: Path, key: str, classes: int) -> Tensor | None:
    """The cached anchors of a key, or None."""
    try:
        tensors, about = load_tensors(_place(folder, key), _KIND)
    except (PtaError, OSError):
        return None
    anchors = tensors.get("anchors")
    if anchors is None or about.get("key") != key or anchors.dtype != torch.float32:
        return None
    sound = anchors.ndim == 2 and len(anchors) == classes and bool((anchors.norm(dim=1) - 1).abs().lt(1e-3).all())
    return anchors if sound else None


def write_anchors(folder: Path, key: str, anchors: Tensor) -> None:
    """Cache anchors under a key; if the folder is not writable, nothing is cached."""
    place = _place(folder, key)
    with suppress(PtaError, OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        save_tensors(place, {"anchors": anchors}, {"kind": _KIND, "key": key})


def _place(folder: Path, key: str) -> Path:
    return folder / "anchors" / f"{key}.safetensors"

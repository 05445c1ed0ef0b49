"""From class names to a classifier: every text of a class is encoded, and the mean direction is its anchor.

Anchors may be kept in a folder, so that the same model and texts are encoded once. Files of this cache are checked like
computed anchors, and no failure of the cache stops a computation.
"""

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pta.core.classifier import ZeroShotClassifier
from pta.data.prompts.texts import class_texts, warn_about_names
from pta.door.files import load_tensors, save_tensors
from pta.errors import PtaError

_KIND = "text anchors"
_TEXTS_AT_ONCE = 1024  # so that progress can be told; the encoder divides further as it likes


class TextEncoder(Protocol):
    """What is asked of a model here."""

    @property
    def fingerprint(self) -> str: ...

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def scale(self) -> float: ...

    @property
    def bias(self) -> float: ...

    def encode_texts(self, texts: Sequence[str]) -> Tensor: ...


def build_classifier(
    encoder: TextEncoder,
    class_names: Sequence[str],
    templates: Sequence[str],
    *,
    descriptions: Mapping[str, Sequence[str]] | None = None,
    cache: Path | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> ZeroShotClassifier:
    """The zero-shot classifier of an encoder for at least two classes, on the CPU; names stay as they are given.

    Each text becomes a unit row; a class's anchor is the direction of the plain mean over its texts. A sentence of the
    descriptions weighs as much as a template. In texts `_` is a blank. Names that are probably a mistake are warned
    about (`DoubtfulClassNames`). Anchors are kept in the folder `cache`, if given. `on_progress` is told how many texts
    of how many are encoded.
    """
    texts = class_texts(class_names, templates, descriptions)
    remark_on = getattr(
        encoder, "remark_on_names", None
    )  # not of every model: see `pta.models.packaged.packaged_encoder`
    warn_about_names(class_names, texts, None if remark_on is None else remark_on(class_names))
    key = anchors_key(encoder.fingerprint, encoder.dtype, texts)
    anchors = None if cache is None else read_anchors(cache, key, len(texts))
    if anchors is None:
        anchors = _encode(encoder, texts, on_progress)
        if cache is not None:
            write_anchors(cache, key, anchors)
    return ZeroShotClassifier(anchors, class_names, encoder.scale, encoder.bias, prompts=texts)


def _encode(
    encoder: TextEncoder, texts: Sequence[Sequence[str]], on_progress: Callable[[int, int], None] | None
) -> Tensor:
    distinct = list(dict.fromkeys(text for own in texts for text in own))
    rows = []
    for start in range(0, len(distinct), _TEXTS_AT_ONCE):
        part = distinct[start : start + _TEXTS_AT_ONCE]
        rows.append(normalize(encoder.encode_texts(part).float().cpu(), dim=-1))
        if on_progress:
            on_progress(start + len(part), len(distinct))
    encoded, row_of = torch.cat(rows), {text: row for row, text in enumerate(distinct)}
    means = [encoded[[row_of[text] for text in own]].double().mean(dim=0) for own in texts]
    return normalize(torch.stack(means), dim=-1).float()


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

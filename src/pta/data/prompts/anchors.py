"""From class names to a classifier: every text of a class is encoded, and the mean direction is its anchor."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pta.core.classifier import ZeroShotClassifier
from pta.data.prompts.cache import anchors_key, read_anchors, write_anchors
from pta.data.prompts.doubts import warn_about_names
from pta.data.prompts.texts import class_texts
from pta.door.files import as_path

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
    cache = None if cache is None else as_path(cache)
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

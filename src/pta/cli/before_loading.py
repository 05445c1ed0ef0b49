"""The model and the class texts of a command, checked before the model is loaded."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from pta.cli.messages import detail, say
from pta.core.classifier import ZeroShotClassifier
from pta.core.modality import Modality
from pta.data.prompts import build_classifier, class_texts, default_cache, load_descriptions, load_templates
from pta.models import Encoder, check_model, load_encoder


@dataclass(frozen=True)
class NamedModel:
    """A model that is loaded when it is first used. A wrong name, device or precision is refused at once."""

    name: str
    device: str = "cpu"
    dtype: str = "float32"

    def __post_init__(self) -> None:
        _ = self._declared

    @cached_property
    def encoder(self) -> Encoder:
        """The model, loaded; suggests half precision on a GPU."""
        encoder = load_encoder(self.name, device=self.device, dtype=self.dtype)
        on = f"{encoder.device}, {self.dtype}, {encoder.dim} dimensions"
        detail(f"model {self.name}: {encoder.architecture}, {on}, fingerprint {encoder.fingerprint[:12]}")
        if encoder.device.type == "cuda" and encoder.dtype == torch.float32:
            say("--dtype float16 is several times as fast on a GPU; features differ in the fourth digit")
        return encoder

    @property
    def modality(self) -> Modality:
        """What the model reads; that of a plugin is loaded for it."""
        return self._declared or self.encoder.modality

    @cached_property
    def _declared(self) -> Modality | None:
        return check_model(self.name, device=self.device, dtype=self.dtype)


@dataclass(frozen=True)
class Texts:
    """The classes of a command with the templates and sentences that describe them."""

    names: Sequence[str]
    templates: Sequence[str]
    descriptions: Mapping[str, Sequence[str]] | None

    @classmethod
    def read(cls, names: Sequence[str], templates: str, descriptions: Path | None, dataset: str | None) -> "Texts":
        """Read and check them, which needs no model; `dataset` is the one whose templates are used by default."""
        sentences = None if descriptions is None else load_descriptions(descriptions)
        own = cls(names, load_templates(templates, dataset), sentences)
        class_texts(own.names, own.templates, own.descriptions)
        return own

    def classifier(self, encoder: Encoder, on_progress: Callable[[int, int], None] | None = None) -> ZeroShotClassifier:
        """The zero-shot classifier of a model for these classes."""
        how: dict[str, Any] = {"descriptions": self.descriptions, "cache": default_cache(), "on_progress": on_progress}
        return build_classifier(encoder, self.names, self.templates, **how)

"""Served: the classifier, the method and the encoder that all streams of a service share."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pta.classifier import ZeroShotClassifier
from pta.encoders import Encoder
from pta.limits import USUAL_LIMITS, Limits


@dataclass(frozen=True)
class Served:
    """What is served."""

    classifier: ZeroShotClassifier
    method: str = "pta"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    encoder: Encoder | None = None  # None: features alone are taken


@dataclass(frozen=True)
class ServiceSettings:
    """How it is served."""

    name: str = "pta"  # of the model in the protocol
    batch: int = 256  # the most samples of a request
    queue: int = 4096  # the most samples that wait; more are refused
    quota: int | None = None  # learned samples per stream and minute
    auto_create: int = 0  # streams that may come into being on first use
    journal_max: int | None = None  # bytes
    repair: bool = False  # cut a damaged journal at its last whole group
    snapshot_samples: int = 10_000
    snapshot_seconds: float = 60.0
    limits: Limits = USUAL_LIMITS  # of a picture


@dataclass(frozen=True)
class Shape:
    """What requests must fit."""

    dim: int
    class_names: tuple[str, ...]
    name: str
    method: str
    takes_pictures: bool
    batch: int  # the most samples of a request
    durable: bool  # False with --no-journal

    @property
    def classes(self) -> int:
        """The number of classes C."""
        return len(self.class_names)

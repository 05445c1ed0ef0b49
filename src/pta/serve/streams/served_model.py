"""ServedModel: the classifier, the method and the encoder that all streams of a service share, and its settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from pta.core.classifier import ZeroShotClassifier
from pta.core.limits import USUAL_LIMITS, Limits
from pta.engines.pta.rule import Rule
from pta.errors import InvalidParameter
from pta.methods import Adapter, adapter_class, create_adapter
from pta.models import Encoder
from pta.monitor import ScoreReference, takes_order
from pta.monitor.monitor import WINDOW, require_window
from pta.serve.streams.learned_rows import Adapters

LARGEST_GROUP = 256
"""Samples that are committed together."""

_MOST_TOUCHES = 255  # per sample, which the threshold of a rule bounds


@dataclass(frozen=True)
class ServedModel:
    """What is served; a method that does not answer sample by sample from features is refused."""

    classifier: ZeroShotClassifier
    method: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    encoder: Encoder | None = None  # None: features alone are taken

    def __post_init__(self) -> None:
        adapter = self.fresh()
        needs = adapter.needs_with(adapter.parameters) - {"features"}
        if adapter.scope != "sample":
            raise InvalidParameter(f"{self.method} cannot be served: its answers depend on the whole {adapter.scope}")
        if adapter.wants_preview:
            raise InvalidParameter(f"{self.method} cannot be served: it sees the whole stream before it answers")
        if needs:
            raise InvalidParameter(
                f"{self.method} cannot be served: it needs {' and '.join(sorted(needs))}, and a journal keeps features"
            )

    def fresh(self) -> Adapter:
        """The method with nothing learned, on the host, where a replay gives the same bits."""
        return create_adapter(self.method, self.classifier, model=self.encoder, **self.parameters).to("cpu")

    def first(self, classes: int) -> "ServedModel":
        """The same with the first so many classes, as it was before others were added."""
        if classes not in self._parts:
            self._parts[classes] = replace(self, classifier=self.classifier.part(range(classes)))
        return self._parts[classes]

    @cached_property
    def _parts(self) -> "dict[int, ServedModel]":
        return {self.classifier.classes: self}

    @cached_property
    def adapters(self) -> Adapters:
        """Adapters with what streams have learned."""
        return Adapters(self.fresh())

    @cached_property
    def takes_order(self) -> bool:
        """Whether the method can take a stream that is sorted by class."""
        return takes_order(self.fresh())

    @property
    def identity(self) -> dict[str, Any]:
        """What a data folder belongs to, beside the anchors."""
        adapter = self.fresh()
        parameters = adapter.without_former(adapter.parameters)
        named = {f"{self.method}.{name}": value for name, value in parameters.items()}
        return {"dim": self.classifier.dim, "method": self.method, **named}

    def as_written(self, identity: Mapping[str, Any]) -> "ServedModel":
        """The same as a data folder with this identity has it: what is not given is as it was then."""
        written = written_parameters(self.method, identity)
        given = {**written, **self.parameters}
        return replace(self, parameters=adapter_class(self.method).with_former(given, written))


def written_parameters(method: str, identity: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a method in the identity of a data folder."""
    own = f"{method}."
    return {key.removeprefix(own): value for key, value in identity.items() if key.startswith(own)}


def rule_of(adapter: Adapter) -> Rule | None:
    """The rule by which samples touch classes, for a method that has one with a threshold."""
    rule = getattr(adapter, "rule", None)
    return rule if isinstance(rule, Rule) and rule.threshold * _MOST_TOUCHES >= 1 else None


@dataclass(frozen=True)
class ServiceSettings:
    """How it is served."""

    name: str = "pta"  # of the model in the protocol
    batch: int = LARGEST_GROUP  # the most samples of a request
    queue: int = 4096  # the most samples that wait; more are refused
    quota: int | None = None  # learned samples per stream and minute
    auto_create: int = 0  # streams that may come into being on first use
    journal_max: int | None = None  # bytes
    reactions: Mapping[str, str] = field(default_factory=dict)  # to alarms that stand, by kind
    silent_after: float | None = None  # seconds without a sample
    reference: ScoreReference | None = None  # of monitors; None: the first learned samples of each stream
    window: int = WINDOW  # of monitors
    repair: bool = False  # cut a damaged journal at its last whole group
    stream_memory: int = 2**29  # bytes of streams that are loaded
    snapshot_samples: int | None = None  # before the next snapshot; None: as many as are replayed in a second
    reject_below: float | None = None  # answers of a lower probability are marked as rejected
    reject_holds: float | None = None  # samples of a lower zero-shot probability are not learned
    limits: Limits = USUAL_LIMITS  # of a picture
    max_request_pixels: int = 2**28  # of all pictures of a request: 256 of 1,024×1,024, or three of the largest

    def __post_init__(self) -> None:
        require_window(self.window)


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
    rejects: bool = False  # whether answers say if they are rejected

    @property
    def classes(self) -> int:
        """The number of classes C."""
        return len(self.class_names)

"""Adapter: what every method is to its users, and the registry that finds one by name.

A method declares each piece of its state once, with `add_state`. Saving, loading, resetting, moving, counting bytes
and comparing follow from the declaration.
"""

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar

import torch
from torch import Tensor

from pta.classifier import ZeroShotClassifier
from pta.errors import InvalidParameter, InvalidSamples, StateMismatch, UnknownAdapter, nearest
from pta.files import load_tensors, save_tensors
from pta.samples import Samples
from pta.towers import ImageTower

Scope = Literal["sample", "batch", "stream"]

_STATE_VERSION = 2
_ANCHORS = "classifier.anchors"  # saved with a state, so that it is only used with the classifier it belongs to
_SAME_DIRECTION = 0.9999  # cosine: other templates are far below, another processor's rounding far above
_MADE_BY = {"views": "pta extract --views 64 --view-mode crops", "pixels": "pta extract --pixels"}


@dataclass(frozen=True)
class _Declaration:
    initial: Callable[[], Tensor]
    per_class: bool


class Adapter(ABC):
    """A method that learns from a stream of samples and gives logits for them.

    Subclasses set `name`, declare their state in `__init__` after calling `super().__init__` with every parameter,
    and implement `_step` and `_predict` on checked samples.

    Attributes:
        needs: what samples must provide: "features", "views", "pixels". A method that needs "pixels" looks inside an
            image tower, which it is given beside the classifier.
        scope: what an answer depends on beside the state: its own "sample" (then a batch gives what one by one gives),
            the "batch" it comes in, or the whole "stream", which must then come as one batch.
        bounded: state does not grow with the stream.
        tower: the image tower that a method was given, if it needs pixels.
        at_once: the samples that `_step` and `_predict` are given at most, if the scope is "sample"; bounds memory,
            changes no answer.
    """

    name: ClassVar[str]
    needs: frozenset[str] = frozenset({"features"})
    scope: ClassVar[Scope] = "sample"
    bounded: ClassVar[bool] = True
    tower: ImageTower | None = None
    at_once: int = 1024

    def __init__(self, classifier: ZeroShotClassifier, **parameters: Any) -> None:
        self.classifier = classifier
        self.parameters = parameters
        self._declared: dict[str, _Declaration] = {}

    # -- what a user calls ------------------------------------------------------------------------------------------

    @torch.no_grad()
    def step(self, samples: object) -> Tensor:
        """Learn from the samples in order and give their logits, B×C: exactly what one by one would give."""
        return self._in_parts(self._step, self._checked(samples))

    @torch.no_grad()
    def step_unchecked(self, features: Tensor) -> Tensor:
        """Step on B×d unit rows without a look at them, so that nothing is read back from a GPU."""
        return self._in_parts(self._step, Samples._trusted(features))

    @torch.no_grad()
    def predict(self, samples: object) -> Tensor:
        """Give the logits of the samples as the state is now, and learn nothing."""
        return self._in_parts(self._predict, self._checked(samples))

    def reset(self, classes: Iterable[int] | None = None) -> None:
        """Forget everything, or only what was learnt about some classes."""
        chosen = None if classes is None else self._class_rows(classes)
        for name, declared in self._declared.items():
            if chosen is None:
                setattr(self, name, declared.initial())
            elif declared.per_class:
                getattr(self, name)[chosen] = declared.initial()[chosen]
        self._state_replaced()

    def to(self, device: torch.device | str) -> Self:
        """Move classifier and state to a device; samples follow them there by themselves."""
        if torch.empty(0, device=device).device == self.classifier.anchors.device:
            return self
        self.classifier = self.classifier.to(device=torch.device(device))
        for name, tensor in self.state().items():
            self._replace(name, tensor.to(device))
        self._state_replaced()
        return self

    def save(self, path: str | Path) -> None:
        """Write parameters and state to a safetensors file, atomically."""
        about = {
            "kind": "state",
            "version": _STATE_VERSION,
            "method": self.name,
            "parameters": self.parameters,
            "class_names": self.classifier.class_names,
            "scale": self.classifier.scale,
            "bias": self.classifier.bias,
        }
        save_tensors(path, {**self.state(), _ANCHORS: self.classifier.anchors.half()}, about)

    def state(self) -> dict[str, Tensor]:
        """Every declared piece of state by name; the tensors themselves, not copies."""
        return {name: getattr(self, name) for name in self._declared}

    @property
    def recordable(self) -> bool:
        """Whether a step decides nothing on the host and changes its state in place: a GPU can record and replay it."""
        return False

    @property
    def state_bytes(self) -> int:
        """The memory that the state takes."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.state().values())

    # -- what a method calls or implements --------------------------------------------------------------------------

    def add_state(self, name: str, initial: Callable[[], Tensor], *, per_class: bool = True) -> None:
        """Declare a piece of state: how it starts, and whether its rows belong to the classes."""
        self._declared[name] = _Declaration(initial, per_class)
        setattr(self, name, initial())

    @abstractmethod
    def _step(self, samples: Samples) -> Tensor: ...

    @abstractmethod
    def _predict(self, samples: Samples) -> Tensor: ...

    def _replace(self, name: str, tensor: Tensor) -> None:
        """Put a tensor in the place of a piece of state."""
        setattr(self, name, tensor)

    def _state_replaced(self) -> None:  # noqa: B027 (most compute nothing from it)
        """State was reset, loaded or moved: forget whatever was computed from it."""

    def refined(self, samples: Samples) -> Tensor:
        """The features that the method's answers are about, B×d; those of the samples, unless it makes its own."""
        return samples.features

    def _answer(self, samples: Samples, *, learn: bool) -> tuple[Tensor, Tensor]:
        """Refined features and logits, for a method that stands on this one."""
        return self.refined(samples), (self._step if learn else self._predict)(samples)

    def require(self, samples: Samples) -> None:
        """Refuse samples that do not provide what the method needs."""
        for missing in sorted(self.needs - samples.provides):
            raise InvalidSamples(f"{self.name} needs {missing}, which are missing; make them with {_MADE_BY[missing]}")

    def _in_parts(self, use: Callable[[Samples], Tensor], samples: Samples) -> Tensor:
        if self.scope != "sample" or len(samples) <= self.at_once:
            return use(samples.to(self.classifier.anchors))
        return torch.cat([use(part.to(self.classifier.anchors)) for part in samples.batches(self.at_once)])

    def _checked(self, samples: object) -> Samples:
        batch = samples if isinstance(samples, Samples) else Samples.of(samples)
        if not len(batch):
            raise InvalidSamples("no samples: the batch is empty")
        if batch.dim != self.classifier.dim:
            raise InvalidSamples(
                f"features have {batch.dim} dimensions but the classifier's anchors have {self.classifier.dim}; "
                "both must come from the same model"
            )
        self.require(batch)
        return batch

    def _class_rows(self, classes: Iterable[int]) -> list[int]:
        if not isinstance(classes, Iterable):
            raise InvalidParameter(f"classes must be a list of class numbers, for example [{classes}], got {classes!r}")
        rows = list(classes)
        for row in rows:
            if isinstance(row, bool) or not isinstance(row, Integral) or not 0 <= row < self.classifier.classes:
                raise InvalidParameter(f"class {row!r} does not exist; classes are 0…{self.classifier.classes - 1}")
        return [int(row) for row in rows]

    def _restore(self, tensors: Mapping[str, Tensor], path: str | Path) -> None:
        own = self.state()
        if set(tensors) != set(own):
            raise StateMismatch(f"{path} holds {sorted(tensors)}, but {self.name} keeps {sorted(own)}")
        for name, tensor in tensors.items():
            wrong_shape = self.bounded and tensor.shape != own[name].shape
            if wrong_shape or tensor.dtype != own[name].dtype:
                raise StateMismatch(
                    f"{path}: {name} is {tuple(tensor.shape)} {tensor.dtype}, "
                    f"expected {tuple(own[name].shape)} {own[name].dtype}"
                )
            if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                raise StateMismatch(f"{path}: {name} holds NaN or Inf; the file is damaged")
        for name, tensor in tensors.items():
            self._replace(name, tensor.to(own[name].device))
        self._state_replaced()


_REGISTRY: dict[str, type[Adapter]] = {}
AdapterClass = TypeVar("AdapterClass", bound=type[Adapter])


def register(adapter: AdapterClass) -> AdapterClass:
    """Make a method known by its `name`: the one line that a new method adds."""
    _REGISTRY[adapter.name] = adapter
    return adapter


def list_adapters() -> list[str]:
    """The names of all methods.

    >>> list_adapters()
    ['adapt', ..., 'zero']
    """
    return sorted(_REGISTRY)


def adapter_class(name: str) -> type[Adapter]:
    """The class of a method, by name."""
    if not isinstance(name, str) or name not in _REGISTRY:
        raise UnknownAdapter(f"no method is called {name!r}; {nearest(str(name), list_adapters())}")
    return _REGISTRY[name]


def parameters_of(name: str) -> dict[str, inspect.Parameter]:
    """The keyword parameters of a method, with their defaults."""
    parameters = inspect.signature(adapter_class(name)).parameters
    return {key: value for key, value in parameters.items() if value.kind is inspect.Parameter.KEYWORD_ONLY}


def require_parameters(name: str, given: Iterable[str]) -> None:
    """Refuse the name of a parameter that the method does not have."""
    known = parameters_of(name)
    for key in given:
        if key not in known:
            raise InvalidParameter(f"{name} has no parameter {key!r}; {nearest(key, known)}")


def create_adapter(
    name: str,
    classifier: ZeroShotClassifier,
    *,
    source: object = None,
    tower: ImageTower | None = None,
    **parameters: Any,
) -> Adapter:
    """Make a method by name.

    Args:
        name: as `list_adapters` gives it.
        classifier: what it starts from.
        source: the samples it will be given; if they lack something that the method needs, it is refused now.
        tower: the image tower, for a method that looks inside it; `Encoder.image_tower()` gives it.
        parameters: of the method; `length`, where a method has it, is that of the source unless given.

    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"])
    >>> create_adapter("pta", classifier, hh=3)
    Traceback (most recent call last):
    pta.errors.InvalidParameter: pta has no parameter 'hh'; did you mean 'h'?
    """
    require_parameters(name, parameters)
    known = parameters_of(name)
    samples = source if isinstance(source, Samples | None) else Samples.of(source)
    if "length" in known and samples is not None:
        parameters.setdefault("length", len(samples))
    method: Callable[..., Adapter] = adapter_class(name)
    if "pixels" not in adapter_class(name).needs:
        adapter = method(classifier, **parameters)
    elif tower is not None:
        adapter = method(classifier, tower, **parameters)
    else:
        raise InvalidParameter(f"{name} looks inside an image tower; give the model (--model, tower=…)")
    if samples is not None:
        adapter.require(samples)
    return adapter


def load_adapter(path: str | Path, classifier: ZeroShotClassifier, *, tower: ImageTower | None = None) -> Adapter:
    """Make the method that `Adapter.save` wrote, with its parameters and state, for the same classifier."""
    tensors, about = load_tensors(path, kind="state")
    if about.get("version") != _STATE_VERSION:
        raise StateMismatch(f"{path} has state version {about.get('version')}; this pta reads {_STATE_VERSION}")
    if tuple(about.get("class_names", ())) != classifier.class_names:
        raise StateMismatch(f"{path} was saved for another list of classes")
    if not _was_saved_for(classifier, tensors.pop(_ANCHORS, None), about):
        raise StateMismatch(f"{path} was saved for the same classes but another model or other templates")
    parameters = about.get("parameters")
    if not isinstance(parameters, dict) or not isinstance(about.get("method"), str):
        raise StateMismatch(f"{path} does not say which method and parameters it belongs to")
    adapter = create_adapter(about["method"], classifier, tower=tower, **parameters)
    adapter._restore(tensors, path)
    return adapter


def _was_saved_for(classifier: ZeroShotClassifier, anchors: Tensor | None, about: Mapping[str, Any]) -> bool:
    """Whether a state was saved for this classifier, but for the last bits that differ between machines."""
    if anchors is None or anchors.shape != classifier.anchors.shape:
        return False
    for name in ("scale", "bias"):
        value = about.get(name)
        if not isinstance(value, float) or not math.isclose(value, getattr(classifier, name), rel_tol=1e-3):
            return False
    saved = torch.nn.functional.normalize(anchors.to(classifier.anchors), dim=1)
    return bool(((saved * classifier.anchors).sum(dim=1) > _SAME_DIRECTION).all())

"""Adapter: the interface of every method.

A method declares its parameters (`pta.core.parameters`), each piece of its state (`add_state`) and what it needs
(`needs`) once. Checking, saving, loading, resetting, copying, moving, pickling, counting bytes and comparing follow
from that.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self

import torch
from torch import Tensor

from pta.core.classifier import ZeroShotClassifier
from pta.core.host_readable import is_host_readable
from pta.core.parameters import (
    Calibration,
    Parameter,
    check_all,
    check_given,
    choice,
    declared_in,
    document,
    require_switch,
)
from pta.core.plain import plain_list, plain_tensor
from pta.core.samples import Samples
from pta.core.towers import Model
from pta.engines.calibration import GRID, temperatures, temperatures_in_order
from pta.engines.local_prior import LocalPrior
from pta.engines.zero_shot import ZeroShot
from pta.errors import InvalidParameter, InvalidSamples, StateMismatch, first_line, shown
from pta.methods.state_bounds import DISTRIBUTIONS, LARGEST_COUNT, Bound, between, usual_bound
from pta.methods.state_file import Snapshot, save_state

Scope = Literal["sample", "batch", "stream"]
Initial = Callable[[ZeroShotClassifier, Mapping[str, Any], Model | None], Tensor]
"""The initial state, from classifier, parameters and model."""


def full(value: float, *shape: int, dtype: torch.dtype | None = None) -> Initial:
    """A start with one value everywhere, on the classifier's device and, unless another is given, in its precision."""
    return lambda classifier, *_: classifier.anchors.new_full(shape, value, dtype=dtype)


TOWERS = frozenset({"image tower", "prompt tower"})
"""The towers that a method may need."""

_MADE_BY = {
    "views": "pta extract --views 64 --view-mode augmix (or crops)",
    "raw": "pta extract --pixels",
    "patches": "pta extract --patches",
    "generated": "pta extract --views 65 --views-from DIR, or choose difftpt-augmented, which needs none",
}
_IN_WORDS = {"raw": "raw samples", "generated": "generated pictures"}
_COUNTERS = ("seen", "without_gradient")  # of samples
# A and B add at most 8 per sample and keep 255/256: no more than 2048, whatever state they start from.
_PRIOR = dict.fromkeys(("fast", "slow", "mean"), DISTRIBUTIONS) | {
    "found": between(-2100, 2100),
    "by_chance": between(0, 2100),
    "count": between(0, LARGEST_COUNT),
}
_CALIBRATION = choice(
    "fixed",
    Calibration,
    "temperature of probabilities: fixed by the rule, or matched during the stream (for pta, wpta and combined)",
)


class Piece(NamedTuple):
    """A declared piece of state."""

    owner: "Adapter"  # that has it as an attribute
    attribute: str
    initial: Initial  # how it starts
    per_class: bool  # its rows belong to the classes
    within: Bound  # allowed values

    @property
    def tensor(self) -> Tensor:
        """Its current value."""
        return getattr(self.owner, self.attribute)

    def fresh(self) -> Tensor:
        """Its value in a new adapter."""
        return self.initial(self.owner.classifier, self.owner.parameters, self.owner.model)

    def put(self, tensor: Tensor) -> None:
        """Set its value, in place if possible, so that a recorded step still finds it."""
        now = self.tensor
        if (now.shape, now.dtype, now.device) == (tensor.shape, tensor.dtype, tensor.device):
            now.copy_(tensor)
        else:
            setattr(self.owner, self.attribute, tensor)

    def require(self, given: object, name: str) -> Tensor:
        """The given value, checked; messages use the name."""
        now, tensor = self.tensor, plain_tensor(name, given, StateMismatch)
        same_shape = tensor.shape == now.shape if self.owner.bounded else tensor.ndim == now.ndim
        if not same_shape or tensor.dtype != now.dtype:
            found, expected = (f"{tuple(one.shape)} {one.dtype}" for one in (tensor, now))
            raise StateMismatch(f"{name} is {found}, expected {expected}")
        if not self.within.holds(tensor):
            raise StateMismatch(f"{name} must be {self.within.says}; the state is damaged")
        return tensor


@dataclass(frozen=True)
class Origin:
    """The inputs of an adapter besides its parameters."""

    classifier: ZeroShotClassifier
    model: Model | None = None  # of the anchors and features, if known
    length: int | None = None  # of the stream, if known


class Adapter(ABC):
    """A method that learns from a stream of samples and returns their logits.

    A subclass sets `name`, declares its parameters as attributes, declares its state in `__init__` after
    `super().__init__`, and implements `_step` and `_predict` on checked samples. By default these get one sample at a
    time; a method with a fast form for batches sets the largest batch in `max_batch`.
    """

    name: ClassVar[str]
    declared: ClassVar[Mapping[str, Parameter]] = {"calibration": _CALIBRATION}
    # Of the samples "features", "views", "raw", "patches", "generated"; of the model "image tower", "prompt tower".
    needs: ClassVar[frozenset[str]] = frozenset({"features"})
    # What a prediction depends on besides the state: its "sample" (a batch then equals a loop), its "batch", or the
    # whole "stream", which must then be one batch.
    scope: ClassVar[Scope] = "sample"
    bounded: ClassVar[bool] = True  # state does not grow with the stream
    # The pieces of state that hold a prototype per class, C×d, and how much each class has learned from, C.
    prototypes_in: ClassVar[str] = ""
    counts_in: ClassVar[str] = ""
    # Why no class can be added to its state; empty if the state per class does not depend on the number of classes.
    fixed_classes: ClassVar[str] = "it does not declare that its state per class is independent of the other classes"
    wants_preview: bool = False  # it needs the whole stream before the first step (`preview`)
    # Whether `_step` can fail after it has begun to change the state, although its samples were checked. The state is
    # then copied before each call.
    may_fail: bool = True
    # The most samples per call of `_step` and `_predict`, if the scope is "sample"; None for any number. It bounds
    # memory and changes no result.
    max_batch: int | None = 1
    # The most samples between two calls of `refresh_state`; None for a method without refreshes. No refresh is due
    # between the samples of one `_step`.
    refresh_interval: int | None = None

    def __init_subclass__(cls) -> None:
        cls.declared = declared_in(cls, cls.declared)
        document(cls, cls.declared)

    def __init__(
        self,
        classifier: ZeroShotClassifier,
        *,
        model: Model | None = None,
        checked: Mapping[str, Any] | None = None,  # what `complete` gave, in the place of parameters
        **parameters: Any,
    ) -> None:
        require_classifier(classifier)
        self.classifier = classifier
        known = self.complete(parameters, Origin(classifier, model)) if checked is None else checked
        self.parameters = dict(known)
        self.model = self.require_model(self.parameters, classifier, model)
        for name, value in self.parameters.items():
            setattr(self, name, value)
        self._declared: dict[str, Piece] = {}
        # the position in the stream, on the classifier's device
        self.seen = self.add_state("seen", full(0, dtype=torch.int64), per_class=False)
        self._position: int | None = None  # the same, if the host knows it
        self._is_matched = self.parameters.get("calibration") == "matched"
        # a method on top of another leaves the prior to that one
        self._has_prior = self.parameters.get("prior") == "local" and not self.stands_on(self.parameters)
        self._in_front: ZeroShot | None = None  # of the current samples, if there is a prior
        if self._has_prior:
            for name, bound in _PRIOR.items():
                self.add_state(f"local_{name}", partial(_fresh_prior, name), within=bound, per_class=False)
        if self._is_matched:
            none, within = full(0.0, len(GRID), dtype=torch.float64), between(-1.01, 1.01)
            self.calibration_gaps = self.add_state("calibration_gaps", none, within=within, per_class=False)
            zero = full(0, dtype=torch.int64)
            self.calibration_count = self.add_state("calibration_count", zero, per_class=False)

    # -- for users --------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def step(self, samples: object) -> Tensor:
        """Learn from the samples in order and return their logits, B×C, exactly as one by one.

        If it fails, nothing was learned.
        """
        parts = self._parts(self._checked(samples))
        saved = self.snapshot() if len(parts) > 1 or self.may_fail else None
        try:
            return self._answers(self._step_and_count, parts)
        except BaseException:
            if saved is not None:
                self._put(saved.tensors)
            raise

    @torch.no_grad()
    def step_unchecked(self, features: Tensor) -> Tensor:
        """Step on B×d unit rows without checking them, so that nothing is read back from a GPU."""
        return self._answers(self._step_and_count, self._parts(Samples.unchecked(features)))

    @torch.no_grad()
    def step_before_refresh(self, samples: Samples) -> Tensor:
        """Step on checked samples before the next refresh; it can be recorded if `_step` can.

        The caller of a recording must refresh when due and count the samples (`refreshes_within`, `count_on_host`).
        """
        return self._answers(self._step_stretch, self._parts(samples))

    @torch.no_grad()
    def predict(self, samples: object) -> Tensor:
        """Return the logits of the samples with the current state, without learning."""
        return self._answers(partial(self._respond, learn=False), self._parts(self._checked(samples)))

    @property
    def logit_factor(self) -> float:
        """The factor that scales logits to those of one classifier: 1/n if the rule adds up n of them.

        For a method with a state, n is what the rule adds up before anything is learned, in units of the zero-shot
        logits, so that a new adapter gives zero-shot's probabilities. The factor is positive and changes no label. It
        follows from rule and parameters: nothing is fitted to labels.
        """
        return 1.0

    def probabilities(self, logits: object, *, raw: bool = False) -> Tensor:
        """The softmax of logits (B×C, or C of one sample) times `logit_factor`, in float64; if `raw`, of the logits.

        With `calibration="matched"` the logits are already divided by a temperature, and are not scaled again.
        """
        require_switch("raw", raw)
        given, classes = plain_tensor("logits", logits, InvalidSamples), self.classifier.classes
        if given.ndim not in (1, 2) or given.shape[-1] != classes:
            raise InvalidSamples(f"logits must be B×{classes}, one column per class, got shape {tuple(given.shape)}")
        if not bool(torch.isfinite(given.double() * self.logit_factor).all()):
            raise InvalidSamples("logits must be finite, some are NaN or Inf")
        return self.probabilities_unchecked(given, raw=raw)

    def probabilities_unchecked(self, logits: Tensor, *, raw: bool = False) -> Tensor:
        """The same for logits of `step` or `predict`, so that nothing is read back from a GPU."""
        return (logits.double() * (1.0 if raw or self._is_matched else self.logit_factor)).softmax(dim=-1)

    @property
    def position(self) -> int:
        """The number of samples given to `step` since the start or the last full `reset`."""
        return int(self.seen)

    def preview(self, samples: object) -> None:
        """Look at samples of the stream before the first step; online methods refuse."""
        raise InvalidParameter(f"{self.name} is an online method: it takes no preview of the stream")

    def remarks(self) -> list[str]:
        """Remarks for the user about the samples so far, one line each."""
        return []

    def snapshot(self) -> Snapshot:
        """A copy of the state, for `restore`."""
        copies = {name: tensor.clone() for name, tensor in self.state().items()}
        return Snapshot(self.name, self.parameters, self.classifier, copies)

    def restore(self, snapshot: Snapshot) -> None:
        """Restore a snapshot of this adapter, or of one with the same method, parameters and classifier."""
        if not isinstance(snapshot, Snapshot):
            raise StateMismatch(f"only a Snapshot can be restored, not {type(snapshot).__name__}")
        described = isinstance(snapshot.method, str) and isinstance(snapshot.parameters, Mapping)
        if not described or (snapshot.method, snapshot.parameters) != (self.name, self.parameters):
            made = f"{shown(snapshot.method)} with other parameters"
            raise StateMismatch(f"the snapshot is of {made} than this {self.name}")
        theirs, own = snapshot.classifier, self.classifier
        if theirs is not own and (not isinstance(theirs, ZeroShotClassifier) or theirs.fingerprint != own.fingerprint):
            raise StateMismatch("the snapshot is of an adapter with another classifier")
        self._put_checked(snapshot.tensors, "the snapshot")

    def clone(self) -> Self:
        """An independent copy; classifier and model are shared, because they never change."""
        twin = type(self)(self.classifier, model=self.model, checked=self.parameters)
        twin._put(self.state())
        return twin

    def __deepcopy__(self, memo: object) -> Self:
        return self.clone()

    def __reduce__(self) -> tuple[Any, ...]:
        return self._rebuilt, (self.snapshot(), self.model)

    def reset(self, classes: Iterable[int] | None = None) -> None:
        """Forget everything, or only what was learned about some classes; the latter keeps the position."""
        chosen = None if classes is None else self._class_rows(classes)
        fresh = {name: piece.fresh() for name, piece in self._pieces() if chosen is None or piece.per_class}
        for name, piece in self._pieces():
            if chosen is None:
                piece.put(fresh[name])
            elif piece.per_class:
                piece.tensor[chosen] = fresh[name][chosen]
        self._position = None
        self._state_replaced()

    def to(self, device: torch.device | str) -> Self:
        """Move classifier and state to a device; samples are moved there automatically."""
        target = _device(device)
        if target == self.classifier.anchors.device:
            return self
        classifier = self.classifier.to(device=target)
        moved = {name: tensor.to(target) for name, tensor in self.state().items()}
        for name, piece in self._pieces():
            piece.owner.classifier = classifier
            piece.put(moved[name])
        self._state_replaced()
        return self

    def save(self, path: str | Path, *, stream: Mapping[str, Any] | None = None) -> None:
        """Save parameters and state to a safetensors file, atomically; `read_stream` returns the last argument."""
        save_state(path, Snapshot(self.name, self.parameters, self.classifier, self.state()), self.model, stream)

    def state(self) -> dict[str, Tensor]:
        """Every declared piece of state by name; the tensors themselves, not copies."""
        return {name: piece.tensor for name, piece in self._pieces()}

    @property
    def state_bytes(self) -> int:
        """The memory of the state in bytes, without the sample counters."""
        kept = [piece.tensor for _, piece in self._pieces() if piece.attribute not in _COUNTERS]
        return sum(tensor.numel() * tensor.element_size() for tensor in kept)

    # -- for methods ------------------------------------------------------------------------------------------------

    @abstractmethod
    def _step(self, samples: Samples) -> Tensor:
        """Learn the samples in order and return their logits, B×C; `seen` is the position of the first one."""

    @abstractmethod
    def _predict(self, samples: Samples) -> Tensor:
        """Return the logits of the samples, B×C, without learning."""

    def next_refresh(self, position: int) -> int:
        """The position after this one at which `refresh_state` is due, for a method that has a `refresh_interval`."""
        raise NotImplementedError

    def refresh_state(self) -> None:  # noqa: B027 (most have no such work)
        """Do the periodic work that is due after many samples; `seen` is their number."""

    def refreshes_within(self, count: int) -> list[int]:
        """After how many of the next `count` samples a refresh is due; a GPU's position is read only the first time."""
        if self.refresh_interval is None:
            return []
        if self._position is None or is_host_readable(self.seen):
            self._position = int(self.seen)
        due, position = [], self.next_refresh(self._position)
        while position <= self._position + count:
            due.append(position - self._position)
            position = self.next_refresh(position)
        return due

    def count_on_host(self, count: int) -> None:
        """Add to the host's copy of the position."""
        if self._position is not None:
            self._position += count

    def add_state(self, name: str, initial: Initial, *, within: Bound | None = None, per_class: bool = True) -> Tensor:
        """Declare a piece of state: initial value, allowed values, and whether its rows belong to the classes.

        It becomes the attribute of that name; assigning the returned value to it informs type checkers.
        """
        try:
            start = initial(self.classifier, self.parameters, self.model)
        except (RuntimeError, MemoryError) as error:
            if "allocate" not in str(error):
                raise
            raise InvalidParameter(f"{self.name} with these parameters needs more memory than there is") from None
        self._declared[name] = Piece(self, name, initial, per_class, within or usual_bound(start.dtype))
        setattr(self, name, start)
        return start

    def zero_shot(self, samples: Samples) -> ZeroShot:
        """The zero-shot quantities of samples, with the prior if there is one.

        Methods take them only from here.
        """
        front = self._in_front
        if front is None:
            return ZeroShot(self.classifier, samples)
        return front if front.samples is samples else ZeroShot(self.classifier, samples, front.log_prior)

    @classmethod
    def complete(cls, given: Mapping[str, Any], origin: Origin) -> dict[str, Any]:
        """All parameters with their values, checked; a method whose defaults depend on something else overrides it."""
        known = check_all(cls.name, cls.declared, given)
        cls._require_online(known)
        return known

    @classmethod
    def require_parameters(cls, given: Mapping[str, Any]) -> None:
        """Refuse parameters that are wrong for every classifier, before there is one."""
        cls._require_online(check_given(cls.name, cls.declared, given))

    @classmethod
    def _require_online(cls, known: Mapping[str, Any]) -> None:
        if known.get("calibration") == "matched" and cls.scope != "sample":
            raise InvalidParameter(
                f"{cls.name} predicts a whole {cls.scope} at once, so calibration cannot be matched online; "
                'use calibration="fixed"'
            )

    @classmethod
    def needs_with(cls, parameters: Mapping[str, Any]) -> frozenset[str]:
        """The inputs that the method needs with these parameters."""
        return cls.needs

    @classmethod
    def stands_on(cls, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        """The names of other methods that the method with these parameters is built on."""
        return ()

    @classmethod
    def require_model(
        cls, parameters: Mapping[str, Any], classifier: ZeroShotClassifier, model: Model | None
    ) -> Model | None:
        """The model if the method needs one of its towers; a missing model or one of another dimension is refused."""
        towers = " and the ".join(sorted(cls.needs_with(parameters) & TOWERS))
        if not towers:
            return None
        if model is None or not hasattr(model, "image_tower"):
            raise InvalidParameter(
                f"{cls.name} needs the {towers} of a model; give it (--model, model=load_encoder(…))"
            )
        if model.dim != classifier.dim:
            raise InvalidParameter(
                f"the model's features have {model.dim} dimensions but the classifier's anchors have {classifier.dim}; "
                "both must come from the same model"
            )
        return model

    def require(self, samples: Samples) -> None:
        """Refuse samples that lack an input of the method."""
        for missing in sorted(self.needs_with(self.parameters) - TOWERS - samples.provides):
            advice = f"; make them with {_MADE_BY[missing]}" if missing in _MADE_BY else ""
            raise InvalidSamples(f"{self.name} needs {_IN_WORDS.get(missing, missing)}, which are missing{advice}")

    def refined(self, samples: Samples) -> Tensor:
        """The features that the method classifies, B×d; those of the samples, unless it computes its own."""
        return samples.features

    def _answer(self, samples: Samples, *, learn: bool) -> tuple[Tensor, Tensor]:
        """Refined features and logits, for a method on top of this one."""
        return self.refined(samples), self._respond(samples, learn=learn)

    def _contradiction(self, state: Mapping[str, Tensor]) -> str | None:
        """The contradiction between pieces of state that are each within their bounds, if there is one."""
        return None

    def _state_replaced(self) -> None:  # noqa: B027 (most compute nothing from it)
        """State was reset, restored or moved: drop everything computed from it."""

    def _pieces(self) -> Iterator[tuple[str, Piece]]:
        """Every piece of state by name."""
        yield from self._declared.items()

    # -- internals --------------------------------------------------------------------------------------------------

    def _step_and_count(self, samples: Samples) -> Tensor:
        due, parts = self.refreshes_within(len(samples)), []
        for begin, end in pairwise([0, *due, len(samples)]):
            if begin < end:
                parts.append(self._step_stretch(samples[begin:end] if due else samples))
                self.count_on_host(end - begin)
                if end in due:
                    self.refresh_state()
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _step_stretch(self, samples: Samples) -> Tensor:
        logits = self._respond(samples, learn=True)
        self.seen.add_(len(samples))
        return logits

    def _respond(self, samples: Samples, *, learn: bool) -> Tensor:
        """The method's logits, with its prior and its calibration, if it has them."""
        answer = self._step if learn else self._predict
        if not (self._has_prior or self._is_matched):
            return answer(samples)
        front = self._in_front = ZeroShot(self.classifier, samples)
        try:
            if self._has_prior:
                prior = LocalPrior(*(getattr(self, f"local_{name}") for name in _PRIOR))
                front.log_prior = (prior.learn if learn else prior.predict)(front.text_probabilities)
            logits = answer(samples)
        finally:
            self._in_front = None
        return self._calibrated(logits, front, learn=learn) if self._is_matched else logits

    def _calibrated(self, logits: Tensor, front: ZeroShot, *, learn: bool) -> Tensor:
        state = self.calibration_gaps, self.calibration_count
        if learn:
            tau = temperatures_in_order(*state, logits, front.text_probabilities.amax(dim=1))[:, None]
        else:
            tau = temperatures(*state)
        return logits / tau.to(logits.dtype)

    def _parts(self, samples: Samples) -> list[Samples]:
        size = self.max_batch if self.scope == "sample" else None
        return [samples] if size is None or len(samples) <= size else list(samples.batches(size))

    def _answers(self, answer: Callable[[Samples], Tensor], parts: list[Samples]) -> Tensor:
        answers = [answer(part.to(self.classifier.anchors)) for part in parts]
        return answers[0] if len(answers) == 1 else torch.cat(answers)

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
        given = plain_tensor("classes", classes, InvalidParameter).tolist() if isinstance(classes, Tensor) else classes
        rows = plain_list(given)
        if rows is None:
            raise InvalidParameter(f"classes must be a list of class numbers, for example [0, 2], got {shown(classes)}")
        for row in rows:
            if isinstance(row, bool) or not isinstance(row, Integral) or not 0 <= int(row) < self.classifier.classes:
                raise InvalidParameter(
                    f"class {shown(row)} does not exist; classes are 0…{self.classifier.classes - 1}"
                )
        return [int(row) for row in rows]

    @classmethod
    def _rebuilt(cls, snapshot: Snapshot, model: Model | None) -> Self:
        adapter = cls(snapshot.classifier, model=model, **snapshot.parameters)
        adapter._put_checked(snapshot.tensors, "the state")
        return adapter

    def _put_checked(self, tensors: Mapping[str, Tensor], source: str) -> None:
        """Replace the whole state by checked tensors; a refused state changes nothing."""
        own = dict(self._pieces())
        if not isinstance(tensors, Mapping) or set(tensors) != set(own):
            found = sorted(map(str, tensors)) if isinstance(tensors, Mapping) else type(tensors).__name__
            raise StateMismatch(f"{source} holds {found}, but {self.name} keeps {sorted(own)}")
        checked = {name: piece.require(tensors[name], f"{source}: {name}") for name, piece in own.items()}
        contradiction = self._contradiction(checked)
        if contradiction:
            raise StateMismatch(f"{source}: {contradiction}; the state is damaged")
        self._put(checked)

    def _put(self, tensors: Mapping[str, Tensor]) -> None:
        """Replace the whole state by copies of these tensors."""
        moved = {name: tensor.to(self.classifier.anchors.device, copy=True) for name, tensor in tensors.items()}
        for name, piece in self._pieces():
            piece.put(moved[name])
        self._position = None
        self._state_replaced()


def _fresh_prior(name: str, classifier: ZeroShotClassifier, *_: object) -> Tensor:
    return getattr(LocalPrior.fresh(classifier), name)


def require_classifier(classifier: object) -> None:
    """Refuse anything but a ZeroShotClassifier."""
    if not isinstance(classifier, ZeroShotClassifier):
        raise InvalidParameter(f"a method needs a ZeroShotClassifier, not {type(classifier).__name__}")


def _device(name: object) -> torch.device:
    """A device of this machine with memory, by its name."""
    try:
        device = torch.empty(0, device=name).device  # type: ignore[call-overload]
    except Exception as error:  # every kind of device fails in its own way
        raise InvalidParameter(f"there is no device {shown(name)}: {first_line(error)}") from error
    if device.type == "meta":
        raise InvalidParameter("an adapter needs a device with memory, not meta")
    return device

"""Adapter: the interface of every method.

A method declares its parameters (`pta.core.parameters`), each piece of its state (`add_state`) and what it needs
(`needs`) once. Checking, saving, loading, resetting, copying, moving, pickling, counting bytes and comparing follow
from that.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from pta.core.classifier import ZeroShotClassifier
from pta.core.labels import NONE, UNKNOWN, Labels, require_labels
from pta.core.parameters import declared_in, document
from pta.core.plain import plain_tensor
from pta.core.samples import Samples
from pta.core.towers import Model
from pta.door.files import write_atomically
from pta.engines.zero_shot import ZeroShot
from pta.errors import InvalidParameter, InvalidSamples, StateMismatch, shown
from pta.methods.declaration import PROMPTS, TOWERS, Declaration, Origin, refuse_lack, require_model
from pta.methods.offset import offset_of
from pta.methods.stages import GATE_INTERVAL, Stages
from pta.methods.state import Bound, Initial, Pieces, Refreshes, Snapshot, class_numbers, device_named, full
from pta.methods.state_file import Monitored, pack_state


class Adapter(Declaration, ABC):
    """A method that learns from a stream of samples and returns their logits.

    A subclass sets `name`, declares its parameters as attributes and its state in `_declare_state`, and implements
    `_step` and `_predict` on checked samples. By default these get one sample at a time; a method with a fast form for
    batches sets the largest batch in `max_batch`.
    """

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
        known = self.complete(parameters, Origin(classifier, model)) if checked is None else checked
        self.classifier, self.parameters = classifier, dict(known)
        needs = self.needs_with(known)
        self.inputs = needs - TOWERS - PROMPTS
        if needs & PROMPTS and classifier.prompt_features is None:
            refuse_lack(self.name, PROMPTS)
        needed_by = self.name if self._needs_with(known) & TOWERS else f"offset={known['offset']}"
        self.model = require_model(needed_by, needs, classifier, model) if needs & TOWERS else None
        for name, value in known.items():
            setattr(self, name, value)
        self.pieces, self.refreshes = Pieces(), Refreshes(self)
        self.seen = self.add_counter("seen")
        # a method on top of another leaves the prior to that one
        prior = known.get("prior") == "local" and not self.stands_on(known)
        gate, matched = known.get("gate") == "balance", known.get("calibration") == "matched"
        self.stages: Stages | None = None
        if prior or gate or matched:
            self.stages = Stages(self.pieces, self.add_state, prior=prior, gate=gate, matched=matched)
        if gate:
            self.refresh_interval = GATE_INTERVAL
        self.in_front = offset_of(known, classifier, self.model, self.pieces, self.add_state)
        if known["offset"] == "panda-batch":
            self.scope = "batch"
        self._declare_state()

    # -- for users --------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def step(self, samples: object, labels: object = None) -> Tensor:
        """Learn from the samples in order and return their logits, B×C, exactly as one by one.

        Labels are class numbers, −1 where unknown. The answer to a labelled sample is the one without its label; then
        the state learns the label in the place of the zero-shot probabilities. If it fails, nothing was learned.
        """
        batch = self.checked(samples)
        known = None if labels is None else self.checked_labels(labels, len(batch))
        several = known is not None or len(self._parts(batch)) > 1
        saved = self.snapshot() if several or self.may_fail or self.in_front is not None else None
        try:
            parts = self._parts_with_labels(self._shifted(batch, learn=True), known)
            return _joined([self._step_and_refresh(part.to(self.classifier.anchors), label) for part, label in parts])
        except BaseException:
            if saved is not None:
                self._put(saved.tensors)
            raise

    def step_or_answer(self, samples: Samples, labels: Labels) -> Tensor:
        """Step on checked samples; those labelled NONE are answered at their turn and not learned.

        Any method that answers sample by sample takes labels that are NONE or UNKNOWN.
        """
        if not (labels == NONE).any():
            return self._step_or_predict(samples, labels)
        stretches = np.split(np.arange(len(labels)), np.flatnonzero(np.diff(labels == NONE)) + 1)
        parts = [(samples[slice(rows[0], rows[-1] + 1)], labels[rows]) for rows in stretches]
        return _joined([self._step_or_predict(one, told) for one, told in parts])

    @torch.no_grad()
    def step_unchecked(self, features: Tensor) -> Tensor:
        """Step on B×d unit rows without checking them, so that nothing is read back from a GPU."""
        return self._answers(self._step_and_refresh, Samples.unchecked(features), learn=True)

    @torch.no_grad()
    def step_before_refresh(self, samples: Samples) -> Tensor:
        """Step on checked samples before the next refresh; it can be recorded if `_step` can.

        The caller of a recording must refresh when due and count the samples (`refreshes`).
        """
        return self._answers(self._step_and_count, samples, learn=True)

    @torch.no_grad()
    def predict(self, samples: object) -> Tensor:
        """Return the logits of the samples with the current state, without learning."""
        return self._answers(partial(self._respond, learn=False), self.checked(samples), learn=False)

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
        given, classes = plain_tensor("logits", logits, InvalidSamples), self.classifier.classes
        if given.ndim not in (1, 2) or given.shape[-1] != classes:
            raise InvalidSamples(f"logits must be B×{classes}, one column per class, got shape {tuple(given.shape)}")
        if not bool(torch.isfinite(given.double() * self.logit_factor).all()):
            raise InvalidSamples("logits must be finite, some are NaN or Inf")
        return self.probabilities_unchecked(given, raw=raw)

    def probabilities_unchecked(self, logits: Tensor, *, raw: bool = False) -> Tensor:
        """The same for logits of `step` or `predict`, so that nothing is read back from a GPU."""
        return (logits.double() * (1.0 if raw else self.softmax_factor)).softmax(dim=-1)

    @property
    def softmax_factor(self) -> float:
        """What logits are multiplied by before a softmax gives probabilities."""
        return 1.0 if self.stages is not None and self.stages.matched else self.logit_factor

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

    def state(self) -> dict[str, Tensor]:
        """Every declared piece of state by name; the tensors themselves, not copies."""
        return self.pieces.tensors()

    @property
    def state_bytes(self) -> int:
        """The memory of the state in bytes, without the sample counters."""
        counters = "seen", "without_gradient"
        return sum(piece.tensor.nbytes for piece in self.pieces.values() if piece.attribute not in counters)

    def snapshot(self) -> Snapshot:
        """A copy of the state, for `restore`."""
        copies = {name: tensor.clone() for name, tensor in self.state().items()}
        return Snapshot(self.name, self.parameters, self.classifier, copies)

    def restore(self, snapshot: Snapshot) -> None:
        """Restore a snapshot of this adapter, or of one with the same method, parameters and classifier."""
        plain = isinstance(snapshot.method, str) and isinstance(snapshot.parameters, Mapping)
        if not plain or (snapshot.method, snapshot.parameters) != (self.name, self.parameters):
            described = f"{shown(snapshot.method)} with other parameters than this {self.name}"
            raise StateMismatch(f"the snapshot is of {described}")
        theirs, own = snapshot.classifier, self.classifier
        if theirs is not own and getattr(theirs, "fingerprint", None) != own.fingerprint:
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
        return self.of_snapshot, (self.snapshot(), self.model, "the state")

    @classmethod
    def of_snapshot(cls, snapshot: Snapshot, model: Model | None, source: str) -> Self:
        """An adapter with the state of a snapshot, all of which is checked; messages name the source."""
        saved = snapshot.parameters
        known = cls.complete(cls.with_former(saved, saved), Origin(snapshot.classifier, model))
        adapter = cls(snapshot.classifier, model=model, checked=known)
        adapter._put_checked(snapshot.tensors, source)
        return adapter

    def reset(self, classes: Iterable[int] | None = None) -> None:
        """Forget everything, or only what was learned about some classes; the latter keeps the position."""
        self.pieces.reset(None if classes is None else class_numbers(classes, self.classifier.classes))
        self.refreshes.state_replaced()

    def to(self, device: torch.device | str) -> Self:
        """Move classifier and state to a device; samples are moved there automatically."""
        target = device_named(device)
        if target != self.classifier.anchors.device:
            self.pieces.move(self.classifier.to(device=target))
        return self

    def save(
        self, path: str | Path, *, stream: Mapping[str, Any] | None = None, monitor: Monitored | None = None
    ) -> None:
        """Save parameters and state to a safetensors file, atomically.

        `read_stream` and `read_monitor` return what else is given.
        """
        write_atomically(path, self.to_bytes(stream=stream, monitor=monitor))

    def to_bytes(self, *, stream: Mapping[str, Any] | None = None, monitor: Monitored | None = None) -> bytes:
        """The content of the file that `save` writes, for `from_bytes`."""
        parameters = self.without_former(self.parameters)
        snapshot = Snapshot(self.name, parameters, self.classifier, self.state())
        prompts = bool(self.needs_with(self.parameters) & PROMPTS)
        return pack_state(snapshot, self.model, stream, monitor, prompts=prompts)

    # -- for methods ------------------------------------------------------------------------------------------------

    @abstractmethod
    def _step(self, samples: Samples) -> Tensor:
        """Learn the samples in order and return their logits, B×C; `seen` is the position of the first one."""

    def _step_labelled(self, samples: Samples, label: int) -> Tensor:
        """Return the logits that `_step` gives for one sample, 1×C, and learn its label (if `takes_labels`)."""
        raise NotImplementedError

    @abstractmethod
    def _predict(self, samples: Samples) -> Tensor:
        """Return the logits of the samples, B×C, without learning."""

    def refresh_state(self) -> None:
        """Do the periodic work that is due; a method with refreshes of its own adds them."""
        if self.stages is not None:
            self.stages.refresh()

    def contradiction(self, state: Mapping[str, Tensor]) -> str | None:
        """The contradiction between pieces of the method's state, or of its stages' state."""
        around = (one for one in (self.stages, self.in_front) if one is not None)
        return self._contradiction(state) or next(filter(None, (one.contradiction(state) for one in around)), None)

    def _declare_state(self) -> None:
        """Declare the state by `add_state`, and set what else follows from classifier, parameters and model."""

    def add_state(self, name: str, initial: Initial, within: Bound | None = None, *, per_class: bool = True) -> Tensor:
        """Declare a piece of state: initial value, allowed values, and whether its rows belong to the classes.

        It becomes the attribute of that name; assigning the returned value to it informs type checkers.
        """
        self.pieces.declare(self, name, initial, within, per_class=per_class)
        return getattr(self, name)

    def add_counter(self, name: str) -> Tensor:
        """Declare a count of samples."""
        return self.add_state(name, full(0, dtype=torch.int64), per_class=False)

    def zero_shot(self, samples: Samples) -> ZeroShot:
        """The zero-shot quantities of samples, with the prior if there is one.

        Methods take them only from here.
        """
        if self.stages is None:
            return ZeroShot(self.classifier, samples)
        return self.stages.zero_shot(self.classifier, samples)

    def require(self, samples: Samples) -> None:
        """Refuse samples that lack an input of the method."""
        if not self.inputs <= samples.provides:
            refuse_lack(self.name, self.inputs - samples.provides)

    def refined(self, samples: Samples) -> Tensor:
        """The features that the method classifies, B×d; those of the samples, unless it computes its own."""
        return samples.features

    def checked(self, samples: object) -> Samples:
        """Samples of a caller, if the method can classify them."""
        batch = samples if isinstance(samples, Samples) else Samples.of(samples)
        (rows, dim), anchors = batch.features.shape, self.classifier.anchors.shape
        if not rows:
            raise InvalidSamples("no samples: the batch is empty")
        if dim != anchors[1]:
            raise InvalidSamples(
                f"features have {dim} dimensions but the classifier's anchors have {anchors[1]}; "
                "both must come from the same model"
            )
        self.require(batch)
        return batch

    def checked_labels(self, labels: object, count: int) -> Labels:
        """Labels of a caller for so many samples, if the method learns labels."""
        self.require_takes_labels()
        return require_labels(labels, count, self.classifier.classes)

    def _answer(self, samples: Samples, *, learn: bool) -> tuple[Tensor, Tensor]:
        """Refined features and logits, for a method on top of this one."""
        return self.refined(samples), self._respond(samples, learn=learn)

    def _put_checked(self, tensors: Mapping[str, Tensor], source: str) -> None:
        """Replace the whole state by checked tensors; a refused state changes nothing."""
        self._put(self.pieces.require(tensors, source, self.name))

    def _put(self, tensors: Mapping[str, Tensor]) -> None:
        """Replace the whole state by copies of these tensors."""
        self.pieces.put(tensors)
        self.refreshes.state_replaced()

    def put_rows(self, values: Mapping[str, Tensor], rows: Mapping[str, Tensor]) -> None:
        """Replace rows of the state by trusted ones, or whole pieces where there are no row numbers."""
        self.pieces.put_rows(values, rows)
        self.refreshes.state_replaced()

    # -- internals --------------------------------------------------------------------------------------------------

    def _step_or_predict(self, samples: Samples, labels: Labels) -> Tensor:
        if labels[0] == NONE:
            return self.predict(samples)
        return self.step(samples, labels if (labels != UNKNOWN).any() else None)

    def _step_and_refresh(self, samples: Samples, label: int | None = None) -> Tensor:
        if self.refresh_interval is None:
            return self._step_and_count(samples, label)
        return self.refreshes.step(partial(self._step_and_count, label=label), samples)

    def _step_and_count(self, samples: Samples, label: int | None = None) -> Tensor:
        logits = self._respond(samples, learn=True, label=label)
        self.seen.add_(len(samples))
        return logits

    def _respond(self, samples: Samples, *, learn: bool, label: int | None = None) -> Tensor:
        """The method's logits, with its stages, if it has them."""
        answer = self._step if learn else self._predict
        if label is not None:
            answer = partial(self._step_labelled, label=label)
        if self.stages is None:
            return answer(samples)
        return self.stages.around(answer, self.classifier, samples, self.logit_factor, learn=learn)

    def _shifted(self, samples: Samples, *, learn: bool) -> Samples:
        """The samples as the method sees them."""
        if self.in_front is None:
            return samples
        return self.in_front.before(samples.to(self.classifier.anchors), learn=learn)

    def _parts(self, samples: Samples) -> list[Samples]:
        size = self.max_batch if type(self).scope == "sample" else None  # also behind an offset that needs a batch
        return [samples] if size is None or len(samples) <= size else list(samples.batches(size))

    def _parts_with_labels(self, samples: Samples, labels: Labels | None) -> list[tuple[Samples, int | None]]:
        """Samples with a label, each on its own, and the parts of the stretches between them."""
        if labels is None:
            return [(part, None) for part in self._parts(samples)]
        parts: list[tuple[Samples, int | None]] = []
        start = 0
        for row in [*np.flatnonzero(labels != UNKNOWN).tolist(), len(samples)]:
            if start < row:
                parts += [(part, None) for part in self._parts(samples[start:row])]
            if row < len(samples):
                parts.append((samples[row : row + 1], int(labels[row])))
            start = row + 1
        return parts

    def _answers(self, answer: Callable[[Samples], Tensor], samples: Samples, *, learn: bool) -> Tensor:
        parts = self._parts(self._shifted(samples, learn=learn))
        return _joined([answer(part.to(self.classifier.anchors)) for part in parts])


def _joined(answers: list[Tensor]) -> Tensor:
    return answers[0] if len(answers) == 1 else torch.cat(answers)

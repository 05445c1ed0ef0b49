"""From features to what is known without a state, and from logits to answers: columns of B samples, on the host."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, compress, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pta.core.classifier import ZeroShotClassifier
from pta.core.samples import Samples
from pta.engines.gpu.processors import numba_is_installed
from pta.engines.pta.rule import Rule
from pta.engines.pta.step import CompiledStep
from pta.engines.pta.touches import Touches, find_touches
from pta.engines.zero_shot import ZeroShot, entropy_of
from pta.methods import PTA, Adapter
from pta.serve.journal.rows import ANSWER, Answers
from pta.serve.streams.served_model import ServedModel, rule_of

_COLUMNS = "label", "probability", "entropy"


class Scored(NamedTuple):
    """What the classifier alone says of B samples, in columns."""

    features: NDArray[np.float16]  # B×d, as they are written
    unit: NDArray[np.float32]  # B×d, the same at unit length
    zero_shot: NDArray[np.float32]  # B×C, logits
    answers: Answers  # `ANSWER`, of which the columns zero_shot_… are filled
    touches: list[bytes]  # per sample the numbers of the classes it touches
    touch_probabilities: list[bytes]  # and their zero-shot probabilities

    def of(self, rows: slice) -> "Scored":
        """Some of the samples."""
        return Scored._make(column[rows] for column in self)

    def among(self, chosen: NDArray[np.bool_]) -> "Scored":
        """Those of the samples that are chosen."""
        if chosen.all():
            return self
        *columns, touches, probabilities = self
        lists = (list(compress(one, chosen)) for one in (touches, probabilities))
        return Scored._make([*(column[chosen] for column in columns), *lists])

    @staticmethod
    def joined(parts: "Sequence[Scored]") -> "Scored":
        """Several as one."""
        if len(parts) == 1:
            return parts[0]
        *columns, touches, probabilities = zip(*parts, strict=True)
        return Scored._make([*map(np.concatenate, columns), list(chain(*touches)), list(chain(*probabilities))])

    def found(self) -> "_Found":
        """The touches in one piece."""
        begin = np.cumsum([0, *(len(one) // 4 for one in self.touches)])
        classes = np.frombuffer(b"".join(self.touches), "<u4").astype(np.int64)
        return _Found(classes, np.frombuffer(b"".join(self.touch_probabilities), "<f8"), begin)


class Answered(NamedTuple):
    """What the method says of them."""

    logits: Tensor  # B×C
    chances: NDArray[np.floating]  # B×C probabilities
    answers: Answers  # `ANSWER`, as the journal keeps it


def rounded(features: NDArray[np.float32]) -> NDArray[np.float16]:
    """Features at unit length in the precision of the journal, so that what is learned is what is written."""
    return _at_unit_length(features).astype(np.float16)


def samples_from(features: NDArray[np.float16]) -> Samples:
    """The samples that a method learns from what is written."""
    return _samples(_at_unit_length(features.astype(np.float32)))


def score(features: NDArray[np.float16], classifier: ZeroShotClassifier, rule: Rule | None) -> Scored:
    """Zero-shot answers and touches of samples, which need no state; those of a sample depend on that sample alone."""
    unit = _at_unit_length(features.astype(np.float32))
    logits, answers, (classes, probabilities, begin) = _zero_shot(unit, classifier, rule)
    bounds = [*pairwise(begin.tolist())]
    packed, likely = classes.astype("<u4").tobytes(), probabilities.astype("<f8", copy=False).tobytes()
    touches = [packed[4 * start : 4 * end] for start, end in bounds]
    return Scored(features, unit, logits, answers, touches, [likely[8 * start : 8 * end] for start, end in bounds])


class _Found(NamedTuple):
    """The touches of samples, one after another."""

    classes: NDArray[np.int64]
    probabilities: NDArray[np.float64]
    begin: NDArray[np.int64]  # B+1, where those of each sample begin

    @property
    def touches(self) -> Touches:
        order = np.argsort(self.classes, kind="stable")
        samples = np.repeat(np.arange(len(self.begin) - 1), np.diff(self.begin))
        return Touches(samples[order], self.classes[order], self.probabilities[order], len(self.begin) - 1)


def _zero_shot(
    unit: NDArray[np.float32], classifier: ZeroShotClassifier, rule: Rule | None
) -> tuple[NDArray[np.float32], Answers, _Found]:
    """Logits, answers and touches, in float32 whatever the precision of the classifier."""
    if not numba_is_installed():
        return _zero_shot_one_by_one(unit, classifier, rule)
    from pta.engines.numba_scores import describe_zero_shot

    text, answers = classifier.anchors.float().contiguous().numpy(), np.zeros(len(unit), ANSWER)
    logits = np.empty((len(unit), len(text)), np.float32)
    threshold = np.inf if rule is None else rule.threshold
    columns = (answers[f"zero_shot_{name}"] for name in _COLUMNS)
    return (
        logits,
        answers,
        _Found(*describe_zero_shot(unit, text, classifier.scale, classifier.bias, threshold, logits, *columns)),
    )


@torch.no_grad()
def _zero_shot_one_by_one(
    unit: NDArray[np.float32], classifier: ZeroShotClassifier, rule: Rule | None
) -> tuple[NDArray[np.float32], Answers, _Found]:
    """The same without numba."""
    single, touches, answers = classifier.to(dtype=torch.float32), [], np.zeros(len(unit), ANSWER)
    parts = [ZeroShot(single, _samples(row[None])) for row in unit]
    logits = torch.cat([one.logits for one in parts])
    _describe_by_torch(logits, 1.0, answers, "zero_shot_")
    if rule is not None:
        touches = [find_touches(one, one.logits, rule) for one in parts]
    classes, probabilities = (
        np.concatenate([np.empty(0, kind), *(getattr(one, name) for one in touches)])
        for name, kind in (("classes", np.int64), ("probabilities", np.float64))
    )
    counts = [len(one.classes) for one in touches] or [0] * len(unit)
    return logits.numpy(), answers, _Found(classes, probabilities, np.cumsum([0, *counts]))


def answer(adapter: Adapter, scored: Scored, *, learn: bool) -> Answered:
    """The method's answers; `learn` from all samples, in order, or from none."""
    compiled = _compiled(adapter)
    if compiled is None:
        logits = (adapter.step if learn else adapter.predict)(_samples(scored.unit))
    else:
        z = scored.zero_shot.copy()
        if learn:
            compiled.learn(scored.unit, scored.found().touches, z)
        else:
            compiled.add_scores(scored.unit, z)
        logits = torch.from_numpy(z)
    answers = scored.answers.copy()
    return Answered(logits, _describe(logits, adapter.softmax_factor, answers), answers)


@torch.no_grad()
def answer_zero_shot(classifier: ZeroShotClassifier, scored: Scored) -> Answered:
    """Zero-shot's logits and probabilities in the place of the method's."""
    logits = torch.from_numpy(scored.zero_shot)
    return Answered(logits, logits.double().softmax(dim=1).numpy(), scored.answers)


def _compiled(adapter: Adapter) -> CompiledStep | None:
    """What learns by given logits and touches, in their precision, if the method is nothing but PTA's rule."""
    is_scored = isinstance(adapter, PTA) and rule_of(adapter) is not None and adapter.anchored.dtype == torch.float32
    return adapter.compiled if is_scored else None


def _describe(logits: Tensor, factor: float, answers: Answers) -> NDArray[np.floating]:
    """The softmax of logits times a factor, and what answers say of it."""
    if not numba_is_installed():
        return _describe_by_torch(logits, factor, answers, "")
    from pta.engines.numba_scores import describe

    chances = np.empty(logits.shape, np.float32)
    describe(logits.numpy(), factor, chances, *(answers[name] for name in _COLUMNS))
    return chances


def _describe_by_torch(logits: Tensor, factor: float, answers: Answers, of: str) -> NDArray[np.floating]:
    spread = (logits.double() * factor).softmax(dim=1)
    chances = spread.numpy()
    answers[f"{of}label"] = labels = logits.numpy().argmax(axis=1)
    answers[f"{of}probability"] = chances[np.arange(len(labels)), labels]
    answers[f"{of}entropy"] = entropy_of(spread).numpy()
    return chances


def warm_up(adapter: Adapter) -> None:
    """Compile what is compiled at the first sample and at the first batch, so that no request waits for it."""
    anchors = adapter.classifier.anchors[:2].float().numpy()
    for count in (1, 2):
        answer(adapter, score(rounded(anchors[:count]), adapter.classifier, rule_of(adapter)), learn=True)
    adapter.reset()


def _samples(unit: NDArray[np.float32]) -> Samples:
    return Samples.unchecked(torch.from_numpy(unit).clone())  # into torch's memory, whose alignment decides last bits


def _at_unit_length(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return rows / np.sqrt(np.square(rows).sum(axis=1, keepdims=True))


@dataclass
class StreamState:
    """An adapter, the touches of what it learned, and the last row that it covers."""

    adapter: Adapter
    touches: NDArray[np.int64]  # C
    sequence: int
    saved_in: Path | None = None  # the snapshot that it was read from

    @classmethod
    def fresh(cls, served: ServedModel) -> "StreamState":
        """Before the first row."""
        return cls(served.fresh(), np.zeros(served.classifier.classes, np.int64), 0)

    def learn(self, scored: Scored, sequence: int) -> Answered:
        """Learn the samples of a group up to a row, and answer them."""
        answered = answer(self.adapter, scored, learn=True)
        self._cover(scored.touches, sequence)
        return answered

    def learn_again(
        self,
        features: NDArray[np.float16],
        touches: Sequence[bytes],
        sequence: int,
        labels: NDArray[np.int64] | None = None,
    ) -> None:
        """The same without answers and perhaps with labels: else the bits of the state are those that `learn` gave it.

        A sample with a label touches that class alone.
        """
        rule, compiled = rule_of(self.adapter), _compiled(self.adapter)
        if compiled is None:
            known = None if labels is None else torch.from_numpy(labels)
            self.adapter.step(samples_from(features), known)
        else:
            unit = _at_unit_length(features.astype(np.float32))
            found = _zero_shot(unit, self.adapter.classifier, rule)[2].touches
            compiled.learn(unit, found if labels is None else found.with_labels(labels, self.adapter.label_weight))
        if labels is not None and rule is not None:
            own = [label.to_bytes(4, "little") if label >= 0 else b"" for label in labels.tolist()]
            touches = [label or theirs for label, theirs in zip(own, touches, strict=True)]
        self._cover(touches, sequence)

    def _cover(self, touches: Sequence[bytes], sequence: int) -> None:
        """Count the touches of samples per class, up to a row."""
        np.add.at(self.touches, np.frombuffer(b"".join(touches), "<u4"), 1)
        self.sequence = sequence

    def reset(self, classes: Sequence[int] | None) -> None:
        """Forget everything, or what was learned about some classes."""
        self.adapter.reset(classes)
        self.touches[slice(None) if classes is None else list(classes)] = 0

    def copy(self) -> "StreamState":
        """An independent copy."""
        return replace(self, adapter=self.adapter.clone(), touches=self.touches.copy())

"""From features to what is known without a state, and from logits to answers: columns of B samples, on the host."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pta.core.classifier import ZeroShotClassifier
from pta.core.samples import Samples
from pta.engines.pta.rule import Rule
from pta.engines.pta.step import CompiledStep
from pta.engines.sample_scores import Columns, SampleTouches, describe_logits, score_samples
from pta.methods import Adapter
from pta.methods.classes import take_state
from pta.methods.pta import PTA
from pta.serve.journal.rows import ANSWER, Answers
from pta.serve.streams.served_model import ServedModel, rule_of


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

    def take(self, rows: NDArray[np.int64]) -> "Scored":
        """Those of the samples, in order; without a copy where they lie side by side."""
        first, last = int(rows[0]), int(rows[-1])
        if last - first + 1 == len(rows):
            return self if len(rows) == len(self.answers) else self.of(slice(first, last + 1))
        columns = (column[rows] for column in (self.features, self.unit, self.zero_shot, self.answers))
        lists = ([one[row] for row in rows.tolist()] for one in (self.touches, self.touch_probabilities))
        return Scored._make([*columns, *lists])

    def found(self) -> SampleTouches:
        """All touches."""
        begin = np.cumsum([0, *(len(one) // 4 for one in self.touches)])
        classes = np.frombuffer(b"".join(self.touches), "<u4").astype(np.int64)
        return SampleTouches(classes, np.frombuffer(b"".join(self.touch_probabilities)), begin)


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
    """Zero-shot answers and touches of samples, which need no state; those of a sample depend on that sample alone.

    The rule is `rule_of` the adapter that learns them.
    """
    unit, answers = _at_unit_length(features.astype(np.float32)), np.zeros(len(features), ANSWER)
    logits, found = score_samples(unit, classifier, rule, _columns(answers, "zero_shot_"))
    begin = found.begin.tolist()
    touches = _of_each(found.classes.astype("<u4"), begin), _of_each(found.probabilities, begin)
    return Scored(features, unit, logits, answers, *touches)


def _of_each(numbers: NDArray[np.generic], begin: Sequence[int]) -> list[bytes]:
    packed, size = numbers.tobytes(), numbers.itemsize
    return [packed[size * first : size * end] for first, end in pairwise(begin)]


def answer(adapter: Adapter, scored: Scored, *, learn: bool) -> Answered:
    """The method's answers; `learn` from all samples, in order, or from none."""
    compiled = _compiled(adapter)
    if compiled is None:
        logits = (adapter.step if learn else adapter.predict)(_samples(scored.unit))
    else:
        z = scored.zero_shot.copy()
        if learn:
            compiled.learn(scored.unit, scored.found().by_class, z)
        else:
            compiled.add_scores(scored.unit, z)
        logits = torch.from_numpy(z)
    answers = scored.answers.copy()
    return Answered(logits, describe_logits(logits, adapter.softmax_factor, _columns(answers)), answers)


def answer_zero_shot(classifier: ZeroShotClassifier, scored: Scored) -> Answered:
    """Zero-shot's logits and probabilities in the place of the method's."""
    logits, unused = torch.from_numpy(scored.zero_shot), np.empty(len(scored.answers), ANSWER)
    return Answered(logits, describe_logits(logits, 1.0, _columns(unused)), scored.answers)


def warm_up(adapter: Adapter) -> None:
    """Compile what is compiled at the first sample and at the first batch, so that no request waits for it."""
    anchors = adapter.classifier.anchors[:2].float().numpy()
    for count in (1, 2):
        answer(adapter, score(rounded(anchors[:count]), adapter.classifier, rule_of(adapter)), learn=True)
    adapter.reset()


def _columns(answers: Answers, of: str = "") -> Columns:
    return answers[f"{of}label"], answers[f"{of}probability"], answers[f"{of}entropy"]


def _compiled(adapter: Adapter) -> CompiledStep | None:
    """What learns by given logits and touches, in their precision, if the method is nothing but PTA's rule."""
    if not isinstance(adapter, PTA) or rule_of(adapter) is None or adapter.anchored.dtype != torch.float32:
        return None
    return adapter.compiled


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
    unsaved: int = 0  # samples that were learned since
    unsaved_seconds: float = 0.0  # of processor time that replaying them takes

    @classmethod
    def fresh(cls, served: ServedModel) -> "StreamState":
        """Before the first row."""
        return cls(served.adapters.new(), np.zeros(served.classifier.classes, np.int64), 0)

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
            unused = _columns(np.empty(len(unit), ANSWER))
            found = score_samples(unit, self.adapter.classifier, rule, unused)[1].by_class
            compiled.learn(
                unit, found if labels is None else found.with_labels(labels, self.adapter.parameters["label_weight"])
            )
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

    def grow(self, served: ServedModel) -> None:
        """Go on with more classes."""
        grown = served.adapters.new()
        take_state(grown, self.adapter)
        self.adapter, added = grown, served.classifier.classes - len(self.touches)
        self.touches = np.append(self.touches, np.zeros(added, np.int64))

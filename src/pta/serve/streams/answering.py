"""From features to what is known without a state, and from logits to answers: columns of B samples, on the host."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, compress, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pta.core.classifier import ZeroShotClassifier
from pta.core.samples import Samples
from pta.engines.pta.rule import DOUBT, Rule
from pta.engines.pta.touches import find_touches
from pta.engines.zero_shot import ZeroShot, entropy_of
from pta.methods import Adapter
from pta.methods.classes import take_state
from pta.serve.journal.rows import ANSWER, Answers
from pta.serve.streams.served_model import ServedModel, rule_of


class Scored(NamedTuple):
    """What the classifier alone says of B samples, in columns."""

    features: NDArray[np.float16]  # B×d, as they are written
    unit: NDArray[np.float32]  # B×d, the same at unit length
    zero_shot: NDArray[np.float32]  # B×C, logits
    answers: Answers  # `ANSWER`, of which the columns zero_shot_… are filled
    touches: list[bytes]  # per sample the numbers of the classes it touches

    def of(self, rows: slice) -> "Scored":
        """Some of the samples."""
        return Scored._make(column[rows] for column in self)

    def among(self, chosen: NDArray[np.bool_]) -> "Scored":
        """Those of the samples that are chosen."""
        if chosen.all():
            return self
        columns = (column[chosen] for column in (self.features, self.unit, self.zero_shot, self.answers))
        return Scored._make([*columns, list(compress(self.touches, chosen))])

    @staticmethod
    def joined(parts: "Sequence[Scored]") -> "Scored":
        """Several as one."""
        if len(parts) == 1:
            return parts[0]
        *columns, touches = zip(*parts, strict=True)
        return Scored._make([*map(np.concatenate, columns), list(chain(*touches))])


class Answered(NamedTuple):
    """What the method says of them."""

    logits: Tensor  # B×C
    chances: NDArray[np.float64]  # B×C probabilities
    answers: Answers  # `ANSWER`, as the journal keeps it


def rounded(features: NDArray[np.float32]) -> NDArray[np.float16]:
    """Features at unit length in the precision of the journal, so that what is learned is what is written."""
    return _at_unit_length(features).astype(np.float16)


def samples_from(features: NDArray[np.float16]) -> Samples:
    """The samples that a method learns from what is written."""
    return _samples(_at_unit_length(features.astype(np.float32)))


@torch.no_grad()
def score(features: NDArray[np.float16], classifier: ZeroShotClassifier, rule: Rule | None) -> Scored:
    """Zero-shot answers and touches of samples, which need no state."""
    unit = _at_unit_length(features.astype(np.float32))
    zero_shot = ZeroShot(classifier, Samples.unchecked(torch.from_numpy(unit).to(classifier.anchors)))
    logits = zero_shot.logits.float().numpy()
    labels = logits.argmax(axis=1)
    z = logits - logits[np.arange(len(labels)), labels][:, None]
    weights = np.exp(z)
    total = weights.sum(axis=1)
    answers = np.zeros(len(z), ANSWER)
    answers["zero_shot_label"] = labels
    answers["zero_shot_probability"] = 1 / total
    answers["zero_shot_entropy"] = np.log(total) - np.einsum("bc,bc->b", weights, z) / total
    if rule is None:
        return Scored(features, unit, logits, answers, [b""] * len(z))
    samples, classes = (weights >= (rule.threshold * (1 - DOUBT)) * total[:, None]).nonzero()
    if (weights[samples, classes] <= (rule.threshold * (1 + DOUBT)) * total[samples]).any():  # float64 decides
        found = find_touches(zero_shot, zero_shot.logits, rule)
        order = np.argsort(found.samples, kind="stable")
        samples = found.samples[order]
        classes = found.classes[order]
    packed = classes.astype("<u4").tobytes()
    if len(z) == 1:
        return Scored(features, unit, logits, answers, [packed])
    ends = (4 * np.searchsorted(samples, np.arange(len(z) + 1))).tolist()
    return Scored(features, unit, logits, answers, [packed[start:end] for start, end in pairwise(ends)])


def answer(adapter: Adapter, scored: Scored, *, learn: bool) -> Answered:
    """The method's answers; `learn` from all samples, in order, or from none."""
    logits = (adapter.step if learn else adapter.predict)(_samples(scored.unit))
    spread = adapter.probabilities_unchecked(logits)
    chances, answers = spread.numpy(), scored.answers.copy()
    answers["label"] = labels = logits.numpy().argmax(axis=1)
    answers["probability"] = chances[np.arange(len(labels)), labels]
    answers["entropy"] = entropy_of(spread).numpy()
    return Answered(logits, chances, answers)


@torch.no_grad()
def answer_zero_shot(classifier: ZeroShotClassifier, scored: Scored) -> Answered:
    """Zero-shot's logits and probabilities in the place of the method's."""
    logits = ZeroShot(classifier, _samples(scored.unit).to(classifier.anchors)).logits
    return Answered(logits, logits.double().softmax(dim=1).numpy(), scored.answers)


def warm_up(adapter: Adapter) -> None:
    """Compile what is compiled at the first sample and at the first batch, so that no request waits for it."""
    anchors = adapter.classifier.anchors[:2].float().numpy()
    for count in (1, 2):
        answer(adapter, score(rounded(anchors[:count]), adapter.classifier, rule_of(adapter)), learn=True)
    adapter.reset()


def _samples(unit: NDArray[np.float32]) -> Samples:
    return Samples.unchecked(torch.from_numpy(unit).clone())  # into torch's memory, whose alignment decides last bits


def _at_unit_length(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return rows / np.sqrt(np.einsum("bd,bd->b", rows, rows))[:, None]


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
        if labels is None:
            self.adapter.step(samples_from(features))
        else:
            self.adapter.step(samples_from(features), torch.from_numpy(labels))
            if rule_of(self.adapter) is not None:
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

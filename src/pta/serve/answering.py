"""From features to what is known without a state, and from logits to answers: columns of B samples, on the host."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pta.adapters import Adapter
from pta.classifier import ZeroShotClassifier
from pta.engines import Rule
from pta.engines.touches import find_touches
from pta.engines.zero_shot import ZeroShot, entropy_of
from pta.samples import Samples
from pta.serve.touch_table import TouchTable


@dataclass(frozen=True)
class Scored:
    """What the classifier alone says of B samples."""

    features: NDArray[np.float16]  # B×d, of unit length before they were rounded
    labels: NDArray[np.int64]
    probabilities: NDArray[np.float32]
    entropies: NDArray[np.float32]
    touches: TouchTable

    def of(self, rows: slice) -> "Scored":
        """Some of the samples."""
        columns = self.features, self.labels, self.probabilities, self.entropies
        return Scored(*(column[rows] for column in columns), self.touches.of(rows))

    @staticmethod
    def joined(parts: "list[Scored]") -> "Scored":
        """Several as one."""
        if len(parts) == 1:
            return parts[0]
        names = ("features", "labels", "probabilities", "entropies")
        columns = (np.concatenate([getattr(part, name) for part in parts]) for name in names)
        counts, classes = (np.concatenate([getattr(p.touches, name) for p in parts]) for name in ("counts", "classes"))
        return Scored(*columns, TouchTable(counts, classes))


@dataclass(frozen=True)
class Answered:
    """What the method says of them."""

    scored: Scored
    logits: Tensor  # B×C
    spread: Tensor  # B×C probabilities, float64
    labels: NDArray[np.int64]
    probabilities: NDArray[np.float32]
    entropies: NDArray[np.float32]

    @property
    def total(self) -> NDArray[np.float64]:
        """The sum of the probabilities over the samples, C."""
        return self.spread.sum(dim=0).numpy()


def rounded(features: NDArray[np.float32]) -> NDArray[np.float16]:
    """Features at unit length in the precision of the journal, so that what is learned is what is written."""
    return (features / np.linalg.norm(features, axis=1, keepdims=True)).astype(np.float16)


def samples_from(features: NDArray[np.float16]) -> Samples:
    """The samples that a method learns from what is written."""
    return Samples.of(torch.from_numpy(features.astype(np.float32)))


@torch.no_grad()
def score(features: NDArray[np.float16], classifier: ZeroShotClassifier, rule: Rule | None) -> Scored:
    """Zero-shot answers and touches of samples, which need no state."""
    zero_shot = ZeroShot(classifier, samples_from(features).to(classifier.anchors))
    spread = zero_shot.logits.softmax(dim=1)
    best = spread.max(dim=1)
    touches = TouchTable.none(len(features)) if rule is None else TouchTable.from_touches(find_touches(zero_shot, rule))
    entropies = entropy_of(spread).float().numpy()
    return Scored(features, best.indices.numpy(), best.values.float().numpy(), entropies, touches)


def answer(adapter: Adapter, scored: Scored, *, learn: bool) -> Answered:
    """The method's answers; `learn` from all samples, in order, or from none."""
    logits = (adapter.step if learn else adapter.predict)(samples_from(scored.features))
    return answered(adapter, scored, logits)


def answered(adapter: Adapter, scored: Scored, logits: Tensor) -> Answered:
    """The answers that logits are."""
    spread = adapter.probabilities(logits)
    labels = logits.argmax(dim=1)
    chosen = spread.gather(1, labels[:, None])[:, 0].float().numpy()
    return Answered(scored, logits, spread, labels.numpy(), chosen, entropy_of(spread).float().numpy())

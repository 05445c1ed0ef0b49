"""StreamState: what rows of the journal taught, and up to which row."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pta.methods import Adapter
from pta.serve.streams.answering import Answered, Scored, add_touches, answer, samples_from
from pta.serve.streams.served import Served


@dataclass
class StreamState:
    """An adapter, the touches of what it learned, and the last row that it covers."""

    adapter: Adapter
    touches: NDArray[np.int64]  # C
    sequence: int

    @classmethod
    def fresh(cls, served: Served) -> "StreamState":
        """Before the first row."""
        return cls(served.fresh(), np.zeros(served.classifier.classes, np.int64), 0)

    def learn(self, scored: Scored, sequence: int) -> Answered:
        """Learn the samples of a group up to a row, and answer them."""
        answered = answer(self.adapter, scored, learn=True)
        add_touches(self.touches, scored.touches)
        self.sequence = sequence
        return answered

    def learn_again(self, features: NDArray[np.float16], touches: Sequence[bytes], sequence: int) -> None:
        """The same without answers: the bits of the state are those that `learn` gave it."""
        self.adapter.step(samples_from(features))
        add_touches(self.touches, touches)
        self.sequence = sequence

    def reset(self, classes: Sequence[int] | None) -> None:
        """Forget everything, or what was learned about some classes."""
        self.adapter.reset(classes)
        self.touches[slice(None) if classes is None else list(classes)] = 0

    def copy(self) -> "StreamState":
        """An independent copy."""
        return replace(self, adapter=self.adapter.clone(), touches=self.touches.copy())

"""Answers: labels and probabilities from logits."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import overload

import torch
from torch import Tensor

from pta.engines.zero_shot import entropy_of
from pta.run.gpu.downloads import Download


@dataclass(frozen=True)
class Answer:
    """The prediction for one sample: class and probability, after adaptation and zero-shot."""

    label: str
    probability: float
    zero_shot_label: str
    zero_shot_probability: float
    entropy: float  # of the probabilities after adaptation, in nats; 0 is certain
    top: tuple[tuple[str, float], ...]  # the most probable classes, best first, with their probabilities
    rejected: bool = False  # the probability is below `reject_below`: the sample may belong to none of the classes

    @property
    def changed(self) -> bool:
        """Whether adaptation changed the label."""
        return self.label != self.zero_shot_label


class Answers(Sequence[Answer]):
    """The answers for B samples. They may still be on their way from a GPU; reading one waits for them.

    Args:
        numbers: B×(2·k + 3), float64: the k best classes, their probabilities, the zero-shot class, its probability,
            the entropy.
        reject_below: answers with a lower probability are rejected; None to reject none.
    """

    def __init__(self, numbers: Tensor, class_names: Sequence[str], reject_below: float | None = None) -> None:
        self._count, self._top = len(numbers), (numbers.shape[1] - 3) // 2
        self._download = Download(numbers)
        self._class_names, self._reject_below = class_names, reject_below

    @property
    def arrived(self) -> bool:
        """Whether they can be read without waiting."""
        return self._download.arrived

    @cached_property
    def _columns(self) -> list[list[float]]:
        return self._download.wait().T.tolist()

    @cached_property
    def labels(self) -> list[list[str]]:
        """The names of the best classes, of the second best and so on, B each."""
        return [self._names(column) for column in self._columns[: self._top]]

    @property
    def probabilities(self) -> list[list[float]]:
        """Their probabilities, B each."""
        return self._columns[self._top : 2 * self._top]

    @cached_property
    def zero_shot_labels(self) -> list[str]:
        """The zero-shot labels."""
        return self._names(self._columns[-3])

    @property
    def zero_shot_probabilities(self) -> list[float]:
        """The zero-shot probabilities of these labels."""
        return self._columns[-2]

    @property
    def entropies(self) -> list[float]:
        """The entropy of the probabilities after adaptation, in nats."""
        return self._columns[-1]

    @cached_property
    def rejected(self) -> list[bool] | None:
        """Whether each answer is below `reject_below`; None without that limit."""
        least = self._reject_below
        return None if least is None else [probability < least for probability in self.probabilities[0]]

    @property
    def changed(self) -> int:
        """How many answers adaptation changed."""
        return sum(map(str.__ne__, self.labels[0], self.zero_shot_labels))

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, row: int) -> Answer: ...

    @overload
    def __getitem__(self, row: slice) -> list[Answer]: ...

    def __getitem__(self, row: int | slice) -> Answer | list[Answer]:
        if isinstance(row, slice):
            return [self[number] for number in range(*row.indices(len(self)))]
        ranked = tuple((names[row], values[row]) for names, values in zip(self.labels, self.probabilities, strict=True))
        zero_shot = (self.zero_shot_labels[row], self.zero_shot_probabilities[row])
        rejected = self.rejected is not None and self.rejected[row]
        return Answer(*ranked[0], *zero_shot, self.entropies[row], ranked, rejected)

    def _names(self, column: list[float]) -> list[str]:
        return [self._class_names[int(number)] for number in column]


def answers_from(
    logits: Tensor,
    probabilities: Tensor,
    zero_shot: Tensor,
    class_names: Sequence[str],
    top: int = 1,
    reject_below: float | None = None,
) -> Answers:
    """One answer per row of the adapted logits, their probabilities and the zero-shot logits, all B×C.

    Logits rank the classes, so that probabilities that round to the same number change no label. All is computed on
    the device of the logits, and copied to the host once.
    """
    best = logits.topk(min(top, len(class_names)), dim=1).indices
    alone = zero_shot.double().softmax(dim=1).max(dim=1)
    columns = (alone.indices, alone.values, entropy_of(probabilities))
    parts = (best, probabilities.gather(1, best), *(column[:, None] for column in columns))
    return Answers(torch.cat([part.double() for part in parts], dim=1), class_names, reject_below)

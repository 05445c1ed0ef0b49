"""Logits to answers that a person or a table can use."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from pta.engines.zero_shot import entropy_of


@dataclass(frozen=True)
class Answer:
    """What a sample is: the class and its probability, after adaptation and by the model alone."""

    label: str
    probability: float
    zero_shot_label: str
    zero_shot_probability: float
    entropy: float  # of the probabilities after adaptation, in nats; 0 is certain
    top: tuple[tuple[str, float], ...]  # the most probable classes, best first, with their probabilities

    @property
    def changed(self) -> bool:
        """Whether adaptation changed the answer."""
        return self.label != self.zero_shot_label


def answers_from(
    logits: Tensor, probabilities: Tensor, zero_shot: Tensor, class_names: Sequence[str], top: int = 1
) -> list[Answer]:
    """One answer per row of the adapted logits, their probabilities and the zero-shot logits, all B×C.

    Logits rank the classes, so that two probabilities that round to the same number change no label.
    """
    entropies = entropy_of(probabilities)
    best = logits.topk(min(top, len(class_names)), dim=1).indices
    alone = zero_shot.double().softmax(dim=1).max(dim=1)
    columns = [one.tolist() for one in (best, probabilities.gather(1, best), alone.indices, alone.values, entropies)]
    answers = []
    for classes, values, zero_shot_class, zero_shot_value, entropy in zip(*columns, strict=True):
        ranked = tuple((class_names[number], value) for number, value in zip(classes, values, strict=True))
        answers.append(Answer(*ranked[0], class_names[zero_shot_class], zero_shot_value, entropy, ranked))
    return answers

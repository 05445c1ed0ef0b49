"""Logits to answers that a person or a table can use."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Answer:
    """What a sample is.

    Attributes:
        label: the class, after adaptation.
        probability: of that class, after adaptation.
        zero_shot_label: what the model alone says.
        zero_shot_probability: how sure the model alone is of that.
        entropy: of the adapted probabilities, in nats; 0 is certain.
        top: the most probable classes, best first, with their probabilities.
    """

    label: str
    probability: float
    zero_shot_label: str
    zero_shot_probability: float
    entropy: float
    top: tuple[tuple[str, float], ...]

    @property
    def changed(self) -> bool:
        """Whether adaptation changed the answer."""
        return self.label != self.zero_shot_label


def answers_from(logits: Tensor, zero_shot: Tensor, class_names: Sequence[str], top: int = 1) -> list[Answer]:
    """One answer per row of the adapted and the zero-shot logits, both B×C."""
    probabilities = logits.double().softmax(dim=1)
    entropies = -(probabilities * probabilities.clamp_min(1e-300).log()).sum(dim=1)
    best = probabilities.topk(min(top, len(class_names)), dim=1)
    alone = zero_shot.double().softmax(dim=1).max(dim=1)
    rows = zip(
        *(best.values.tolist(), best.indices.tolist(), alone.values.tolist(), alone.indices.tolist()),
        entropies.tolist(),
        strict=True,
    )
    return [
        Answer(
            label=class_names[classes[0]],
            probability=values[0],
            zero_shot_label=class_names[zero_shot_class],
            zero_shot_probability=zero_shot_value,
            entropy=max(entropy, 0.0),
            top=tuple((class_names[number], value) for number, value in zip(classes, values, strict=True)),
        )
        for values, classes, zero_shot_value, zero_shot_class, entropy in rows
    ]

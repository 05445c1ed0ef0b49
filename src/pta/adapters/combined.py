"""PTA on top of another method, as in the rows "+TDA", "+MTA" and "+GS-Bias" of the paper (ICML 2026).

The loop: `pta.reference.combined`.

The paper reports such rows, but neither says how the two are joined nor released a program for them. This is our rule:

For each sample:
1. The other method learns from it and answers: its feature f (the sample's own, or the mode that MTA finds) and its
   logits l.
2. PTA learns from f, with the other method's probabilities softmax(l) in the place of the zero-shot ones: every class
   with softmax(l)_c ≥ min_probability moves its knowledge prototype, every class refreshes its anchored prototype R.
3. Score: l + scale·R·f.

Whether a class reaches min_probability is read from l as it comes; PTA alone takes a second look near the threshold.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Self

import torch
from torch import Tensor

from pta.adapters.adapter import adapter_class, create_adapter, register
from pta.adapters.pta import PTA
from pta.classifier import ZeroShotClassifier
from pta.engines.segment import Segment
from pta.errors import InvalidParameter
from pta.samples import Samples

_OF_BASE = "base."  # the other method's state is kept under its own names after this


@register
class Combined(PTA):
    """PTA on top of another method (our rule: the paper's is not published).

    Args:
        classifier: the zero-shot classifier of both.
        base: the name of the other method, which must answer sample by sample from features or views.
        base_parameters: its parameters.
        h, w, min_probability: those of PTA.

    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"])
    >>> Combined(classifier, base="clip").step([[0.8, 0.6], [0.9, 0.1]]).argmax(dim=1)
    tensor([0, 0])
    """

    name = "combined"

    def __init__(
        self,
        classifier: ZeroShotClassifier,
        *,
        base: str = "tda",
        base_parameters: Mapping[str, Any] | None = None,
        h: float = 20.0,
        w: float = 0.01,
        min_probability: float = 0.1,
    ) -> None:
        super().__init__(classifier, h=h, w=w, min_probability=min_probability)
        if not isinstance(base, str) or not isinstance(base_parameters, Mapping | None):
            raise InvalidParameter(
                f"base must be a name and base_parameters a mapping, got {base!r}, {base_parameters!r}"
            )
        if (method := adapter_class(base)).scope != "sample" or issubclass(method, PTA) or "pixels" in method.needs:
            raise InvalidParameter(
                f"PTA cannot stand on {base}: only on another method that answers from features or views"
            )
        self.base = create_adapter(base, self.classifier, **dict(base_parameters or {}))
        self.needs, self.at_once = self.base.needs, self.base.at_once
        self.parameters = {
            "base": base,
            "base_parameters": self.base.parameters,
            "h": self.rule.h,
            "w": self.rule.w,
            "min_probability": self.rule.min_probability,
        }

    @property
    def recordable(self) -> bool:
        """Whether both methods are."""
        return super().recordable and self.base.recordable

    def _step(self, samples: Samples) -> Tensor:
        f, logits = self.base._answer(samples, learn=True)
        return self._learn_and_score(f, logits, logits.double().softmax(dim=1))

    def _predict(self, samples: Samples) -> Tensor:
        return self._score(*self.base._answer(samples, learn=False))

    def summarise(self, samples: object) -> Segment:
        """Not possible: what is learnt depends on the other method's state."""
        raise InvalidParameter(
            f"{self.name} cannot be summarised: what it learns depends on what {self.base.name} has learnt"
        )

    def apply(self, segment: Segment) -> None:
        """Not possible: a segment holds nothing for the other method."""
        raise InvalidParameter(f"{self.name} cannot apply a segment: it holds nothing for {self.base.name}")

    def reset(self, classes: Iterable[int] | None = None) -> None:
        """Forget everything, or only what was learnt about some classes, in both methods."""
        chosen = None if classes is None else list(classes)
        super().reset(chosen)
        self.base.reset(chosen)

    def to(self, device: torch.device | str) -> Self:
        """Move both methods to a device."""
        self.base.to(device)
        return super().to(device)

    def state(self) -> dict[str, Tensor]:
        """Every piece of state of both methods by name."""
        return super().state() | {f"{_OF_BASE}{name}": tensor for name, tensor in self.base.state().items()}

    def _replace(self, name: str, tensor: Tensor) -> None:
        if name.startswith(_OF_BASE):
            self.base._replace(name.removeprefix(_OF_BASE), tensor)
        else:
            super()._replace(name, tensor)

    def _state_replaced(self) -> None:
        self.base._state_replaced()

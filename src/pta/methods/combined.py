"""PTA on top of another method, as in the rows "+TDA", "+MTA" and "+GS-Bias" of the paper (ICML 2026).

The paper reports such rows, but neither says how the two are joined nor released a program for them. This is our rule:

For each sample:
1. The other method learns from it and answers: its feature f (that of the plain image, or the mode that MTA finds) and
   its logits l.
2. PTA learns from f, with the other method's probabilities softmax(l) in the place of the zero-shot ones: every class
   with softmax(l)_c ≥ min_probability moves its knowledge prototype, every class refreshes its anchored prototype R.
3. Score: l + scale·R·f.

Whether a class reaches min_probability is read from l as it comes; PTA alone takes a second look near the threshold.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from pta.core.classifier import ZeroShotClassifier
from pta.core.parameters import parameter, require_mapping
from pta.core.samples import Samples
from pta.engines.pta.advance import touches_of_probabilities
from pta.engines.segments.segment import Segment
from pta.errors import InvalidParameter, shown
from pta.methods.declaration import Origin
from pta.methods.pta import PTA
from pta.methods.registry import adapter_class
from pta.methods.state import class_numbers


def _name(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidParameter(f"{name} must be the name of a method, got {shown(value)}")
    method = adapter_class(value)
    if method.scope != "sample" or issubclass(method, PTA) or "raw" in method.needs:
        raise InvalidParameter(
            f"the base of combined cannot be {value}: only another method that uses features, views or patches"
        )
    return value


class Combined(PTA):
    """PTA on top of another method (our rule: the paper's is not published).

    The loop: `pta.reference.combined.combined_loop`.

    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"])
    >>> Combined(classifier, base="clip").step([[0.8, 0.6], [0.9, 0.1]]).argmax(dim=1)
    tensor([0, 0])
    """

    name = "combined"
    base: str = parameter("tda", _name, "a method that predicts from features, views or patches", "the other method")
    base_parameters: Mapping[str, Any] = parameter({}, require_mapping, "a mapping", "parameters of the other method")
    variant = "released"
    anchor = "recursive"
    fusion = "logits"
    order = "update-first"
    weight = "saturating"
    renormalise = True
    gate = "none"
    takes_labels = False
    label_weight = 1.0

    def __init__(self, classifier: ZeroShotClassifier, **given: Any) -> None:
        super().__init__(classifier, **given)
        base, model = adapter_class(self.base), given.get("model")
        self.other = base(self.classifier, model=model, checked=self.base_parameters)
        self.pieces |= {f"base.{name}": piece for name, piece in self.other.pieces.items()}
        self.max_batch, self.may_fail = self.other.max_batch, self.other.may_fail
        self.wants_preview, self.refresh_interval = self.other.wants_preview, self.other.refresh_interval

    @classmethod
    def complete(cls, given: Mapping[str, Any], origin: Origin) -> dict[str, Any]:
        """All parameters, those of the other method included; the prior is in front of that, calibration behind PTA.

        Unless a prior is given, it is the other method's default.
        """
        known = super().complete(given, origin)
        base, of_base = adapter_class(known["base"]), known["base_parameters"]
        if "prior" in base.declared and "prior" not in given:
            known["prior"] = base.declared["prior"].default
        around = {"calibration": "fixed"}
        if "prior" in base.declared or known["prior"] != "none":
            around["prior"] = known["prior"]
        for name, value in around.items():
            if of_base.get(name, value) != value:
                raise InvalidParameter(f"{name} is a parameter of combined itself, not of its base method")
        known["base_parameters"] = base.complete(of_base | around, origin)
        return known

    @classmethod
    def with_former(cls, given: Mapping[str, Any], saved: Mapping[str, Any]) -> dict[str, Any]:
        """The given parameters, and those that older ones lack, those of the other method included."""
        both = (require_mapping("base_parameters", one.get("base_parameters", {})) for one in (given, saved))
        (base,) = cls.stands_on(given)
        return super().with_former({**given, "base_parameters": adapter_class(base).with_former(*both)}, saved)

    @classmethod
    def without_former(cls, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters that are saved, those of the other method included."""
        of_base = adapter_class(parameters["base"]).without_former(parameters["base_parameters"])
        return super().without_former({**parameters, "base_parameters": of_base})

    @classmethod
    def _needs_with(cls, parameters: Mapping[str, Any]) -> frozenset[str]:
        """What the other method needs."""
        (base,) = cls.stands_on(parameters)
        return adapter_class(base).needs_with(parameters.get("base_parameters", {}))

    @classmethod
    def stands_on(cls, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        """The other method."""
        return (_name("base", parameters.get("base", cls.declared["base"].default)),)

    @property
    def logit_factor(self) -> float:
        """The prototypes add one classifier to as many as the other method adds up."""
        return 1 / (1 / self.other.logit_factor + 1)

    def _step(self, samples: Samples) -> Tensor:
        f, logits = self.other._answer(samples, learn=True)
        self.other.seen.add_(len(samples))
        touches = touches_of_probabilities(self.prototypes, logits.double().softmax(dim=1), self.rule)
        return self._learn(f, logits, touches)

    def _predict(self, samples: Samples) -> Tensor:
        return self._score(*self.other._answer(samples, learn=False))

    def reset(self, classes: Iterable[int] | None = None) -> None:
        """Forget everything, or some classes, in both methods."""
        chosen = None if classes is None else class_numbers(classes, self.classifier.classes)
        super().reset(chosen)
        self.other.reset(chosen)

    def refresh_state(self) -> None:
        """Refresh the other method."""
        self.other.refresh_state()

    def preview(self, samples: object) -> None:
        """Show the other method samples before the first step."""
        self.other.preview(samples)

    def remarks(self) -> list[str]:
        """What a user should know of the other method's samples."""
        return self.other.remarks()

    def require(self, samples: Samples) -> None:
        """Refuse samples that the other method refuses."""
        self.other.require(samples)

    def summarise(self, samples: object, labels: object = None) -> Segment:
        """Not possible: what is learned depends on the other method's state."""
        raise InvalidParameter(f"combined cannot be summarised: what it learns depends on what {self.base} has learned")

    def apply(self, segment: Segment) -> bool:
        """Not possible: a segment holds nothing for the other method."""
        raise InvalidParameter(f"combined cannot apply a segment: it holds nothing for {self.base}")

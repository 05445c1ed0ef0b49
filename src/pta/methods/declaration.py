"""What a method declares of itself, before there is an adapter: parameters, needs, and limits of its state."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NoReturn

from torch import Tensor

from pta.core.classifier import ZeroShotClassifier
from pta.core.parameters import Parameter, calibration_behind, check_all, check_given, gate_behind, offset_in_front
from pta.core.towers import Model
from pta.errors import InvalidParameter, InvalidSamples

Scope = Literal["sample", "batch", "stream"]
TOWERS = frozenset({"image tower", "prompt tower"})
"""The towers that a method may need."""
PROMPTS = frozenset({"prompts"})
"""The need of a method that chooses among the prompts of a class: their features, which the classifier has."""

_MADE_BY = {
    "views": "pta extract --views 64 --view-mode augmix (or crops)",
    "raw": "pta extract --pixels",
    "patches": "pta extract --patches",
    "generated": "pta extract --views 65 --views-from DIR, or choose difftpt-augmented, which needs none",
    "prompts": "pta extract --prompts, or choose prompts=one",
}
IN_WORDS = {"raw": "raw samples", "generated": "generated pictures", "prompts": "features of the single prompts"}


@dataclass(frozen=True)
class Origin:
    """The inputs of an adapter besides its parameters."""

    classifier: ZeroShotClassifier
    model: Model | None = None  # of the anchors and features, if known
    length: int | None = None  # of the stream, if known

    def __post_init__(self) -> None:
        if not isinstance(self.classifier, ZeroShotClassifier):
            raise InvalidParameter(f"a method needs a ZeroShotClassifier, not {type(self.classifier).__name__}")


class Declaration:
    """The declarations of a method, with their defaults."""

    name: ClassVar[str]
    declared: ClassVar[Mapping[str, Parameter]] = {
        "calibration": calibration_behind(),
        "gate": gate_behind(),
        **offset_in_front(),
    }
    # Of the samples "features", "views", "raw", "patches", "generated"; of the classifier "prompts"; of the model
    # "image tower", "prompt tower".
    needs: ClassVar[frozenset[str]] = frozenset({"features"})
    # Of these, what is not needed if a parameter has a value: need, parameter, value.
    needed_unless: ClassVar[tuple[tuple[str, str, object], ...]] = ()
    # What a prediction depends on besides the state: its "sample" (a batch then equals a loop), its "batch", or the
    # whole "stream", which must then be one batch.
    scope: Scope = "sample"
    bounded: bool = True  # state does not grow with the stream
    # The pieces of state that hold a prototype per class, C×d, and how much each class has learned from, C.
    prototypes_in: ClassVar[str] = ""
    counts_in: ClassVar[str] = ""
    # Whether its answers fall below zero-shot's if it stops learning after a few samples per class; measured, see
    # benchmarks/results/frozen.csv. False where that was not measured.
    loses_frozen: ClassVar[bool] = False
    # Whether `step` learns labels (`_step_labelled`).
    takes_labels: ClassVar[bool] = False
    # Why no class can be added to its state; empty if the state per class does not depend on the number of classes.
    fixed_classes: ClassVar[str] = "it does not declare that its state per class is independent of the other classes"
    wants_preview: bool = False  # it needs the whole stream before the first step (`preview`)
    # Whether `_step` can fail after it has begun to change the state, although its samples were checked. The state is
    # then copied before each call.
    may_fail: bool = True
    # The most samples per call of `_step` and `_predict`, if the scope is "sample"; None for any number. It bounds
    # memory and changes no result.
    max_batch: int | None = 1
    # The most samples between two calls of `refresh_state`, of which the first are due after 1, 2, 4, … samples; None
    # for a method without refreshes. No refresh is due between the samples of one `_step`.
    refresh_interval: int | None = None
    classifier: ZeroShotClassifier
    seen: Tensor  # the position in the stream, on the classifier's device

    def refresh_state(self) -> None:
        """Do the periodic work that is due after many samples; `seen` is their number."""

    def contradiction(self, state: Mapping[str, Tensor]) -> str | None:
        """The contradiction in the state of the method or of its stages, if there is one."""
        return self._contradiction(state)

    def _contradiction(self, state: Mapping[str, Tensor]) -> str | None:
        """The contradiction between pieces of state that are each within their bounds, if there is one."""
        return None

    def _state_replaced(self) -> None:
        """State was reset, restored or moved: drop everything computed from it."""

    @classmethod
    def complete(cls, given: Mapping[str, Any], origin: Origin) -> dict[str, Any]:
        """All parameters with their values, checked; a method whose defaults depend on something else overrides it."""
        known = check_all(cls.name, cls.declared, given)
        cls._require_online(known)
        return known

    @classmethod
    def with_former(cls, given: Mapping[str, Any], saved: Mapping[str, Any]) -> dict[str, Any]:
        """The given parameters, and those that saved ones lack because they are older, as they were then."""
        older = {name: one.former for name, one in cls.declared.items() if one.former is not None and name not in saved}
        return {**older, **given}

    @classmethod
    def without_former(cls, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters that are saved, so that earlier versions read them: all but those that are as before."""
        return {
            name: value for name, value in parameters.items() if value is None or value != cls.declared[name].former
        }

    @classmethod
    def require_parameters(cls, given: Mapping[str, Any]) -> None:
        """Refuse parameters that are wrong for every classifier, before there is one."""
        cls._require_online(check_given(cls.name, cls.declared, given))

    @classmethod
    def require_takes_labels(cls) -> None:
        """Refuse a method that does not learn labels."""
        if not cls.takes_labels:
            raise InvalidParameter(f"{cls.name} does not learn labels; pta, wpta and tda do")

    @classmethod
    def needs_with(cls, parameters: Mapping[str, Any]) -> frozenset[str]:
        """The inputs that the method needs with these parameters, what is in front of it included."""
        own = cls._needs_with(parameters)
        return own | {"raw", "image tower"} if parameters.get("offset") in ("panda", "panda-batch") else own

    @classmethod
    def _needs_with(cls, parameters: Mapping[str, Any]) -> frozenset[str]:
        """The inputs that the method itself needs with these parameters."""
        values = {name: one.default for name, one in cls.declared.items()} | dict(parameters)
        return cls.needs - {need for need, name, value in cls.needed_unless if values[name] == value}

    @classmethod
    def stands_on(cls, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        """The names of other methods that the method with these parameters is built on."""
        return ()

    @classmethod
    def _require_online(cls, parameters: Mapping[str, Any]) -> None:
        whole = f"{cls.name} predicts a whole {cls.scope} at once"
        if parameters.get("calibration") == "matched" and cls.scope != "sample":
            raise InvalidParameter(f'{whole}, so calibration cannot be matched online; use calibration="fixed"')
        if parameters.get("gate") == "balance" and cls.scope != "sample":
            raise InvalidParameter(f'{whole}, so a gate cannot follow the samples; use gate="none"')


def refuse_lack(method: str, missing: frozenset[str]) -> NoReturn:
    """Refuse samples or a classifier that lack inputs of a method; the message names the first."""
    first = min(missing)
    advice = f"; make them with {_MADE_BY[first]}" if first in _MADE_BY else ""
    refusal = InvalidParameter if missing <= PROMPTS else InvalidSamples
    raise refusal(f"{method} needs {IN_WORDS.get(first, first)}, which are missing{advice}")


def require_model(method: str, needs: frozenset[str], classifier: ZeroShotClassifier, model: Model | None) -> Model:
    """The model of a method that needs its towers; a missing model or one of another dimension is refused."""
    towers = " and the ".join(sorted(needs & TOWERS))
    if model is None or not hasattr(model, "image_tower"):
        raise InvalidParameter(f"{method} needs the {towers} of a model; give it (--model, model=load_encoder(…))")
    if model.dim != classifier.dim:
        raise InvalidParameter(
            f"the model's features have {model.dim} dimensions but the classifier's anchors have {classifier.dim}; "
            "both must come from the same model"
        )
    return model

"""Parameters of methods, each declared once: default, allowed values, and one line of help.

A class declares a parameter as an attribute (`h: float = number(20.0, 1e-3, 1e9, "…")`). Checking, saving, listing and
documentation follow from the declaration. A subclass inherits its parent's parameters, and fixes one by assigning a
plain value.
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, Literal, get_args

import numpy as np
from torch import Tensor

from pta.errors import InvalidParameter, nearest, shown

Order = Literal["update-first", "predict-first"]
"""Learn a sample before it is scored, or after."""
Prior = Literal["none", "local"]
"""The prior added to the zero-shot logits: none, or one from the preceding samples (`pta.engines.local_prior`)."""
Gate = Literal["none", "balance"]
"""What limits a method's answer: nothing, or how unequal the numbers of classes are (`pta.engines.balance`)."""
Offset = Literal["none", "centre", "panda", "panda-batch"]
"""What is subtracted from features in front of a method (`pta.methods.offset`)."""
Calibration = Literal["fixed", "matched"]
"""How logits become probabilities: by the method's `logit_factor`, or by `pta.engines.calibration`."""


@dataclass(frozen=True)
class Parameter:
    """The declaration of a parameter."""

    default: Any
    check: Callable[[str, Any], Any]  # returns the value in its proper type, or raises with the name
    bounds: str  # allowed values, for people
    help: str  # one line
    former: Any = None  # the value in states that were saved before there was this parameter, if not the default


def number(default: float, low: float, high: float, help: str) -> Any:
    """Declare a number from low to high."""
    return Parameter(default, lambda name, value: require_number(name, value, low, high), f"{low:g} to {high:g}", help)


def count(default: int | None, low: int, high: int, help: str) -> Any:
    """Declare a whole number from low to high."""
    return Parameter(default, lambda name, value: require_count(name, value, low, high), f"{low} to {high}", help)


def choice(default: str | None, kinds: Any, help: str) -> Any:
    """Declare one of several words, given as a `Literal` type, or None where that is the default."""
    words = get_args(kinds)

    def check(name: str, value: object) -> object:
        return None if value is default is None else require_choice(name, value, words)

    return Parameter(default, check, " or ".join(words), help)


def switch(default: bool, help: str) -> Any:
    """Declare True or False."""
    return Parameter(default, require_switch, "True or False", help)


def learning_order(default: Order) -> Any:
    """Declare whether a sample is learned before or after it is scored."""
    return choice(default, Order, "learn a sample before it is scored (update-first) or after (predict-first)")


def prior_in_front(default: Prior = "none") -> Any:
    """Declare the prior of the method."""
    return choice(default, Prior, "local: add a prior from the preceding samples to the zero-shot logits")


def gate_behind(default: Gate = "none") -> Any:
    """Declare the gate of the method."""
    help = "balance: answer as zero-shot while few classes have most of the samples"
    return replace(choice(default, Gate, help), former="none")


def calibration_behind(default: Calibration = "fixed") -> Any:
    """Declare the calibration of the method."""
    help = "temperature of probabilities: fixed by the rule, or matched during the stream (for pta, wpta and combined)"
    return choice(default, Calibration, help)


def offset_in_front() -> dict[str, Parameter]:
    """Declare the offset of a method, and how much of it is subtracted."""
    kind = choice("none", Offset, "subtract from features: a share of their mean so far, or of negative images (panda)")
    centre = number(0.3, 0.0, 1.0, "λ of offset=centre (ours)")
    negative = number(0.6, 0.0, 1.0, "β of offset=panda and panda-batch (the authors' code, in front of CLIP)")
    declared = {"offset": kind, "centre_share": centre, "negative_share": negative}
    return {name: replace(one, former=one.default) for name, one in declared.items()}


def label_weight(low: float, high: float) -> Any:
    """Declare how much a label weighs."""
    return replace(number(1.0, low, high, "weight of a sample whose label is given, in certain samples"), former=1.0)


def parameter(default: Any, check: Callable[[str, Any], Any], bounds: str, help: str) -> Any:
    """Declare a parameter with a check of its own."""
    return Parameter(default, check, bounds, help)


def declared_in(owner: type, inherited: Mapping[str, Parameter]) -> dict[str, Parameter]:
    """The parameters of a class: its own, and those of its parent that it does not fix."""
    kept = {name: one for name, one in inherited.items() if name not in vars(owner)}
    return {name: one for name, one in vars(owner).items() if isinstance(one, Parameter)} | kept


def check_all(owner: str, declared: Mapping[str, Parameter], given: Mapping[str, Any]) -> dict[str, Any]:
    """Every declared parameter with its checked value; a name that is not declared is refused."""
    checked = check_given(owner, declared, given)
    return {name: checked[name] if name in checked else one.check(name, one.default) for name, one in declared.items()}


def check_given(owner: str, declared: Mapping[str, Parameter], given: Mapping[str, Any]) -> dict[str, Any]:
    """The given parameters with their checked values; a name that is not declared is refused, naming the nearest."""
    checked = {}
    for name, value in given.items():
        if name not in declared:
            raise InvalidParameter(f"{owner} has no parameter {shown(name)}; {nearest(name, declared)}")
        checked[name] = declared[name].check(name, value)
    return checked


def document(owner: type, declared: Mapping[str, Parameter]) -> None:
    """Write the parameters into the class's docstring and signature."""
    lines = [f"    {name}: {one.help} (default {one.default!r}; {one.bounds})." for name, one in declared.items()]
    if lines:
        owner.__doc__ = "\n".join([inspect.getdoc(owner) or "", "", "Parameters:", *lines])
    first = inspect.Parameter("classifier", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    defaults = {"model": None} | {name: one.default for name, one in declared.items()}
    others = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=one) for name, one in defaults.items()]
    owner.__signature__ = inspect.Signature([first, *others])  # type: ignore[attr-defined]


def require_choice(name: str, value: object, choices: tuple[str, ...]) -> object:
    """The value, if it is one of the choices; a refusal names the nearest."""
    if not isinstance(value, str) or value not in choices:
        raise InvalidParameter(f"{name}={shown(value)} is not a choice; {nearest(value, choices)}")
    return value


def plain_number(given: object) -> float:
    """A real number as a float; NaN for anything else, which is outside of all bounds.

    >>> plain_number(np.float32(0.5)), plain_number(Tensor([2])), plain_number("3"), plain_number(True)
    (0.5, 2.0, nan, nan)
    """
    try:
        value = given.item() if isinstance(given, Tensor | np.ndarray) else given
        return float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    except (ValueError, RuntimeError, OverflowError):  # of several numbers, of a tensor without any, of a huge int
        return math.nan


def require_number(name: str, value: object, low: float, high: float) -> float:
    """The value as a float, if it is a number from low to high."""
    number = plain_number(value)
    if not low <= number <= high:
        raise InvalidParameter(f"{name} must be a number from {low:g} to {high:g}, got {shown(value)}")
    return number


def require_count(name: str, value: object, low: int, high: int) -> int:
    """The value as an int, if it is a whole number from low to high."""
    if not isinstance(value, Integral) or isinstance(value, bool) or not low <= int(value) <= high:
        raise InvalidParameter(f"{name} must be a whole number from {low} to {high}, got {shown(value)}")
    return int(value)


def require_switch(name: str, value: object) -> bool:
    """The value, if it is True or False."""
    if not isinstance(value, bool):
        raise InvalidParameter(f"{name} must be True or False, got {shown(value)}")
    return value


def require_text(name: str, value: object) -> str:
    """The value, if it is a text."""
    if not isinstance(value, str):
        raise InvalidParameter(f"{name} must be a text, got {shown(value)}")
    return value


def require_texts(name: str, values: object) -> list[str]:
    """The values as a list, if they are texts."""
    listed = list(values) if isinstance(values, Sequence) and not isinstance(values, str | bytes) else None
    if listed is None or not all(isinstance(value, str) for value in listed):
        raise InvalidParameter(f"{name} must be a list of texts, got {shown(values)}")
    return listed


def require_mapping(name: str, value: object) -> Mapping[str, Any]:
    """The value, if it is a dictionary whose keys are texts."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InvalidParameter(f"{name} must be a dictionary with texts as keys, got {shown(value)}")
    return value


def require_seed(seed: object) -> int:
    """A seed as an int."""
    return require_count("seed", seed, 0, 2**63 - 1)

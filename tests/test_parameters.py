"""Declared parameters: what a value may be, how a refusal reads, what a subclass inherits, and the documentation."""

import inspect
import math
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from streams import NO_OFFSET, toy_stream

from pta import CLIP, list_adapters
from pta.core.parameters import choice, count, learning_order, number, parameter, require_texts, switch
from pta.errors import InvalidParameter
from pta.methods import adapter_class


class Plain(CLIP):
    """A method with one parameter of each kind."""

    weight: float = number(2.0, 0.5, 10.0, "weight of the cache")
    slots: int = count(3, 0, 8, "slots per class")
    mixture: str = choice("sum", Literal["sum", "product"], "how both are mixed")
    renormalise: bool = switch(True, "scale means to unit length")
    order: str = learning_order("update-first")


class Fixed(Plain):
    """Its mixture is fixed, its weight has another default, and it has a parameter of its own."""

    mixture = "product"
    weight: float = number(1.0, 0.5, 10.0, "weight of the cache")
    blocks: tuple = parameter((), lambda name, value: tuple(value), "block numbers", "blocks that condense")


NOT_WEIGHTS = (0.4, 10.1, math.nan, math.inf, "1", None, True)


def made(method=Plain, **given):
    return method(toy_stream().classifier, **given)


def refusal(method=Plain, **given):
    with pytest.raises(InvalidParameter) as refused:
        made(method, **given)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@given(st.floats(0.5, 10.0) | st.integers(1, 10), st.integers(0, 8))
def test_a_value_within_its_bounds_is_kept_in_its_type(weight, slots):
    adapter = made(weight=weight, slots=slots)
    assert (adapter.weight, adapter.slots) == (weight, slots)
    assert (type(adapter.weight), type(adapter.slots)) == (float, int)
    assert made(weight=np.float64(weight), slots=np.int64(slots)).parameters == adapter.parameters


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        *(({"weight": value}, "weight must be a number from 0.5 to 10, got") for value in NOT_WEIGHTS),
        *(({"slots": value}, "slots must be a whole number from 0 to 8, got") for value in (-1, 9, 2.5, "2", True)),
        *(({"renormalise": value}, "renormalise must be True or False, got") for value in ("yes", 1, None)),
        ({"mixture": "prodct"}, "mixture='prodct' is not a choice; did you mean 'product'"),
        *(({"mixture": value}, f"mixture={value!r} is not a choice; ") for value in (1, "", ["sum"])),
        ({"order": "predict"}, "order='predict' is not a choice; did you mean 'predict-first'"),
        ({"wieght": 1.0}, "has no parameter 'wieght'; did you mean 'weight'"),
    ],
    ids=str,
)
def test_a_value_that_cannot_be_is_refused_with_what_can(given, complaint):
    said = refusal(**given)
    assert complaint in said
    if "got" in complaint:
        assert said.endswith(repr(*given.values()))


def test_a_subclass_inherits_fixes_and_adds():
    kept = {"weight": 1.0, "slots": 3, "renormalise": True, "order": "update-first"}
    of_clip = {"prior": "none", "calibration": "fixed", "gate": "none", **NO_OFFSET}
    assert made(Fixed).parameters == {"blocks": ()} | kept | of_clip
    assert made(Fixed, blocks=[1, 2]).blocks == (1, 2)
    assert made(Fixed).mixture == "product"
    assert "has no parameter 'mixture'" in refusal(Fixed, mixture="sum")
    assert made().parameters["weight"] == 2.0


def test_the_documentation_is_made_of_the_declarations():
    lines = [
        "weight: weight of the cache (default 2.0; 0.5 to 10).",
        "slots: slots per class (default 3; 0 to 8).",
        "mixture: how both are mixed (default 'sum'; sum or product).",
        "renormalise: scale means to unit length (default True; True or False).",
    ]
    said = inspect.getdoc(Plain)
    assert said.startswith("A method with one parameter of each kind.\n\nParameters:\n")
    assert all(f"    {line}\n" in said for line in lines)
    expected = "(classifier, *, model=None, weight=2.0, slots=3, mixture='sum', renormalise=True, order='update-first'"
    around = "".join(f", {name}={value!r}" for name, value in NO_OFFSET.items())
    assert str(inspect.signature(Plain)) == f"{expected}, prior='none', calibration='fixed', gate='none'{around})"


@pytest.mark.parametrize("method", list_adapters())
def test_every_parameter_of_every_method_has_bounds_and_help_and_refuses_what_it_is_not(method):
    for name, one in adapter_class(method).declared.items():
        assert one.help
        assert one.bounds
        with pytest.raises(InvalidParameter, match=name):
            one.check(name, object())


@pytest.mark.parametrize("texts", ["abc", b"abc", None, 5, [1], {"a"}], ids=str)
def test_what_is_no_list_of_texts_is_refused(texts):
    with pytest.raises(InvalidParameter, match="names must be a list of texts"):
        require_texts("names", texts)

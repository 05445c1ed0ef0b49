"""A state from outside is within its bounds or refused; whatever steps lead to is within them."""

import math
from dataclasses import replace
from functools import partial
from itertools import product

import pytest
import torch
from refusals import unless_refused
from torch.nn.functional import normalize

from pta import ZeroShotClassifier, create_adapter, list_adapters
from pta.adapters.checks import _Stream

SETTINGS = [
    *((name, {}) for name in list_adapters()),
    ("adapt", {"slots": 1, "count_current": "once", "alpha": 1.0}),
    ("bca", {"centre_count": 0, "prior_count": 0, "prior_threshold": 0.0}),
    ("boostadapter", {"negatives": "most-confident", "min_entropy": 0.0, "max_entropy": 1.0}),
    ("combined", {"base": "adapt"}),
    ("combined", {"base": "dota"}),
    ("dota", {"initial_count": 0.0}),
    ("dota", {"covariance": "shared", "omega": 3.0, "sigma": 100.0}),
    ("freetta", {"covariance": "printed", "beta": 0.0}),
    ("oga", {"slots": 2, "renormalise": True}),
    ("onzeta", {"dual_step": 1e6, "proxy_step": 1e6}),
    *(("pta", {"state_dtype": dtype, "h": 400.0}) for dtype in ("float64", "float16", "bfloat16")),
    ("pta", {"variant": "paper", "w": 0.9}),
    ("sca", {"gamma": 1e-6}),
    ("tda", {"min_entropy": 0.0, "max_entropy": 1.0, "min_probability": 0.0}),
]
EACH_SETTING = pytest.mark.parametrize(("name", "parameters"), SETTINGS, ids=str)


def with_last(value, numbers):
    numbers.view(-1)[-1:] = value
    return numbers


def noise(numbers):
    drawn = torch.randn(numbers.shape, generator=torch.manual_seed(0), dtype=torch.float64)
    return normalize(drawn, dim=-1) if numbers.ndim else drawn


EDITS = {
    **{f"one is {value}": partial(with_last, value) for value in (math.nan, math.inf, -1e30, 1e12, 7, -2, -1)},
    **{f"all are {value}": partial(torch.full_like, fill_value=value) for value in (1e30, 1e-30, 1, 0, -1)},
    **{f"times {factor}": lambda numbers, factor=factor: factor * numbers for factor in (-1, 1.05, 3, 1e6)},
    "plus 5": lambda numbers: numbers + 5,
    "backwards": lambda numbers: numbers.flip(-1) if numbers.ndim else numbers,
    "rolled": lambda numbers: numbers.roll(1, 0) if numbers.ndim else numbers,
    "noise": noise,
}


def edited(snapshot, piece, edit):
    tensor = snapshot.tensors[piece]
    changed = EDITS[edit](tensor.to(torch.float64, copy=True)).to(tensor.dtype).reshape(tensor.shape)
    return replace(snapshot, tensors={**snapshot.tensors, piece: changed})


@EACH_SETTING
def test_an_edited_state_is_refused_or_leads_to_finite_answers(name, parameters):
    stream = _Stream.make(1)
    adapter = stream.adapter(partial(create_adapter, name, **parameters), learned=60)
    snapshot = adapter.snapshot()
    for piece, edit in product(snapshot.tensors, EDITS):
        if unless_refused(partial(restored, adapter, edited(snapshot, piece, edit))):
            logits = torch.cat([adapter.predict(stream.samples[:2]), adapter.step(stream.samples[:4])])
            assert logits.isfinite().all(), f"{piece}: {edit}"
            adapter.restore(adapter.snapshot())
            adapter.restore(snapshot)
        else:
            assert all(torch.equal(tensor, snapshot.tensors[name]) for name, tensor in adapter.state().items())


def restored(adapter, snapshot):
    adapter.restore(snapshot)
    return True


def opposites(features):
    """Directions and their opposites, one after the other."""
    return torch.stack([features, -features], dim=1).flatten(0, 1)[: len(features)]


def axes(features):
    """Directions at right angles, each for a while."""
    return torch.eye(features.shape[1]).repeat_interleave(3, dim=0)[: len(features)].to(features)


STREAMS = {
    "opposites": opposites,
    "axes": axes,
    "longest": lambda features: 1.0009 * features,
    "shortest": lambda features: 2e-6 * features,
    "copies": lambda features: features[:1].repeat(len(features), 1),
}


@EACH_SETTING
@pytest.mark.parametrize("scale", [0.01, 1e4])
def test_whatever_steps_lead_to_is_within_the_bounds(name, parameters, scale):
    plain = _Stream.make(2)
    classifier = ZeroShotClassifier(plain.classifier.anchors, plain.classifier.class_names, scale)
    stream, unit = replace(plain, classifier=classifier), normalize(plain.samples.features)
    adapter = stream.adapter(partial(create_adapter, name, **parameters))
    for change in STREAMS.values():
        samples = replace(stream.samples, features=change(unit), most_confident=None)
        logits = torch.cat([adapter.step(samples[:37]), adapter.step(samples[37:60])])
        assert logits.isfinite().all()
        adapter.restore(adapter.snapshot())

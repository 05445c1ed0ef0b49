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
from pta.errors import InvalidParameter, StateMismatch
from pta.methods.state import covariances
from pta.methods.toys import ToyStream

SETTINGS = [
    *((name, {}) for name in list_adapters()),
    ("adapt", {"slots": 1, "count_current": "once", "alpha": 1.0}),
    ("bca", {"centre_count": 0, "prior_count": 0, "prior_threshold": 0.0}),
    ("boostadapter", {"negatives": "most-confident", "min_entropy": 0.0, "max_entropy": 1.0}),
    ("combined", {"base": "adapt"}),
    ("combined", {"base": "dota"}),
    ("dmn", {"version": "tta-vlm", "slots": 2, "first_views": 20, "beta": 100.0}),
    ("dota", {"initial_count": 0.0}),
    ("dota", {"covariance": "shared", "omega": 3.0, "sigma": 100.0}),
    ("dpe", {"first_views": 20, "answer": "views", "slots": 1, "max_entropy": 1.0}),
    ("ecalp", {"max_rows": None, "gamma": 1, "seed_weight": 0.9}),
    ("ecalp", {"max_rows": 5, "gamma": 100, "iterations": 100}),
    ("freetta", {"covariance": "printed", "beta": 0.0}),
    ("oga", {"slots": 2, "renormalise": True}),
    ("onzeta", {"dual_step": 1e6, "proxy_step": 1e6}),
    *(("pta", {"state_dtype": dtype, "h": 400.0}) for dtype in ("float64", "float16", "bfloat16")),
    ("pta", {"variant": "paper", "w": 0.9}),
    ("sca", {"gamma": 1e-6}),
    ("wpta", {"depth": 2, "refresh_every": 10, "ridge": 0.1, "early_ridge": 0.0, "least_spread": 1e-6}),
    ("tda", {"min_entropy": 0.0, "max_entropy": 1.0, "min_probability": 0.0}),
]
QUICK = [(name, {}) for name in ("pta", "wpta", "tda", "dota", "oga", "combined")]
EACH_SETTING = pytest.mark.parametrize(
    ("name", "parameters"),
    [one if one in QUICK else pytest.param(*one, marks=pytest.mark.extensive) for one in SETTINGS],
    ids=str,
)


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
    stream = ToyStream.make(partial(create_adapter, name, **parameters), 1)
    adapter = stream.adapter(learned=60)
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
    plain = ToyStream.make(partial(create_adapter, name, **parameters), 2)
    own = plain.classifier
    classifier = ZeroShotClassifier(own.anchors, own.class_names, scale, prompt_features=own.prompt_features)
    stream, unit = replace(plain, classifier=classifier), normalize(plain.samples.features)
    adapter = stream.adapter()
    for change in STREAMS.values():
        samples = replace(stream.samples, features=change(unit), most_confident=None)
        logits = torch.cat([adapter.step(samples[:37]), adapter.step(samples[37:60])])
        assert logits.isfinite().all()
        adapter.restore(adapter.snapshot())


# -- what belongs together -----------------------------------------------------------------------------------------


def counted_beyond_the_slots(state):
    state["counts"] += 3


def more_records_than_counts(state):
    state["counts"].zero_()


def scatter_without_counts(state):
    state["counts"].fill_(1.0)
    state["scatters"] *= 1e3


def other_items(state):
    state["items"] *= -1


@pytest.mark.parametrize(
    ("name", "change", "complaint"),
    [
        ("tca", counted_beyond_the_slots, "counts must be numbers from 0 to 3"),
        ("tca", more_records_than_counts, "records has images beyond its counts"),
        ("dota", scatter_without_counts, "scatters are too large for the counts"),
        ("adapt", other_items, "moments are not those of the items"),
        ("oga", other_items, "moments are not those of the items"),
    ],
)
def test_pieces_that_do_not_belong_together_are_refused(name, change, complaint):
    adapter = ToyStream.make(partial(create_adapter, name), 1).adapter(learned=60)
    snapshot = adapter.snapshot()
    before = {name: tensor.clone() for name, tensor in snapshot.tensors.items()}
    change(snapshot.tensors)
    with pytest.raises(StateMismatch, match=f"the snapshot: {complaint}"):
        adapter.restore(snapshot)
    assert all(torch.equal(tensor, before[name]) for name, tensor in adapter.state().items())


def test_parameters_that_ask_for_more_than_there_is_memory_for_are_refused():
    adapter = ToyStream.make(partial(create_adapter, "clip"), 1).adapter()
    with pytest.raises(InvalidParameter, match="clip with these parameters needs more memory than there is"):
        adapter.add_state("slots", lambda classifier: classifier.anchors.new_zeros(2**50))
    adapter.restore(adapter.snapshot())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_covariance_is_symmetric_and_has_no_negative_eigenvalue(dtype):
    bound, rows = covariances(10.0), torch.randn(40, 8, generator=torch.manual_seed(0), dtype=dtype)
    good = rows.T @ rows / 40
    values, vectors = torch.linalg.eigh(good)
    assert bound.holds(good)
    assert bound.holds(torch.stack([good, torch.zeros_like(good), torch.ones_like(good)]))
    lopsided, indefinite = good.clone(), vectors @ torch.diag(values - values[0] - 0.01) @ vectors.T
    lopsided[0, 1] += 0.01
    for wrong in (-good, lopsided, indefinite, 1e3 * good, good * torch.nan, good * torch.inf):
        assert not bound.holds(wrong)
        assert not bound.holds(torch.stack([good, wrong]))

"""Engines that read numbers where that costs nothing: reading saves work and changes no answer."""

import sys
from contextlib import contextmanager

import pytest
import torch
from cases import CASES
from effort import repeated
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import clip_like_stream, cuts, streams, with_views
from torch._subclasses.fake_tensor import FakeTensorMode

from pta.core.plain import is_host_readable
from pta.methods import adapter_class, create_adapter

METHODS = [
    "adapt",
    "bca",
    "boostadapter",
    "dota",
    "dpe",
    "ecalp",
    "freetta",
    "gs-bias",
    "oga",
    "point-cache",
    "tda",
    "wpta",
]
SETTINGS = [
    *((name, {}) for name in METHODS),
    ("dota", {"covariance": "shared", "initial_count": 0.0, "growth": "samples"}),
    ("dota", {"scoring": "float16"}),
    ("oga", {"mean": "count", "renormalise": True}),
]


@contextmanager
def nothing_readable():
    """As on a GPU: whoever asks is told that reading would cost time."""
    for name in METHODS:
        adapter_class(name)  # imports it, and with it its engines
    modules = [module for name, module in sys.modules.items() if name.startswith("pta.")]
    with pytest.MonkeyPatch.context() as patch:
        for module in modules:
            if hasattr(module, "is_host_readable"):
                patch.setattr(module, "is_host_readable", lambda _: False)
        yield


def run(name, stream, parameters, batches):
    adapter = create_adapter(name, stream.classifier, **parameters)
    samples = with_views(stream, 12)
    steps = [adapter.step(samples[batch]) for batch in batches]
    return torch.cat([*steps, adapter.predict(samples)]), adapter.state()


@pytest.mark.parametrize("name", METHODS)
@settings(max_examples=repeated(15))
@given(streams(max_count=40), st.data())
def test_without_reading_answers_and_state_are_the_same(name, stream, data):
    parameters = {one: data.draw(st.sampled_from(values), label=one) for one, values in CASES[name].values.items()}
    batches = data.draw(cuts(len(stream.features)))
    expected, learned = run(name, stream, parameters, batches)
    with nothing_readable():
        found, state = run(name, stream, parameters, batches)
    torch.testing.assert_close(found, expected, atol=1e-7, rtol=1e-8)
    for piece in learned:
        torch.testing.assert_close(state[piece], learned[piece], atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize(("name", "parameters"), SETTINGS, ids=str)
def test_single_precision_is_as_near_without_reading(name, parameters):
    stream = clip_like_stream(0, classes=12, dim=16, count=150, duplicates=0.2)
    batches = [slice(0, 100), slice(100, 101), slice(101, 150)]
    expected, _ = run(name, stream, parameters, batches)
    with nothing_readable():
        found, _ = run(name, stream.to(torch.float32), parameters, batches)
    scale = expected.abs().max().clamp_min(1.0)
    torch.testing.assert_close(found.double() / scale, expected / scale, atol=2e-3, rtol=0)


@pytest.mark.parametrize(("name", "parameters"), SETTINGS, ids=str)
def test_without_reading_a_state_that_was_written_in_place_is_noticed(name, parameters):
    stream = clip_like_stream(1, classes=6, dim=12, count=80)
    with nothing_readable():
        replayed, other = (create_adapter(name, stream.classifier, **parameters) for _ in range(2))
        samples = with_views(stream, 12)
        replayed.step(samples[:10])
        replayed.predict(samples)
        other.step(samples)
        for piece, tensor in other.state().items():
            replayed.state()[piece].copy_(tensor)
        torch.testing.assert_close(replayed.predict(samples), other.predict(samples))


def test_numbers_of_plain_tensors_on_the_cpu_are_readable():
    assert is_host_readable(torch.zeros(2))
    assert not is_host_readable(torch.zeros(2, device="meta"))
    assert not is_host_readable(FakeTensorMode().from_tensor(torch.zeros(2)))

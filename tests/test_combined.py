"""PTA on top of another method: what it learns from, what it adds to, and that both are kept together."""

from dataclasses import replace

import pytest
import torch
from effort import repeated
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import assert_agrees
from streams import clip_like_stream, cuts, with_views

from pta import PTA, Samples, create_adapter, load_adapter
from pta.errors import InvalidParameter, InvalidSamples, PtaError, StateMismatch
from pta.methods import needs_of_samples
from pta.methods.combined import Combined
from pta.methods.toys import ToyModel
from pta.reference.combined import combined_loop

BASES = {
    "tda": {"positive_alpha": 3.0},
    "adapt": {},
    "bca": {},
    "dpe": {"first_views": 12},
    "gs-bias": {},
    "mta": {},
    "tps": {},
    "sca": {},
    "tpt": {},
    "difftpt": {},
    "difftpt-augmented": {"steps": 2},
    "histpt": {"slots": 4, "uncertain": 2},
}
MODEL = ToyModel(16, torch.float64)


def stream_with_views(seed, count=40):
    stream = clip_like_stream(seed, classes=6, dim=16, count=count, scale=20.0)
    samples = with_views(stream, 12, noise=0.2, seed=seed)
    return stream, replace(samples, generated=samples.views[:, 8:])


def slowly(stream, samples, base, parameters, **switches):
    """The base one sample at a time, then PTA's loop on what it gave."""
    other = create_adapter(base, stream.classifier, model=MODEL, **parameters)
    features, logits = [], []
    for sample in samples.batches(1):
        logits.append(other.step(sample))
        features.append(other.refined(sample.to(stream.anchors)))
    features, logits = torch.cat(features), torch.cat(logits)
    arrays = (given.numpy() for given in (stream.anchors, features, logits))
    return combined_loop(*arrays, scale=stream.scale, **switches)


@pytest.mark.parametrize("base", BASES)
@settings(max_examples=repeated(8), deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**16), h=st.sampled_from([5.0, 20.0]))
def test_any_cut_of_the_stream_gives_base_logits_plus_prototype_logits(base, data, seed, h):
    stream, samples = stream_with_views(seed)
    expected = slowly(stream, samples, base, BASES[base], h=h)
    adapter = Combined(stream.classifier, model=MODEL, base=base, base_parameters=BASES[base], h=h)
    found = torch.cat([adapter.step(samples[part]) for part in data.draw(cuts(len(samples)))])
    assert_agrees(found, expected, 1e-8)


def test_on_top_of_zero_shot_it_is_pta():
    stream = clip_like_stream(1, classes=8, dim=16, count=60)
    combined, alone = Combined(stream.classifier, base="clip"), PTA(stream.classifier)
    torch.testing.assert_close(combined.step(stream.features), alone.step(stream.features))
    torch.testing.assert_close(combined.predict(stream.features), alone.predict(stream.features))


def test_on_top_of_mta_prototypes_are_made_of_modes_and_not_of_plain_features():
    stream, samples = stream_with_views(3)
    adapter = Combined(stream.classifier, base="mta", h=1.0)
    adapter.step(samples[:1])
    learned = adapter.knowledge[adapter.touched][0]
    mode = adapter.other.refined(samples[:1].to(stream.anchors))[0]
    assert torch.cosine_similarity(learned, mode, dim=0) == pytest.approx(1.0)
    assert torch.cosine_similarity(learned, samples.features[0], dim=0) < 0.9999


def test_what_the_other_method_needs_is_needed():
    stream, samples = stream_with_views(1)
    with pytest.raises(InvalidSamples, match="pta extract --views 64"):
        create_adapter("combined", stream.classifier, source=Samples(samples.features), base="mta")
    assert needs_of_samples("combined", {"base": "mta"}) == {"features", "views"}


@pytest.mark.parametrize("base", ["tpt", "histpt"])
def test_on_a_method_with_a_prompt_tower_it_is_made_saved_and_loaded_with_the_model(base, tmp_path):
    stream, samples = stream_with_views(1)
    with pytest.raises(InvalidParameter, match="needs the prompt tower of a model"):
        Combined(stream.classifier, base=base)
    adapter = Combined(stream.classifier, model=MODEL, base=base)
    adapter.step(samples[:20])
    adapter.save(tmp_path / "state.safetensors")
    loaded = load_adapter(tmp_path / "state.safetensors", stream.classifier, model=MODEL)
    torch.testing.assert_close(loaded.step(samples[20:]), adapter.step(samples[20:]))
    other = ToyModel(16, torch.float64)
    other.fingerprint = "another"
    with pytest.raises(StateMismatch, match="the towers of another model"):
        load_adapter(tmp_path / "state.safetensors", stream.classifier, model=other)


@pytest.mark.parametrize("base", ["tpt", "difftpt", "difftpt-augmented", "histpt", "dpe", "gs-bias", "tps"])
def test_on_top_of_a_gradient_method_prototypes_are_made_of_the_plain_image(base):
    stream, samples = stream_with_views(3)
    adapter = Combined(stream.classifier, model=MODEL, base=base, base_parameters=BASES[base], h=1.0)
    adapter.step(samples[:1])
    learned = adapter.knowledge[adapter.touched]
    assert torch.cosine_similarity(learned, samples.features[:1]).numpy() == pytest.approx(1.0)


def test_it_is_not_summarised_because_that_would_leave_the_other_method_out():
    stream = clip_like_stream(1, classes=3, dim=8, count=4)
    adapter = Combined(stream.classifier, base="tda")
    with pytest.raises(InvalidParameter, match="depends on what tda has learned"):
        adapter.summarise(stream.features)
    with pytest.raises(InvalidParameter, match="holds nothing for tda"):
        adapter.apply(PTA(stream.classifier).summarise(stream.features))


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"base": 5}, "base must be the name of a method, got 5"),
        ({"base": [1]}, "base must be the name of a method"),
        ({"base": "tdaa"}, "no method is called 'tdaa'; did you mean 'tda'"),
        ({"base_parameters": {"positiv_alpha": 1.0}}, "tda has no parameter 'positiv_alpha'; did you mean"),
        ({"base_parameters": 5}, "base_parameters must be a dictionary .*got 5"),
        ({"base_parameters": "x"}, "base_parameters must be a dictionary"),
    ],
)
def test_a_base_is_a_name_and_its_parameters_are_a_mapping(wrong, complaint):
    stream = clip_like_stream(1, classes=3, dim=8, count=1)
    with pytest.raises(PtaError, match=complaint):
        Combined(stream.classifier, **wrong)


@pytest.mark.parametrize("base", ["pta", "combined", "transclip", "tca"])
def test_only_another_method_that_answers_sample_by_sample_can_be_stood_on(base):
    stream = clip_like_stream(1, classes=3, dim=8, count=1)
    with pytest.raises(InvalidParameter, match=f"the base of combined cannot be {base}"):
        Combined(stream.classifier, base=base)


def test_the_other_method_has_its_own_defaults_but_for_calibration():
    stream, _ = stream_with_views(1)
    alone, combined = (
        create_adapter(name, stream.classifier, **given)
        for name, given in (("wpta", {"calibration": "fixed"}), ("combined", {"base": "wpta"}))
    )
    assert combined.other.parameters == alone.parameters
    assert (combined.parameters["prior"], combined.parameters["calibration"]) == ("local", "fixed")
    for base in ("tda", "clip", "mta"):
        assert create_adapter("combined", stream.classifier, base=base).parameters["prior"] == "none"
    without = create_adapter("combined", stream.classifier, base="wpta", prior="none")
    assert without.other.parameters["prior"] == "none"
    with pytest.raises(InvalidParameter, match="parameter of combined itself"):
        create_adapter("combined", stream.classifier, base="wpta", base_parameters={"prior": "none"})

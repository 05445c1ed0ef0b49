"""The offset in front of a method equals its loops, batch by batch, and refuses what it cannot do."""

import json
from functools import cache

import numpy as np
import pytest
import torch
from effort import repeated
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from streams import cuts

from pta import ZeroShotClassifier, create_adapter
from pta.core.samples import Samples
from pta.data.fashion import load_fashion_test
from pta.errors import InvalidParameter, InvalidSamples
from pta.methods import load_adapter
from pta.methods.offset import PandaBatch, _without
from pta.models import load_encoder
from pta.reference.offset import (
    centre_loop,
    compose,
    negatives_of_batch,
    panda_batch,
    panda_loop,
    patch_size,
    shifted,
)


@cache
def encoder():
    return load_encoder("embedded")


@cache
def classifier():
    names = load_fashion_test().class_names
    return ZeroShotClassifier(encoder().encode_texts([f"a photo of a {name}." for name in names]).double(), names)


@cache
def pictures(count=130, first=0):
    """Real pictures, raw and as features in float64."""
    prepare = encoder().preparer()
    images = load_fashion_test().images[first : first + count]
    raw = torch.from_numpy(np.stack([prepare(image, "", 0) for image in images]))
    return Samples.of(encoder().encode(raw).double(), raw=raw)


def encode(picture):
    return encoder().image_tower().features(torch.from_numpy(picture)[None])[0].double().numpy()


def logits_of(features):
    own = classifier()
    return own.scale * features @ own.anchors.numpy().T + own.bias


def stepped(adapter, samples, parts):
    return torch.cat([adapter.step(samples[part]) for part in parts]).numpy()


def of_worked_example():
    T = np.array([(1.3, 1, 1, 3), (1, 1.3, 1, 3), (1, 1, 1.3, 3)])
    f = np.array([(1.25, 1.15, 1, 1), (1.1, 1.3, 1, 1), (1, 1.05, 1.4, 1), (1.3, 1.06, 1.04, 1)])
    return (one / np.linalg.norm(one, axis=1, keepdims=True) for one in (T, f))


def test_the_worked_example_of_the_batch_rule():
    T, f = of_worked_example()
    mean = f[2:].mean(axis=0)
    expected = [(51.976097, 51.740343, 50.922021), (51.273620, 52.179786, 50.791672)]
    np.testing.assert_allclose(mean, (0.516006, 0.472880, 0.546138, 0.448210), atol=1e-6)
    by_loop = np.array([100 * T @ shifted(one, mean, 0.4) for one in f[:2]])
    moved = _without(Samples(torch.from_numpy(f[:2])), torch.from_numpy(0.4 * mean)).features.numpy()
    np.testing.assert_allclose(by_loop, expected, atol=2e-6)
    np.testing.assert_allclose(100 * moved @ T.T, expected, atol=2e-6)


def test_a_patch_keeps_its_place_and_comes_from_another_picture():
    constant = np.broadcast_to(np.arange(20)[:, None, None, None], (20, 1, 15, 15)).astype(np.uint8)
    assert patch_size(15, 15) == 2
    negatives = negatives_of_batch(constant, seed=3)
    assert len(negatives) == 2
    for negative in negatives:
        cells = negative[0, :14, :14].reshape(7, 2, 7, 2)
        base = negative[0, 14, 14]  # outside the grid
        assert (cells == cells[:, :1, :, :1]).all()
        assert (cells != base).all()
        assert len(np.unique(cells)) > 5


def test_composing_on_tensors_equals_the_loop():
    raw, rng = pictures().raw, np.random.default_rng(0)
    negatives = create_adapter("clip", classifier(), model=encoder(), offset="panda-batch").in_front
    sources = rng.integers(len(raw), size=negatives.places)
    expected = encode(compose(raw[3].numpy(), [raw[one].numpy() for one in sources], negatives.patch))
    found = negatives.negative(raw[3], raw, sources).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-6)


@settings(max_examples=repeated(40), deadline=None)
@given(st.data())
def test_the_centre_of_any_cut_into_batches_equals_the_loop(data):
    share = data.draw(st.sampled_from([0.0, 0.3, 1.0]))
    samples = Samples.of(pictures().features)
    adapter = create_adapter("clip", classifier(), offset="centre", centre_share=share)
    found = stepped(adapter, samples, data.draw(cuts(len(samples))))
    np.testing.assert_allclose(found, logits_of(centre_loop(samples.features.numpy(), share)), atol=1e-9)


@settings(max_examples=repeated(8), deadline=None)
@given(st.data())
def test_panda_of_any_cut_into_batches_equals_the_loop(data):
    samples = pictures()
    adapter = create_adapter("clip", classifier(), model=encoder(), offset="panda")
    found = stepped(adapter, samples, data.draw(cuts(len(samples))))
    features = samples.features.numpy()
    labels = logits_of(features).argmax(axis=1)
    np.testing.assert_allclose(
        found, logits_of(panda_loop(features, samples.raw.numpy(), labels, encode, 0.6)), atol=1e-4
    )
    assert np.abs(found[30:] - logits_of(features)[30:]).max() > 1


def test_panda_of_a_batch_equals_the_loop():
    samples = pictures()[:25]
    adapter = create_adapter("clip", classifier(), model=encoder(), offset="panda-batch", negative_share=0.4)
    expected = panda_batch(samples.features.numpy(), samples.raw.numpy(), encode, 0.4)
    np.testing.assert_allclose(adapter.step(samples).numpy(), logits_of(expected), atol=1e-4)


def test_a_last_batch_of_one_picture_takes_the_negatives_of_the_batch_before(tmp_path):
    samples = pictures()[:25]
    adapter = create_adapter("clip", classifier(), model=encoder(), offset="panda-batch", negative_share=0.4)
    adapter.step(samples[:24])
    adapter.save(tmp_path / "state.safetensors")
    mean = np.mean([encode(one) for one in negatives_of_batch(samples.raw[:24].numpy(), 0)], axis=0)
    expected = logits_of(shifted(samples.features[24].numpy(), mean, 0.4)[None])
    loaded = load_adapter(tmp_path / "state.safetensors", model=encoder())
    for found in (loaded.predict(samples[24:]), loaded.step(samples[24:]), adapter.step(samples[24:])):
        np.testing.assert_allclose(found.numpy(), expected, atol=1e-4)


@pytest.mark.parametrize("method", ["pta", "wpta", "tda"])
def test_a_method_behind_an_offset_sees_the_shifted_features(method):
    samples = Samples.of(pictures().features)
    moved = Samples.of(torch.from_numpy(centre_loop(samples.features.numpy(), 0.3)), normalise=False)
    found = create_adapter(method, classifier(), offset="centre").step(samples)
    torch.testing.assert_close(found, create_adapter(method, classifier()).step(moved), atol=1e-6, rtol=1e-6)


def test_a_stream_shorter_than_ten_samples_is_not_shifted():
    few = pictures()[:9]
    for offset in ("centre", "panda"):
        adapter = create_adapter("clip", classifier(), model=encoder(), offset=offset)
        torch.testing.assert_close(adapter.step(few), create_adapter("clip", classifier()).step(few), atol=0, rtol=0)


def test_a_sorted_stream_draws_patches_of_every_class_alike(monkeypatch):
    samples, drawn = pictures(), []
    labels = logits_of(samples.features.numpy()).argmax(axis=1)
    often, seldom = np.argsort(-np.bincount(labels))[:2]
    order = np.concatenate([np.flatnonzero(labels == often)[:17], np.flatnonzero(labels == seldom)[:3]])
    made = PandaBatch.negative

    def watched(self, base, ring, sources):
        drawn.append(labels[order][sources])
        return made(self, base, ring, sources)

    monkeypatch.setattr(PandaBatch, "negative", watched)
    adapter = create_adapter("clip", classifier(), model=encoder(), offset="panda")
    adapter.step(samples[torch.from_numpy(order)])
    of_last = np.bincount(drawn[-1], minlength=10)
    assert of_last[often] + of_last[seldom] == 49
    assert 14 < of_last[seldom] < 35


def test_panda_resumes_from_a_saved_state(tmp_path):
    samples, file = pictures(), tmp_path / "state.safetensors"
    adapter = create_adapter("wpta", classifier(), model=encoder(), offset="panda")
    adapter.step(samples[:47])
    adapter.save(file)
    again = load_adapter(file, classifier(), model=encoder())
    torch.testing.assert_close(again.step(samples[47:]), adapter.step(samples[47:]), atol=0, rtol=0)


def test_predicting_moves_no_offset():
    samples = pictures()
    for offset in ("centre", "panda"):
        adapter = create_adapter("clip", classifier(), model=encoder(), offset=offset)
        adapter.step(samples[:50])
        before = adapter.snapshot()
        first = adapter.predict(samples[50:])
        torch.testing.assert_close(first, adapter.predict(samples[50:]), atol=0, rtol=0)
        assert all(torch.equal(one, before.tensors[name]) for name, one in adapter.state().items())


def test_a_picture_of_another_size_changes_nothing():
    samples = pictures()
    adapter = create_adapter("clip", classifier(), model=encoder(), offset="panda")
    adapter.step(samples[:20])
    before = adapter.snapshot()
    with pytest.raises(InvalidSamples, match="image tower takes pixels"):
        adapter.step(Samples(samples.features[:2], raw=samples.raw[:2, :, :-1]))
    assert all(torch.equal(one, before.tensors[name]) for name, one in adapter.state().items())


def test_what_an_offset_cannot_do_is_refused_in_one_line():
    samples = pictures()
    batch = create_adapter("clip", classifier(), model=encoder(), offset="panda-batch")
    with pytest.raises(InvalidSamples, match="two or more pictures of a batch"):
        batch.step(samples[:1])
    with pytest.raises(InvalidSamples, match="pixels as bytes"):
        batch.step(Samples(samples.features[:2], raw=samples.raw[:2].float()))
    with pytest.raises(InvalidSamples, match=r"needs raw samples.*pta extract --pixels"):
        batch.step(Samples(samples.features[:2]))
    with pytest.raises(InvalidParameter, match=r"^offset=panda needs the image tower of a model"):
        create_adapter("pta", classifier(), offset="panda")
    with pytest.raises(InvalidParameter, match=r'no segment can be .* with offset="centre"'):
        create_adapter("pta", classifier(), offset="centre").summarise(samples)
    with pytest.raises(InvalidParameter, match="did you mean 'centre'"):
        create_adapter("pta", classifier(), offset="center")


def test_states_without_an_offset_are_saved_as_before(tmp_path):
    create_adapter("pta", classifier()).save(tmp_path / "state.safetensors")
    with safe_open(tmp_path / "state.safetensors", framework="np") as file:
        about = json.loads(file.metadata()["about"])
    assert about["parameters"]["h"] == 20.0
    assert not {"offset", "centre_share", "negative_share"} & about["parameters"].keys()

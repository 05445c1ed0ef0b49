"""Model and method as one program: on this machine's processor, and on its GPU where there is one."""

import numpy as np
import pytest
import torch
from PIL import Image

import pta
from pta.core.classifier import ZeroShotClassifier
from pta.data.fashion import load_fashion_test
from pta.data.prompts import build_classifier
from pta.errors import InvalidParameter, InvalidSamples
from pta.methods import create_adapter
from pta.models import EmbeddedEncoder

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]
AROUND = {"prior": "local", "calibration": "matched"}
METHODS = [
    *((method, parameters) for method in ("clip", "pta", "tda") for parameters in ({}, AROUND)),
    *(("wpta", parameters) for parameters in ({}, {"calibration": "fixed"}, {"prior": "none"})),
    ("pta", {"state_dtype": "float64"}),  # which decides on the host
    ("wpta", {"refresh_every": 4, "depth": 2}),  # batches of 5 and 8 are cut, those of 8 always at the same place
    ("wpta", {"refresh_every": 3}),
]
COUNT = 22


@pytest.fixture(scope="module")
def fashion():
    return load_fashion_test()


@pytest.fixture(scope="module", params=DEVICES)
def encoder(request):
    return EmbeddedEncoder.load().ready(request.param)


@pytest.fixture(scope="module")
def pixels(fashion):
    return torch.from_numpy(fashion.images[:COUNT, None].copy())


@pytest.fixture
def make(encoder, fashion):
    classifier = build_classifier(encoder, fashion.class_names, ("a photo of a {}.",))
    return lambda method="pta", **parameters: create_adapter(method, classifier, **parameters)


def logits_of(predictions):
    return torch.cat([one.logits.cpu() for one in predictions])


@pytest.mark.parametrize(("method", "parameters"), METHODS)
@pytest.mark.parametrize("batch", [1, 5, 8])
def test_it_gives_what_the_adapter_gives_on_the_encoders_features(encoder, make, pixels, method, parameters, batch):
    run = pta.compile(encoder, make(method, **parameters), batch=batch, optimise=False)
    predictions = [run(part) for part in pixels.split(batch)]  # the last is no full batch
    expected = make(method, **parameters).step(encoder.encode(pixels)).cpu()
    torch.testing.assert_close(logits_of(predictions), expected, atol=2e-3, rtol=0)
    assert torch.equal(torch.cat([one.labels.cpu() for one in predictions]), logits_of(predictions).argmax(dim=1))


def test_a_gpu_is_not_waited_for_when_a_refresh_is_due(encoder, make, pixels):
    if encoder.device.type != "cuda":
        pytest.skip("no GPU")
    run = pta.compile(encoder, make("wpta", refresh_every=4), batch=8, optimise=False)
    on_device = pixels.to(encoder.device)
    run(on_device[:8])  # reads the position once
    torch.cuda.set_sync_debug_mode("error")
    try:
        run(on_device[8:16])
        run(on_device[16:])
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert run.adapter.position == COUNT


def test_a_stream_gives_what_the_calls_give_and_takes_arrays(encoder, make, pixels):
    calls = pta.compile(encoder, make(), batch=8, optimise=False)
    expected = logits_of(calls(part) for part in pixels.split(8))
    streamed = pta.compile(encoder, make(), batch=8, optimise=False).stream(part.numpy() for part in pixels.split(8))
    given = list(streamed)
    assert all(one.logits.device.type == "cpu" for one in given)
    torch.testing.assert_close(logits_of(given), expected, atol=1e-5, rtol=0)
    assert list(calls.stream([])) == []


def test_answers_are_not_overwritten_by_the_next_call(encoder, make, pixels):
    run = pta.compile(encoder, make(), batch=4, optimise=False)
    first = run(pixels[:4])
    kept = first.logits.clone()
    run(pixels[4:8])
    assert torch.equal(first.logits, kept)


def test_it_goes_on_with_a_state_that_was_reset(encoder, make, pixels):
    adapter = make()
    run = pta.compile(encoder, adapter, batch=4, optimise=False)
    fresh = run(pixels[:4]).logits.cpu()
    run(pixels[4:6])  # no full batch
    adapter.reset()
    torch.testing.assert_close(run(pixels[:4]).logits.cpu(), fresh)
    assert not torch.equal(run(pixels[:4]).logits.cpu(), fresh)


def test_two_of_them_and_the_adapter_itself_learn_into_one_state(encoder, make, pixels):
    adapter = make()
    one, four = (pta.compile(encoder, adapter, batch=batch, optimise=False) for batch in (1, 4))
    given = [one(pixels[:1]).logits, four(pixels[1:5]).logits, adapter.step(encoder.encode(pixels[5:7]))]
    given.append(one(pixels[7:8]).logits)
    expected = make().step(encoder.encode(pixels[:8]))
    torch.testing.assert_close(torch.cat(given).cpu(), expected.cpu(), atol=2e-3, rtol=0)


def test_frames_of_another_size_are_resized_as_pillow_does_it(encoder, make):
    frames = np.random.default_rng(0).integers(0, 256, (3, 40, 60), np.uint8)
    run = pta.compile(encoder, make(), batch=3, frame=(40, 60), optimise=False)
    ready = np.stack([encoder.preprocess.pixels(Image.fromarray(frame)) for frame in frames])
    expected = pta.compile(encoder, make(), batch=3, optimise=False)(ready).logits
    torch.testing.assert_close(run(frames[:, None]).logits, expected, atol=1e-4, rtol=0)


def test_mistakes_get_one_clear_line_and_change_nothing(encoder, make, pixels):
    adapter = make()
    run = pta.compile(encoder, adapter, batch=4, optimise=False)
    for given, complaint in (
        (pixels[:5], "compiled for 1 to 4 images at once, not 5"),
        (pixels[:0], "at once, not 0"),
        (torch.zeros(1, 1, 40, 60, dtype=torch.uint8), r"must be uint8 of shape N×1×28×28.*frame="),
        (pixels[:1].float(), "must be uint8"),
        (Image.new("L", (28, 28)), "cannot be read as numbers"),
        ([pixels[:2], torch.zeros(2)], "cannot be read as numbers"),
    ):
        with pytest.raises(InvalidSamples, match=complaint):
            run(given)
    assert adapter.position == 0


def test_arrays_may_be_reversed_or_read_only(encoder, make, pixels):
    array = pixels[:2].numpy().copy()
    array.setflags(write=False)
    straight = pta.compile(encoder, make(), batch=2, optimise=False)(array).logits
    mirrored = np.ascontiguousarray(array[..., ::-1])[..., ::-1]
    torch.testing.assert_close(pta.compile(encoder, make(), batch=2, optimise=False)(mirrored).logits, straight)


@pytest.mark.parametrize(
    ("method", "parameters", "how", "complaint"),
    [
        ("pta", {}, {"batch": 0}, "must be"),
        ("pta", {}, {"batch": 2.5}, "must be"),
        ("pta", {}, {"batch": True}, "must be"),
        ("pta", {}, {"frame": 40}, "must be"),
        ("pta", {}, {"frame": (0, 5)}, "must be"),
        ("mta", {}, {}, "mta cannot be compiled"),
        ("transclip", {}, {}, "transclip cannot be compiled"),
        ("combined", {"base": "mta"}, {}, "combined cannot be compiled"),
    ],
)
def test_impossible_sizes_and_methods_that_need_more_than_features_or_one_sample_are_refused(
    encoder, make, method, parameters, how, complaint
):
    with pytest.raises(InvalidParameter, match=complaint):
        pta.compile(encoder, make(method, **parameters), **how)


def test_an_adapter_that_was_moved_away_is_noticed(encoder, make, pixels):
    adapter = make()
    run = pta.compile(encoder, adapter, optimise=False)
    object.__setattr__(adapter.classifier, "anchors", adapter.classifier.anchors.to("meta"))
    with pytest.raises(InvalidParameter, match=r"moved away .* compile again"):
        run(pixels[:1])


def test_features_that_are_no_numbers_are_refused_where_looking_costs_nothing(encoder, make, pixels, monkeypatch):
    if encoder.device.type != "cpu":
        pytest.skip("on a GPU nobody looks")
    adapter = make()
    run = pta.compile(encoder, adapter, batch=2)
    monkeypatch.setattr(run, "_encode", lambda pixels: torch.full((len(pixels), encoder.dim), float("nan")))
    with pytest.raises(InvalidSamples, match="not finite"):
        run(pixels[:2])
    assert adapter.position == 0


def test_what_is_no_model_and_a_classifier_of_another_model_are_refused(encoder, make):
    with pytest.raises(InvalidParameter, match="takes an encoder"):
        pta.compile("embedded", make())
    other = ZeroShotClassifier(torch.eye(3), ["a", "b", "c"])
    with pytest.raises(InvalidParameter, match="features have"):
        pta.compile(encoder, create_adapter("pta", other))

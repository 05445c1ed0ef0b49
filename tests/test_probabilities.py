"""Probabilities are those of one classifier, however many a method adds up, and no label changes."""

import math

import numpy as np
import pytest
import torch
from effort import repeated
from hypothesis import given, settings
from hypothesis import strategies as st
from photos import FASHION
from refusals import refusal
from streams import clip_like_stream, streams
from torch import Tensor

import pta
from pta import Classifier, ZeroShotClassifier, create_adapter
from pta.measure.demo.run_demo import run_demo
from pta.measure.metrics import calibration_error
from pta.models import EmbeddedEncoder
from pta.run.classifier import AnswerBatch, answer_numbers
from pta.run.gpu.program import Program


def test_logits_closer_than_probabilities_can_tell_still_decide_the_label():
    logits = torch.tensor([[0.0, 1e-30, -1.0]])
    probabilities = create_adapter("pta", clip_like_stream(1, classes=3, dim=4, count=1).classifier).probabilities(
        logits
    )
    assert probabilities[0, 0] == probabilities[0, 1]
    assert AnswerBatch(answer_numbers(logits, probabilities, logits), ["a", "b", "c"])[0].label == "b"


THREE = clip_like_stream(1, classes=3, dim=4, count=1).classifier
NO_LOGITS = {
    "a number": 5,
    "nothing": None,
    "a text": "logits",
    "an object": object(),
    "one of two": [[1.0, 2.0, 3.0], [1.0, 2.0]],
    "a scalar": torch.tensor(1.0),
    "too few classes": torch.zeros(2, 2),
    "too many classes": torch.zeros(2, 4),
    "no classes": torch.zeros(3, 0),
    "three dimensions": torch.zeros(2, 2, 3),
    "complex": torch.zeros(2, 3, dtype=torch.complex64),
    "sparse": torch.zeros(2, 3).to_sparse(),
    "without numbers": torch.zeros(2, 3, device="meta"),
    "NaN": torch.tensor([[0.0, 1.0, 2.0], [0.0, math.nan, 1.0]]),
    "Inf": torch.tensor([0.0, math.inf, 1.0]),
    "-Inf": torch.tensor([[0.0, -math.inf, 1.0]]),
    "NaN in an array": np.full((2, 3), np.nan),
}


@pytest.mark.parametrize("given", NO_LOGITS)
@pytest.mark.parametrize("method", ["clip", "pta", "zero"])
def test_what_are_no_logits_is_refused_in_one_line(given, method):
    assert refusal(create_adapter(method, THREE).probabilities, NO_LOGITS[given]).startswith("logits")


def test_one_row_an_array_and_a_list_have_the_probabilities_of_the_tensor():
    adapter, logits = create_adapter("pta", THREE), torch.tensor([[1.0, 2.0, 4.0], [3.0, 0.0, 1.0]])
    expected = adapter.probabilities(logits.requires_grad_())
    assert not expected.requires_grad
    for same in (logits.detach().numpy(), logits.tolist(), logits.double()):
        assert torch.equal(adapter.probabilities(same), expected)
    assert torch.equal(adapter.probabilities(logits[0]), expected[0])
    assert adapter.probabilities(torch.zeros(0, 3)).shape == (0, 3)


SAME_AS_ZERO_SHOT = [
    *((method, {}) for method in ("clip", "pta", "tda", "bca", "dota", "oga", "freetta", "combined")),
    ("pta", {"fusion": "probabilities"}),
    ("pta", {"variant": "paper", "state_dtype": "float16"}),
    ("oga", {"tau": 2.0}),
    ("freetta", {"alpha": 50.0, "inverse": "shrunk"}),
    ("freetta", {"scaled_text": False}),
    ("freetta", {"scaled_text": False, "alpha": 0.0}),
    *(("combined", {"base": base}) for base in ("clip", "bca", "dota")),
    ("combined", {"base": "oga", "base_parameters": {"tau": 1.0}}),
    ("combined", {"base": "freetta", "base_parameters": {"scaled_text": False}}),
]


@pytest.mark.parametrize(("method", "parameters"), SAME_AS_ZERO_SHOT, ids=str)
@settings(max_examples=10)
@given(stream=streams(max_count=20))
def test_an_adapter_that_has_learned_nothing_has_the_probabilities_of_zero_shot(method, parameters, stream):
    adapter = create_adapter(method, stream.classifier, **parameters)
    expected = stream.classifier.logits(stream.features).softmax(dim=1)
    found = adapter.probabilities(adapter.predict(stream.features))
    tolerance = 2e-2 if parameters.get("state_dtype") == "float16" else 1e-4
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=0)


def test_pta_adds_two_classifiers_and_combined_one_to_those_of_its_base():
    classifier = clip_like_stream(1, classes=4, dim=50, count=1, scale=25.0).classifier
    assert pta.PTA(classifier).logit_factor == 1 / 2
    assert pta.PTA(classifier, fusion="probabilities").logit_factor == 1
    for base, given_, adds in (("clip", {}, 1), ("tda", {}, 1), ("oga", {"tau": 0.5}, 2)):
        assert create_adapter(base, classifier, **given_).logit_factor == pytest.approx(1 / adds)
        combined = create_adapter("combined", classifier, base=base, base_parameters=given_)
        assert combined.logit_factor == pytest.approx(1 / (adds + 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@settings(max_examples=repeated(30))
@given(stream=streams(max_count=10), scale=st.sampled_from([1.0, 100.0, 5000.0]))
def test_averaged_probabilities_are_the_logarithm_of_a_mean_and_finite(dtype, stream, scale):
    """Also where float32 and float64 hold no probability: logits that are 10,000 apart."""
    stream = stream.to(dtype)
    adapter = pta.PTA(ZeroShotClassifier(stream.anchors, stream.classifier.class_names, scale), fusion="probabilities")
    adapter.step(stream.features)
    found = adapter.predict(stream.features)
    assert torch.isfinite(found).all()
    torch.testing.assert_close(found.double().exp().sum(dim=1), torch.ones(len(found), dtype=torch.float64), **CLOSE)
    rounding = scale * {torch.float32: 1e-5, torch.float64: 1e-13}[dtype]
    for f, logarithms in zip(stream.features, found, strict=True):
        expected = slow_log_mean(
            scale * stream.anchors.double() @ f.double(), scale * adapter.anchored.double() @ f.double()
        )
        np.testing.assert_allclose(logarithms, expected, atol=rounding, rtol=0)


CLOSE = {"atol": 1e-4, "rtol": 0}


def slow_log_mean(*both):
    """ln((softmax a + softmax b)/2), class by class."""
    normalisers = [max(z) + math.log(sum(math.exp(one - max(z)) for one in z)) for z in map(Tensor.tolist, both)]
    found = []
    for pair in zip(*map(Tensor.tolist, both), strict=True):
        small, large = sorted(one - normaliser for one, normaliser in zip(pair, normalisers, strict=True))
        found.append(large + math.log1p(math.exp(small - large)) - math.log(2))
    return found


def test_a_user_gets_the_calibrated_probability_and_the_raw_one_on_request():
    for raw, factor in ((False, 0.5), (True, 1.0)):
        classifier, piped = (
            Classifier("embedded", FASHION.class_names, method="pta", cache=None, raw_probability=raw) for _ in range(2)
        )
        frames = FASHION.images[:30]
        features = classifier.encoder.encode(classifier.encoder.preprocess(frames))
        logits = create_adapter("pta", classifier.classifier).step(features).double()
        expected = (factor * logits).softmax(dim=1)
        answers, scores = classifier(list(frames)), piped.pipeline(top_k=1)(list(frames))
        assert [one.label for one in answers] == [FASHION.class_names[row.argmax()] for row in logits]
        np.testing.assert_allclose([one.probability for one in answers], expected.amax(dim=1), atol=1e-4)
        np.testing.assert_allclose([one.entropy for one in answers], torch.special.entr(expected).sum(dim=1), atol=1e-3)
        assert [one[0]["score"] for one in scores] == pytest.approx([one.probability for one in answers], abs=1e-4)


def test_a_compiled_program_fuses_like_the_adapter():
    encoder = EmbeddedEncoder.load()
    classifier = Classifier(encoder, FASHION.class_names, cache=None).classifier
    pixels = torch.from_numpy(FASHION.images[:8])[:, None]
    for fusion in ("logits", "probabilities"):
        program, twin = (
            Program(encoder, pta.PTA(classifier, fusion=fusion), batch=8),
            pta.PTA(classifier, fusion=fusion),
        )
        found, expected = program(pixels), twin.step(encoder.encode(pixels))
        torch.testing.assert_close(program.adapter.probabilities(found.logits), twin.probabilities(expected), **CLOSE)
        assert torch.equal(found.labels, expected.argmax(dim=1))


def test_on_noisy_images_answers_that_claim_certainty_are_right():
    run = run_demo("gaussian_noise", 3, limit=600).pta
    right, sure, raw_sure = run.correct, run.confidences > 0.99, run.raw_confidences > 0.99
    assert right[raw_sure].mean() < 0.75
    assert right[sure].mean() > 0.95
    assert raw_sure.sum() > 4 * sure.sum() > 0
    assert calibration_error(run.confidences, right) < 0.7 * calibration_error(run.raw_confidences, right)

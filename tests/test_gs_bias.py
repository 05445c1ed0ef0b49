"""GS-Bias: a step by hand, its gradients, the loops it must equal, and that a sample is all it depends on."""

import json
import math

import autograd_loops
import numpy as np
import pytest
import torch
from photos import FASHION, fashion_samples, write_classes, write_photos
from streams import clip_like_stream, with_views

from pta import Classifier, Samples, ZeroShotClassifier, create_adapter
from pta.data.features import FeatureFile
from pta.engines.prompts.view_entropy import by_entropy
from pta.errors import InvalidSamples
from pta.measure.evaluate import evaluate
from pta.methods.gs_bias import GSBias
from pta.reference.gs_bias import gradient_by_a_bias, gs_bias_loop
from pta.reference.numerics import entropy, softmax


def toy():
    """Three classes, and logits that are multiples of ln 2: the rows have the probabilities (1/2, 1/4, 1/4)."""
    classifier = ZeroShotClassifier(
        torch.eye(3, dtype=torch.float64), ["a", "b", "c"], scale=math.log(2) * math.sqrt(6)
    )
    row = torch.tensor([[2.0, 1.0, 1.0]], dtype=torch.float64) / math.sqrt(6)
    return classifier, Samples(row, views=row[:, None], patches=row[:, None])


def test_one_step_by_hand():
    """z = ln 2·(2, 1, 1), p = (1/2, 1/4, 1/4), H = 1.5 ln 2, ∂H/∂z_j = −p_j(ln p_j + H) = ln 2·(−1/4, 1/8, 1/8)."""
    classifier, samples = toy()
    adapter = GSBias(classifier, first_views=1, top_patches=1, steps=1, alpha=2.0, beta=4.0)
    learned = 0.9 * (2.0 + 4.0) * math.log(2) * np.array([0.25, -0.125, -0.125])
    expected = math.log(2) * np.array([[2.0, 1.0, 1.0]]) + learned
    np.testing.assert_allclose(adapter.step(samples), expected, atol=1e-12)


def test_a_second_step_adds_the_history_and_has_the_factor_of_the_bias():
    classifier, samples = toy()
    g = math.log(2) * np.array([-0.25, 0.125, 0.125])
    z, b = math.log(2) * np.array([2.0, 1.0, 1.0]), -g
    c = 0.9 * b  # the history is still 0
    second = gradient_by_a_bias((z + c)[None])
    expected = z + 0.9 * (b - 0.9 * second) + 0.1 * c
    adapter = GSBias(classifier, first_views=1, top_patches=1, steps=2, beta=0.0, early_stop=1.0)
    np.testing.assert_allclose(adapter.step(samples), expected[None], atol=1e-12)


@pytest.mark.parametrize("rows", [1, 2, 6])
def test_the_gradient_by_either_bias_is_that_of_finite_differences(rows):
    """Both losses are the same function: of the kept views by b_g, of the kept patches by b_s."""
    z = np.random.default_rng(rows).normal(size=(rows, 5)) * 3
    gradient, h = gradient_by_a_bias(z), 1e-5
    for c in range(5):
        up, down = (entropy(softmax(z + sign * h * np.eye(5)[c]).mean(axis=0)) for sign in (1, -1))
        assert gradient[c] == pytest.approx((up - down) / (2 * h), abs=1e-8)


def test_a_loss_that_changes_by_more_than_a_quarter_ends_the_steps_before_the_update():
    classifier, samples = toy()
    how = {"first_views": 1, "top_patches": 1, "alpha": 20.0}
    stopped, one = (GSBias(classifier, steps=steps, **how).step(samples) for steps in (5, 1))
    torch.testing.assert_close(stopped, one)
    assert (GSBias(classifier, steps=5, early_stop=1.0, **how).step(samples) - one).abs().max() > 0.1


def test_a_first_loss_of_exactly_zero_ends_the_steps():
    classifier = ZeroShotClassifier(torch.eye(2, dtype=torch.float64), ["a", "b"], scale=1e4)
    row = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    unsure = torch.tensor([[[0.7, 0.70001]]], dtype=torch.float64)
    adapter = GSBias(classifier, first_views=1, top_patches=1)
    logits = adapter.step(Samples(row, views=row[:, None], patches=unsure))
    assert logits.tolist() == [[1e4, 0.0]]


@pytest.mark.parametrize(("views", "keep"), [(64, 0.1), (8, 0.5)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_equals_a_loop_with_automatic_differentiation(views, keep, dtype):
    stream = clip_like_stream(3, classes=12, dim=32, count=20, scale=50.0)
    samples = with_views(stream, views).to(torch.zeros(1, dtype=dtype))
    how = {"alpha": 5.0, "beta": 2.0, "keep": keep, "top_patches": 6, "steps": 5}
    adapter = GSBias(stream.to(dtype).classifier, first_views=views, **how)
    found = adapter.step(samples)
    rows = zip(samples.features, samples.views, samples.patches, strict=True)
    loop = [autograd_loops.gs_bias(stream.anchors.to(dtype), *row, scale=50.0, **how) for row in rows]
    expected = torch.stack([logits for logits, _ in loop])
    torch.testing.assert_close(found, expected, atol=1e-4 if dtype == torch.float32 else 1e-9, rtol=0)
    kept = by_entropy(adapter.zero_shot(samples).view_logits)[:, : int(views * keep)]
    assert kept.tolist() == [chosen.tolist() for _, chosen in loop]


def test_on_real_images_it_equals_both_loops():
    classifier, samples = fashion_samples(50, views=8)
    how = {"alpha": 5.0, "beta": 1.0, "keep": 0.5, "top_patches": 16, "steps": 5}
    found = create_adapter("gs-bias", classifier, **how).step(samples)
    exact = samples.to(classifier.anchors)
    rows = zip(exact.features, exact.views, exact.patches, strict=True)
    by_autograd = torch.stack(
        [autograd_loops.gs_bias(classifier.anchors, *row, scale=classifier.scale, **how)[0] for row in rows]
    )
    arrays = [one.double().numpy() for one in (classifier.anchors, exact.features, exact.views, exact.patches)]
    by_numpy = torch.from_numpy(gs_bias_loop(*arrays, scale=classifier.scale, **how))
    for expected in (by_autograd, by_numpy):
        torch.testing.assert_close(found.double(), expected.double(), atol=1e-4, rtol=0)
        assert torch.equal(found.argmax(dim=1), expected.argmax(dim=1))


def test_any_order_and_any_batches_give_each_sample_the_same():
    stream = clip_like_stream(5, classes=12, dim=32, count=40, scale=50.0).to(torch.float32)
    samples, adapter = with_views(stream, 8), GSBias(stream.classifier)
    expected, shuffled = adapter.step(samples), torch.randperm(40, generator=torch.manual_seed(1))
    found = torch.cat([adapter.step(samples[rows]) for rows in shuffled.split([1, 7, 2, 20, 10])])
    torch.testing.assert_close(found, expected[shuffled], atol=2e-5, rtol=0)


@pytest.mark.parametrize(
    ("given", "parameters", "complaint"),
    [
        ({"patches": 20}, {}, "gs-bias needs views, which are missing; make them with pta extract --views 64"),
        ({"views": 8}, {}, "gs-bias needs patches, which are missing; make them with pta extract --patches"),
        ({"views": 7, "patches": 20}, {}, "gs-bias needs 8 views, but the samples have 7; make more with"),
        ({"views": 8, "patches": 15}, {}, "gs-bias needs 16 patches, but the samples have 15; choose fewer"),
    ],
)
def test_samples_that_lack_something_are_refused_in_one_line(given, parameters, complaint):
    stream = clip_like_stream(1, classes=4, dim=8, count=3)
    rows = {name: stream.features[:, None].expand(-1, count, -1) for name, count in given.items()}
    adapter = create_adapter("gs-bias", stream.classifier, **parameters)
    with pytest.raises(InvalidSamples) as caught:
        adapter.step(Samples(stream.features, **rows))
    assert str(caught.value).startswith(complaint)
    assert adapter.position == 0


def test_too_few_views_to_keep_one_keep_one():
    stream = clip_like_stream(1, classes=4, dim=8, count=3)
    samples = with_views(stream, 4)
    few, one = (GSBias(stream.classifier, first_views=4, keep=keep).step(samples) for keep in (0.1, 0.25))
    torch.testing.assert_close(few, one)


def test_a_sample_without_a_finite_gradient_gets_its_zero_shot_answer_and_is_counted(monkeypatch):
    stream = clip_like_stream(1, classes=4, dim=8, count=6)
    samples = with_views(stream, 8)
    adapter, expected = GSBias(stream.classifier), GSBias(stream.classifier).step(samples)
    scores = adapter._logits
    monkeypatch.setattr(adapter, "_logits", lambda given: scores(given).index_fill_(0, torch.tensor([2]), math.nan))
    found = adapter.step(samples)
    expected[2] = stream.classifier.logits(samples.features)[2]
    torch.testing.assert_close(found, expected)
    assert adapter.remarks() == ["gs-bias: 1 sample(s) had no finite gradient and got their zero-shot prediction"]
    adapter.predict(samples)
    assert int(adapter.without_gradient) == 1
    adapter.reset()
    assert adapter.remarks() == []


def test_a_run_and_a_method_on_top_pass_the_remark_on(monkeypatch):
    monkeypatch.setattr(GSBias, "_logits", lambda self, given: torch.full_like(self.zero_shot(given).logits, math.nan))
    stream = clip_like_stream(1, classes=4, dim=8, count=6)
    data = FeatureFile("made", with_views(stream, 8), stream.classifier, stream.labels.numpy())
    methods = {"gs-bias": {}, "combined": {"base": "gs-bias"}}
    said = "gs-bias: 6 sample(s) had no finite gradient and got their zero-shot prediction"
    for done in evaluate(data, methods, seeds=[1]):
        assert done.record()["remarks"] == [said], done.run.method


def test_a_live_classifier_gives_it_views_and_patches():
    classes, how = list(FASHION.class_names), {"method": "gs-bias", "views": 8, "cache": None}
    live = Classifier("embedded", classes, **how)
    (answer,) = live([FASHION.images[0]])
    raw = live.encoder.preparer(views=live.views)(FASHION.images[0], "", 0)
    seen = live.encoder.encode(torch.from_numpy(raw))
    patches = live.encoder.encode_tokens(torch.from_numpy(raw[:1]))
    logits = GSBias(live.classifier).step(Samples.of(seen[:1], views=seen[None], patches=patches))
    assert answer.label == classes[int(logits.argmax())]
    assert answer.probability == pytest.approx(float(logits.softmax(dim=1).max()), abs=1e-5)
    with pytest.raises(InvalidSamples, match="gs-bias needs 50 patches, but the samples have 49"):
        Classifier("embedded", classes, top_patches=50, **how)
    with pytest.raises(InvalidSamples, match="gs-bias needs 9 views, but the samples have 8"):
        Classifier("embedded", classes, first_views=9, **how)


@pytest.mark.extensive
def test_the_commands_run_it_on_stored_and_on_live_patches(pta, tmp_path):
    write_photos(tmp_path / "photos", 12)
    names, stored = write_classes(tmp_path / "classes.txt"), tmp_path / "f.safetensors"
    model = ("--model", "embedded", "--classes", names)
    assert pta("extract", tmp_path / "photos", *model, "--out", stored, "--views", "8").returncode == 0
    done = pta("eval", "--features", stored, "--method", "gs-bias")
    assert done.returncode == 2
    assert "gs-bias needs patches, which are missing; make them with pta extract --patches" in done.stderr
    call = ("extract", tmp_path / "photos", *model, "--out", stored, "--views", "8", "--patches", "--replace")
    assert pta(*call).returncode == 0
    done = pta("eval", "--features", stored, "--method", "gs-bias", "--json", "-")
    (record,) = json.loads(done.stdout)
    assert (record["n"], record["remarks"]) == (12, [])
    done = pta("predict", tmp_path / "photos", *model, "--method", "gs-bias", "--views", "8", "--out", "-")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 12

"""ETTA: the worked example, its prompts, and what its state carries."""

import numpy as np
import pytest
import torch
from refusals import refusal
from streams import clip_like_stream, prompts_around, with_views
from torch.nn.functional import normalize

import pta
from pta import Samples, ZeroShotClassifier, create_adapter, load_adapter
from pta.methods.classes import add_class
from pta.methods.etta import ETTA
from pta.reference.etta import etta_loop

PRINTED = {"atol": 1e-6, "rtol": 0}
RAW = torch.tensor([[1.3, 1, 1, 3], [1, 1.3, 1, 3], [1, 1, 1.3, 3]], dtype=torch.float64)
OFFSETS = torch.tensor([[0, 0, 0, 0], [0.1, 0, 0, 0], [0, 0.1, 0, 0], [0, 0, 0.1, 0], [0, 0, 0, 0.3]])
IMAGES = [
    *([1.25, 1.15, 1, 1], [1.1, 1.3, 1, 1], [1, 1.05, 1.4, 1], [1.3, 1.06, 1.04, 1], [1.2, 1.12, 1.1, 1.1]),
]
FEATURES = normalize(torch.tensor(IMAGES, dtype=torch.float64))
CLASSIFIER = ZeroShotClassifier(RAW, ["a", "b", "c"], prompt_features=RAW[:, None] + OFFSETS)
FUSED = [
    [0.999996, 0.000022, 0.000022],
    [0.941700, 0.947325, 0.343124],
    [0.928085, 0.928688, 0.947686],
    [0.941166, 0.932080, 0.925263],
    [0.945457, 0.941582, 0.936953],
]


@pytest.mark.parametrize("size", [5, 2, 1])
def test_worked_example(size):
    adapter = ETTA(CLASSIFIER, share=0.4)
    fused = torch.cat([adapter.step(part) for part in FEATURES.split(size)]) / 100
    np.testing.assert_allclose(fused, FUSED, **PRINTED)
    np.testing.assert_allclose(adapter.weights, [7.188916, 2.382832, 2.373672], **PRINTED)


def test_the_loop_gives_the_worked_example():
    arrays = (tensor.numpy() for tensor in (CLASSIFIER.anchors, FEATURES, CLASSIFIER.prompt_features))
    np.testing.assert_allclose(etta_loop(*arrays, share=0.4) / 100, FUSED, **PRINTED)


def test_prompts_that_are_all_alike_are_one_text():
    stream = clip_like_stream(1, classes=9, dim=16, count=60)
    alike = ZeroShotClassifier(
        stream.anchors, list("abcdefghi"), prompt_features=stream.anchors[:, None].expand(-1, 5, -1)
    )
    found, expected = (ETTA(alike, prompts=prompts).step(stream.features) for prompts in ("all", "one"))
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=0)


def test_the_state_is_the_weighted_mean_of_the_samples_of_each_zero_shot_class():
    stream = clip_like_stream(2, classes=6, dim=16, count=80)
    adapter = ETTA(stream.classifier, prompts="one")
    adapter.step(stream.features)
    cosines = stream.features @ stream.anchors.T
    for number in range(6):
        own = cosines.argmax(dim=1) == number
        weights = cosines[own, number].exp()
        torch.testing.assert_close(adapter.weights[number], weights.sum())
        torch.testing.assert_close(adapter.sums[number], weights @ stream.features[own])


def test_before_anything_is_learned_answers_are_zero_shot():
    stream = clip_like_stream(3, classes=6, dim=16, count=20)
    expected = stream.classifier.logits(stream.features)
    torch.testing.assert_close(ETTA(stream.classifier, prompts="one").predict(stream.features), expected)
    first = ETTA(stream.classifier, prompts="one", order="predict-first").step(stream.features[:1])
    torch.testing.assert_close(first, expected[:1])


def test_several_views_are_required_only_if_several_are_looked_at():
    stream = clip_like_stream(4, classes=5, dim=12, count=3)
    few = with_views(stream, 4)
    ETTA(stream.classifier).step(stream.features)
    ETTA(stream.classifier, first_views=4).step(few)
    looks_at_more = create_adapter("etta", stream.classifier, first_views=8)
    assert "needs 8 views, but the samples have 4" in refusal(looks_at_more.step, few)
    assert "etta needs views" in refusal(looks_at_more.step, stream.features)


# -- the prompts of a classifier --------------------------------------------------------------------------------------


def with_prompts(count):
    return ZeroShotClassifier(RAW, ["a", "b", "c"], prompt_features=prompts_around(RAW, count))


def test_fewer_than_five_prompts_are_refused_when_it_is_created():
    ETTA(with_prompts(5))
    ETTA(with_prompts(4), share=0.25)
    ETTA(with_prompts(4), prompts="one")
    assert refusal(ETTA, with_prompts(4)) == (
        "etta: a share of 0.2 of 4 prompts per class is none; use more templates, a larger share, or prompts=one"
    )


def test_a_classifier_without_prompts_is_refused_with_the_command_that_makes_them():
    without = ZeroShotClassifier(RAW, ["a", "b", "c"])
    command = "make them with pta extract --prompts, or choose prompts=one"
    for method, given in (("etta", {}), ("combined", {"base": "etta"})):
        lacks = f"{method} needs features of the single prompts, which are missing; {command}"
        assert refusal(create_adapter, method, without, **given) == lacks
    ETTA(without, prompts="one")


@pytest.mark.parametrize(
    ("prompts", "complaint"),
    [
        (torch.ones(3, 5), "must be 3×P×4, got shape (3, 5)"),
        (torch.ones(2, 5, 4), "must be 3×P×4"),
        (torch.ones(3, 0, 4), "must be 3×P×4"),
        (torch.zeros(3, 5, 4), "finite and not zero"),
        (torch.full((3, 5, 4), torch.nan), "finite and not zero"),
        ("texts", "cannot be read as numbers"),
    ],
    ids=str,
)
def test_features_of_prompts_that_do_not_fit_are_refused(prompts, complaint):
    assert complaint in refusal(ZeroShotClassifier, RAW, ["a", "b", "c"], prompt_features=prompts)


def test_some_classes_keep_their_prompts_and_prompts_change_the_fingerprint():
    part = CLASSIFIER.part([2, 0])
    assert part.class_names == ("c", "a")
    assert torch.equal(part.prompt_features, CLASSIFIER.prompt_features[[2, 0]])
    assert part.fingerprint != ZeroShotClassifier(part.anchors, ["c", "a"]).fingerprint
    assert CLASSIFIER.to(dtype=torch.float32).prompt_features.dtype == torch.float32
    assert CLASSIFIER.to(dtype=torch.float16).prompt_features.shape == (3, 5, 4)


def test_the_anchor_of_an_added_class_stands_for_each_of_its_prompts():
    adapter = ETTA(CLASSIFIER)
    adapter.step(FEATURES)
    grown = add_class(adapter, "d", FEATURES[0])
    assert torch.equal(grown.classifier.prompt_features[3], FEATURES[:1].expand(5, 4))
    assert torch.equal(grown.classifier.prompt_features[:3], CLASSIFIER.prompt_features)
    assert grown.step(FEATURES[:1]).argmax() == 3


def test_a_saved_state_carries_the_prompts_it_needs(tmp_path):
    adapter, path = ETTA(CLASSIFIER, share=0.4), tmp_path / "state.safetensors"
    adapter.step(FEATURES)
    adapter.save(path)
    expected = adapter.predict(FEATURES)
    for given in (None, CLASSIFIER, ZeroShotClassifier(RAW, ["a", "b", "c"])):
        assert torch.equal(load_adapter(path, given).predict(FEATURES), expected)
    assert "other templates" in refusal(load_adapter, path, with_prompts(5))
    for other in (ETTA(CLASSIFIER, prompts="one"), pta.PTA(CLASSIFIER)):
        other.save(path)
        assert load_adapter(path).classifier.prompt_features is None


def test_a_state_whose_sums_are_longer_than_their_weights_is_refused():
    adapter = ETTA(CLASSIFIER)
    adapter.step(FEATURES)
    snapshot = adapter.snapshot()
    snapshot.tensors["weights"].zero_()
    assert "sums are longer than their weights" in refusal(adapter.restore, snapshot)


def test_means_of_views_are_learned_as_they_are():
    stream = clip_like_stream(5, classes=5, dim=12, count=12)
    means = Samples.of(0.5 * stream.features, normalise=False)
    adapter = ETTA(stream.classifier, prompts="one")
    expected = etta_loop(stream.anchors.numpy(), means.features.numpy(), prompts="one")
    np.testing.assert_allclose(adapter.step(means), expected, atol=1e-9)

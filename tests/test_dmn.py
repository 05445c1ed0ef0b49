"""DMN: the worked numbers, what its memory takes and gives up, and what it refuses."""

import pytest
import torch
from streams import clip_like_stream, with_views
from test_ecalp import IMAGES, TEXT

from pta import Samples, ZeroShotClassifier, create_adapter
from pta.engines.caches.admission import EMPTY
from pta.errors import InvalidParameter, InvalidSamples, StateMismatch
from pta.methods.dmn import DMN

CLASSIFIER = ZeroShotClassifier(TEXT, ["a", "b", "c"])
WORKED = [
    [1.483344, 0.330205, 0.186451],
    [0.632849, 1.188384, 0.178767],
    [0.233825, 0.267255, 1.498920],
    [1.389594, 0.349243, 0.261162],
]
LAST = {"official": [1.079466, 0.516146, 0.404388], "tta-vlm": [1.068689, 0.522993, 0.408318]}


@pytest.mark.parametrize("size", [5, 2, 1])
@pytest.mark.parametrize("version", LAST)
def test_worked_numbers(version, size):
    adapter = DMN(CLASSIFIER, slots=2, version=version)
    answers = torch.cat([adapter.step(batch) for batch in IMAGES.split(size)]).exp()
    torch.testing.assert_close(answers, torch.tensor([*WORKED, LAST[version]]).double(), atol=1e-6, rtol=0)


@pytest.mark.parametrize("version", LAST)
def test_a_full_class_gives_up_its_largest_entropy(version):
    adapter = DMN(CLASSIFIER, slots=2, version=version)
    adapter.step(IMAGES)
    kept = {"official": [1.030444, 0.986760], "tta-vlm": [1.084984, 0.986760]}[version]
    torch.testing.assert_close(adapter.entropies[0], torch.tensor(kept).double(), atol=1e-4, rtol=0)
    assert (adapter.entropies[1:] < EMPTY).sum(dim=1).tolist() == [1, 1]


def test_without_weight_the_memory_leaves_zero_shot_as_it_is():
    stream = clip_like_stream(0, classes=5, dim=12, count=60)
    logits = DMN(stream.classifier, memory_weight=0.0).step(stream.features)
    torch.testing.assert_close(logits, stream.classifier.logits(stream.features).log_softmax(dim=1))


def test_a_class_without_samples_is_scored_by_its_text():
    stream = clip_like_stream(1, classes=5, dim=12, count=4)
    logits = DMN(stream.classifier).predict(stream.features)
    zero_shot = stream.classifier.logits(stream.features).log_softmax(dim=1)
    torch.testing.assert_close(logits.softmax(dim=1), zero_shot.exp())


@pytest.mark.parametrize(("scale", "beta"), [(1e4, 100.0), (0.01, 0.0)])
def test_far_keys_and_opposite_ones_give_finite_answers(scale, beta):
    stream = clip_like_stream(2, classes=5, dim=12, count=40)
    classifier = ZeroShotClassifier(stream.anchors.float(), list("abcde"), scale=scale)
    features = torch.stack([stream.features, -stream.features], dim=1).flatten(0, 1).float()
    assert DMN(classifier, slots=2, beta=beta).step(features).isfinite().all()


def test_features_in_half_precision_are_kept_as_they_came():
    stream = clip_like_stream(3, classes=5, dim=12, count=30)
    half = stream.features.half()
    adapters = [DMN(stream.to(torch.float32).classifier) for _ in range(2)]
    logits = [adapter.step(Samples(one)) for adapter, one in zip(adapters, (half, half.float()), strict=True)]
    assert torch.equal(*logits)
    assert torch.equal(*(adapter.keys for adapter in adapters))


def test_the_state_takes_the_slots_of_all_classes():
    classifier = clip_like_stream(4, classes=5, dim=12, count=1).to(torch.float32).classifier
    assert DMN(classifier).state_bytes == 5 * 50 * (12 * 4 + 8)


@pytest.mark.parametrize("slots", [0, -1, 1001])
def test_a_memory_without_rows_is_refused_in_one_line(slots):
    with pytest.raises(InvalidParameter, match=f"^slots must be a whole number from 1 to 1000, got {slots}$"):
        create_adapter("dmn", CLASSIFIER, slots=slots)


def test_too_few_views_are_refused():
    stream = clip_like_stream(5, classes=5, dim=12, count=6)
    adapter = DMN(stream.classifier, first_views=32)
    with pytest.raises(InvalidSamples, match="views"):
        adapter.step(stream.features)
    with pytest.raises(InvalidSamples, match="views"):
        adapter.step(with_views(stream, 12))


def test_a_state_with_a_free_slot_before_a_taken_one_is_refused():
    adapter = DMN(CLASSIFIER, slots=2)
    adapter.step(IMAGES)
    snapshot = adapter.snapshot()
    snapshot.tensors["entropies"][1] = snapshot.tensors["entropies"][1].flip(0)
    with pytest.raises(StateMismatch, match="a slot is taken behind one that is free"):
        adapter.restore(snapshot)

"""The zero-shot classifier: what it accepts, and what makes two of them equal."""

import numpy as np
import pytest
import torch

from pta import ZeroShotClassifier
from pta.errors import InvalidClassifier


def test_logits_are_scaled_cosines_plus_bias():
    classifier = ZeroShotClassifier([[2.0, 0.0], [0.0, 5.0]], ["a", "b"], scale=10.0, bias=-3.0)
    assert torch.allclose(classifier.logits(torch.tensor([[0.6, 0.8]])), torch.tensor([[3.0, 5.0]]))


def test_anchors_do_not_alias_the_callers_array():
    anchors = np.eye(2, dtype=np.float32)
    classifier = ZeroShotClassifier(anchors, ["a", "b"])
    anchors[:] = 9
    assert torch.equal(classifier.anchors, torch.eye(2))


def test_a_copy_in_another_precision_has_the_same_fingerprint():
    classifier = ZeroShotClassifier(np.random.default_rng(1).standard_normal((4, 8)).astype(np.float32), list("abcd"))
    assert classifier.to(dtype=torch.float64).fingerprint == classifier.fingerprint


def test_prompts_stay_with_the_classifier_and_are_no_part_of_what_it_is():
    known = ZeroShotClassifier(torch.eye(2), ["a", "b"], prompts=[["an a."], ["a b.", "the b."]])
    assert known.to(dtype=torch.float64).prompts == (("an a.",), ("a b.", "the b."))
    assert known.fingerprint == ZeroShotClassifier(torch.eye(2), ["a", "b"]).fingerprint
    with pytest.raises(InvalidClassifier, match="2 anchors but prompts of 1 classes"):
        ZeroShotClassifier(torch.eye(2), ["a", "b"], prompts=[["an a."]])


@pytest.mark.parametrize(
    "change", [{"class_names": ["a", "c"]}, {"scale": 50.0}, {"bias": 1.0}, {"anchors": [[1, 0], [1, 1]]}]
)
def test_any_difference_changes_the_fingerprint(change):
    base = {"anchors": [[1.0, 0.0], [0.0, 1.0]], "class_names": ["a", "b"], "scale": 100.0, "bias": 0.0}
    assert ZeroShotClassifier(**base).fingerprint != ZeroShotClassifier(**(base | change)).fingerprint


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (([[1.0, 0.0]], ["only"]), "at least two classes"),
        (([[1.0, 0.0], [0.0, 0.0]], ["a", "b"]), "anchor 1 is zero"),
        (([[1.0, float("nan")], [0.0, 1.0]], ["a", "b"]), "anchor 0 is not finite"),
        (([[1.0, 0.0], [0.0, 1.0]], ["a"]), "2 anchors but 1 class names"),
        (([1.0, 2.0], ["a", "b"]), "one row per class"),
        (([[1.0, 0.0], [0.0, 1.0]], ["a", "b"], 0.0), "scale must be"),
        (([[1.0, 0.0], [0.0, 1.0]], ["a", "b"], 1.0, float("inf")), "bias must be"),
    ],
)
def test_what_makes_no_classifier_is_refused(arguments, complaint):
    with pytest.raises(InvalidClassifier, match=complaint):
        ZeroShotClassifier(*arguments)

"""The zero-shot classifier: what it accepts, and what makes two of them equal."""

import pickle

import numpy as np
import pytest
import torch
from odd_tensors import ODD_TENSORS
from refusals import unless_refused

from pta import ZeroShotClassifier
from pta.errors import InvalidParameter


def test_logits_are_scaled_cosines_plus_bias():
    classifier = ZeroShotClassifier([[2.0, 0.0], [0.0, 5.0]], ["a", "b"], scale=10.0, bias=-3.0)
    assert torch.allclose(classifier.logits(torch.tensor([[0.6, 0.8]])), torch.tensor([[3.0, 5.0]]))


def test_anchors_do_not_alias_the_callers_array():
    anchors = np.eye(2, dtype=np.float32)
    classifier = ZeroShotClassifier(anchors, ["a", "b"])
    anchors[:] = 9
    assert torch.equal(classifier.anchors, torch.eye(2))


def test_anchors_by_columns_are_kept_by_rows():
    by_rows = torch.randn(4, 8, generator=torch.Generator().manual_seed(1))
    kept = ZeroShotClassifier(by_rows.T.contiguous().T, list("abcd"))
    assert kept.anchors.is_contiguous()
    assert torch.equal(kept.anchors, ZeroShotClassifier(by_rows, list("abcd")).anchors)


def test_a_copy_in_another_precision_has_the_same_fingerprint():
    classifier = ZeroShotClassifier(np.random.default_rng(1).standard_normal((4, 8)).astype(np.float32), list("abcd"))
    assert classifier.to(dtype=torch.float64).fingerprint == classifier.fingerprint


def test_what_is_kept_in_float64_belongs_to_one_classifier_and_to_no_copy():
    classifier = ZeroShotClassifier(np.random.default_rng(1).standard_normal((4, 8)).astype(np.float32), list("abcd"))
    before = pickle.dumps(classifier)
    assert torch.equal(classifier.exact_anchors, classifier.anchors.double())
    assert classifier.exact_anchors is classifier.exact_anchors
    assert pickle.dumps(classifier) == before
    wide = classifier.to(dtype=torch.float64)
    assert wide.exact_anchors is wide.anchors


def test_prompts_stay_with_the_classifier_and_are_no_part_of_what_it_is():
    known = ZeroShotClassifier(torch.eye(2), ["a", "b"], prompts=[["an a."], ["a b.", "the b."]])
    assert known.to(dtype=torch.float64).prompts == (("an a.",), ("a b.", "the b."))
    assert known.fingerprint == ZeroShotClassifier(torch.eye(2), ["a", "b"]).fingerprint
    with pytest.raises(InvalidParameter, match="2 anchors but prompts of 1 classes"):
        ZeroShotClassifier(torch.eye(2), ["a", "b"], prompts=[["an a."]])


@pytest.mark.parametrize(
    "change", [{"class_names": ["a", "c"]}, {"scale": 50.0}, {"bias": 1.0}, {"anchors": [[1, 0], [1, 1]]}]
)
def test_any_difference_changes_the_fingerprint(change):
    base = {"anchors": [[1.0, 0.0], [0.0, 1.0]], "class_names": ["a", "b"], "scale": 100.0, "bias": 0.0}
    assert ZeroShotClassifier(**base).fingerprint != ZeroShotClassifier(**(base | change)).fingerprint


NO_NUMBERS = (float("nan"), float("inf"), 10**400, "100", None, 1j, True, torch.ones(2), torch.ones((), device="meta"))
NO_SCALES = (*NO_NUMBERS, 0.0, -1.0, 10_001.0, 1e39)
NO_BIASES = (*NO_NUMBERS, -10_001.0, 1e39)
NO_NAMES = (5, None, "ab", [1, 2], [None, "b"], [["a"], "b"], np.array([1, 2]), torch.ones(2))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (([[1.0, 0.0]], ["only"]), "at least two classes"),
        (([[1.0, 0.0], [0.0, 0.0]], ["a", "b"]), "anchor 1 is zero"),
        (([[1.0, float("nan")], [0.0, 1.0]], ["a", "b"]), "anchor 0 is not finite"),
        (([[1.0, 0.0], [0.0, 1.0]], ["a"]), "2 anchors but 1 class names"),
        (([1.0, 2.0], ["a", "b"]), "one row per class"),
        *(((torch.eye(2), ["a", "b"], one), "scale must be a number above 0 and up to 10000") for one in NO_SCALES),
        *(((torch.eye(2), ["a", "b"], 1, one), "bias must be a number from -10000 to 10000") for one in NO_BIASES),
        *(((torch.eye(2), names), "class names must be a list of texts") for names in NO_NAMES),
        (([[True, False], [False, True]], ["a", "b"]), "real numbers"),
    ],
)
def test_what_makes_no_classifier_is_refused(arguments, complaint):
    with pytest.raises(InvalidParameter, match=complaint) as refused:
        ZeroShotClassifier(*arguments)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("prompts", [5, "ab", ["an a.", "a b."], [[1], [2]], [None, None]], ids=str)
def test_prompts_that_are_not_texts_of_each_class_are_refused(prompts):
    with pytest.raises(InvalidParameter, match="prompts"):
        ZeroShotClassifier(torch.eye(2), ["a", "b"], prompts=prompts)


@pytest.mark.parametrize("size", [3e38, 1e30, 1e-30, 1e-44])
def test_anchors_of_any_size_have_their_direction(size):
    anchors = torch.tensor([[1.0, 0.5, 0.0], [0.6, 0.0, 0.8]])
    unit = ZeroShotClassifier(anchors, ["a", "b"]).anchors
    tiny = size < torch.finfo(torch.float32).tiny  # such numbers have few digits
    scaled = ZeroShotClassifier(anchors * size, ["a", "b"]).anchors
    torch.testing.assert_close(scaled, unit, atol=0.1 if tiny else 1e-6, rtol=0)


def test_one_large_anchor_changes_no_bit_of_the_others():
    anchors = torch.randn(4, 8, generator=torch.manual_seed(0))
    large = anchors.clone()
    large[2] *= 1e30
    plain, other = (ZeroShotClassifier(one, list("abcd")).anchors for one in (anchors, large))
    assert torch.equal(plain[[0, 1, 3]], other[[0, 1, 3]])


@pytest.mark.parametrize("scale", [np.float32(50.0), torch.tensor(50.0, requires_grad=True), np.array(50), 50])
def test_a_scale_may_be_any_real_number(scale):
    assert ZeroShotClassifier(torch.eye(2), ["a", "b"], scale).scale == 50.0


@pytest.mark.filterwarnings("ignore")  # of torch, about tensors of some kinds
@pytest.mark.parametrize("kind", ODD_TENSORS)
def test_odd_anchors_are_refused_in_one_line_or_read_as_the_numbers_they_have(kind):
    anchors = ODD_TENSORS[kind](torch.eye(3) + 0.5)
    classifier = unless_refused(lambda: ZeroShotClassifier(anchors, ["a", "b", "c"]))
    if classifier is not None:
        assert type(classifier.anchors) is torch.Tensor
        assert not classifier.anchors.requires_grad
        torch.testing.assert_close(classifier.anchors.norm(dim=1), torch.ones(3).to(classifier.anchors))

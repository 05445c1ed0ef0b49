"""ECALP: the worked numbers, and what is kept where there is no room for all samples."""

import pytest
import torch
from streams import clip_like_stream
from torch.nn.functional import normalize

from pta import ZeroShotClassifier, create_adapter
from pta.errors import InvalidParameter, StateMismatch
from pta.methods.ecalp import _ROW, ECALP
from pta.reference.ecalp import ecalp_loop

TEXT = torch.tensor([[1.3, 1, 1, 3], [1, 1.3, 1, 3], [1, 1, 1.3, 3]], dtype=torch.float64)
IMAGES = torch.tensor(
    [[1.25, 1.15, 1, 1], [1.1, 1.3, 1, 1], [1, 1.05, 1.4, 1], [1.3, 1.06, 1.04, 1], [1.2, 1.12, 1.1, 1.1]],
    dtype=torch.float64,
)
CLASSIFIER = ZeroShotClassifier(TEXT, ["a", "b", "c"], scale=1.0)
WORKED = [
    ({}, [[0.510287, 0.499088, 0.482660], [0.397517, 0.399687, 0.374345], [0.315390, 0.318589, 0.331569]]),
    (
        {"text_neighbours": 2, "neighbours": 3},
        [
            [0.587107, 0.574223, 0],
            [0.449017, 0.445802, 0],
            [0.158667, 0.368719, 0.427096],
            [0.390623, 0.345304, 0.084179],
        ],
    ),
]


def full_of(stream, **parameters):
    adapter = ECALP(stream.classifier, **parameters)
    adapter.step(stream.features)
    return adapter


def exact_lists(adapter):
    """The numbers of the rows that are most similar to each row, the weight on the older of two."""
    rows, weighted = adapter.rows, adapter.rows * adapter.weights
    older = adapter.ages[:, None] <= adapter.ages
    norms = torch.where(older, adapter.norms[:, None], adapter.norms)
    return (weighted @ rows.T / norms).topk(adapter.neighbours).indices


@pytest.mark.parametrize(("parameters", "expected"), WORKED)
def test_worked_numbers(parameters, expected):
    answers = ECALP(CLASSIFIER, **parameters).step(IMAGES.float()[: len(expected)])
    torch.testing.assert_close(answers.double(), torch.tensor(expected).double(), atol=1.5e-6, rtol=0)


def test_the_first_label_is_kept_with_a_fifth_of_what_arrived():
    adapter = ECALP(CLASSIFIER)
    adapter.step(IMAGES[:1])
    assert (adapter.filled.sum(), adapter.labels[0]) == (1, 0)
    torch.testing.assert_close(adapter.seeds[0].item(), 0.510287 / 5, atol=1e-6, rtol=0)


@pytest.mark.parametrize("room", [60, 61, 500])
def test_with_room_for_all_samples_nothing_changes(room):
    stream = clip_like_stream(0, classes=6, dim=16, count=60, duplicates=0.2)
    bounded, unbounded = (ECALP(stream.classifier, max_rows=rows) for rows in (room, None))
    assert torch.equal(bounded.step(stream.features), unbounded.step(stream.features))


def test_without_a_bound_the_state_grows_and_is_loaded_as_it_is():
    stream = clip_like_stream(1, classes=6, dim=16, count=600)
    adapter, bounded = (ECALP(stream.classifier, max_rows=rows) for rows in (None, 600))
    answers = [adapter.step(stream.features[:200]), adapter.step(stream.features[200:])]
    assert torch.equal(torch.cat(answers), bounded.step(stream.features))
    assert adapter.filled.sum() == 600 < len(adapter.rows)
    twin = ECALP(stream.classifier, max_rows=None)
    twin.restore(adapter.snapshot())
    assert torch.equal(twin.step(stream.features[:9]), adapter.step(stream.features[:9]))
    adapter.reset()
    assert len(adapter.rows) == len(ECALP(stream.classifier, max_rows=None).rows)


@pytest.mark.parametrize("in_order", [False, True])
def test_lists_that_lost_a_row_are_filled_again(in_order):
    adapter = full_of(clip_like_stream(2, classes=6, dim=16, count=200, in_order=in_order), max_rows=30)
    assert adapter.filled.all()
    assert adapter.ages.unique().numel() == 30
    assert torch.equal(adapter.lists[:, :8] & _ROW, exact_lists(adapter))


def test_the_label_with_most_rows_gives_one_up():
    stream = clip_like_stream(3, classes=6, dim=16, count=200, in_order=True)
    adapter = full_of(stream, max_rows=30)
    assert adapter.labels.bincount(minlength=6).min() >= 3  # the oldest classes among them


def test_reset_of_classes_drops_the_rows_with_their_labels():
    adapter = full_of(clip_like_stream(4, classes=6, dim=16, count=100), max_rows=60)
    kept = ~torch.isin(adapter.labels, torch.tensor([1, 4]))
    adapter.reset(classes=[1, 4])
    assert torch.equal(adapter.filled, kept)
    assert 0 < kept.sum() < 60
    listed = adapter.lists[adapter.lists > _ROW] & _ROW
    assert adapter.filled[listed].all()
    assert (adapter.lists[kept][:, :8] > _ROW).all()
    assert not adapter.lists[~kept].any()


def test_the_bytes_of_the_state_follow_from_the_parameters():
    classifier = clip_like_stream(5, classes=6, dim=16, count=1).classifier
    assert ECALP(classifier, max_rows=100).state_bytes == 100 * (8 * (16 + 10 + 3 + 3 + 4) + 1)


def test_lists_that_name_rows_that_are_not_there_are_refused():
    adapter = full_of(clip_like_stream(6, classes=6, dim=16, count=20), max_rows=30)
    for number in (25, 30, 2**31):
        snapshot = adapter.snapshot()
        snapshot.tensors["lists"][0, 0] += number - (snapshot.tensors["lists"][0, 0] & _ROW)
        with pytest.raises(StateMismatch, match="lists name rows that do not exist"):
            adapter.restore(snapshot)


def test_pieces_of_different_sizes_are_refused():
    adapter = full_of(clip_like_stream(6, classes=6, dim=16, count=20), max_rows=None)
    snapshot = adapter.snapshot()
    snapshot.tensors["labels"] = snapshot.tensors["labels"][:-1]
    with pytest.raises(StateMismatch, match="its pieces have different numbers of rows"):
        adapter.restore(snapshot)


@pytest.mark.parametrize("rows", [0, -1, 2.5, "all"])
def test_no_rows_are_refused_in_one_line(rows):
    with pytest.raises(InvalidParameter, match=r"^max_rows must be a whole number from 1 to 1000000, got .*$"):
        create_adapter("ecalp", CLASSIFIER, max_rows=rows)


@pytest.mark.parametrize("seed", [10, 95, 265])
def test_two_classes_of_the_same_text_leave_a_batch_equal_to_the_loop(seed):
    stream = clip_like_stream(seed, classes=7, dim=5, count=40, spread=0.5)
    anchors = torch.cat([stream.anchors[:6], stream.anchors[:1]]).double()
    classifier, features = ZeroShotClassifier(anchors, list("abcdefg")), stream.features.double()
    at_once = ECALP(classifier).step(features)
    one_by_one = ECALP(classifier)
    torch.testing.assert_close(torch.cat([one_by_one.step(one) for one in features.split(1)]), at_once)
    torch.testing.assert_close(torch.from_numpy(ecalp_loop(classifier.anchors.numpy(), features.numpy())), at_once)


def test_texts_that_do_not_differ_leave_the_weights_at_zero():
    classifier = ZeroShotClassifier(normalize(torch.ones(3, 4)), ["a", "b", "c"])
    assert ECALP(classifier).step(IMAGES.float()).isfinite().all()

"""Samples are checked before anything learns from them."""

import math

import numpy as np
import pytest
import torch

from pta import Samples
from pta.errors import InvalidSamples


def test_rows_become_unit_length():
    assert torch.allclose(Samples.of([[3.0, 4.0], [0.0, 2.0]]).features.norm(dim=1), torch.ones(2))


def test_averaged_views_keep_their_length_when_the_caller_says_so():
    mean_of_views = [[0.3, 0.4]]
    assert Samples.of(mean_of_views, normalise=False).features.norm() == pytest.approx(0.5)


def test_samples_are_a_copy_of_what_was_given():
    given = np.array([[1.0, 0.0]], dtype=np.float32)
    samples = Samples.of(given, normalise=False)
    given[:] = 7
    assert samples.features.tolist() == [[1.0, 0.0]]


def test_half_precision_is_widened_and_double_kept():
    assert Samples.of(np.ones((1, 2), np.float16)).features.dtype == torch.float32
    assert Samples.of(np.ones((1, 2), np.float64)).features.dtype == torch.float64


@pytest.mark.parametrize(
    ("features", "complaint"),
    [
        (torch.zeros(0, 3), "no samples"),
        (torch.ones(3), "one row a sample"),
        (torch.ones(2, 3, 4), "one row a sample"),
        ([[1.0, math.nan]], "row 0 .* not finite"),
        ([[1.0, 1.0], [math.inf, 1.0]], "row 1 .* not finite"),
        ([[1.0, 1.0], [0.0, 0.0]], "row 1 .* zero"),
        ([["a", "b"]], "cannot be read as numbers"),
        (torch.ones(1, 2, dtype=torch.complex64), "real numbers"),
    ],
)
def test_what_has_no_direction_is_refused_with_its_place(features, complaint):
    with pytest.raises(InvalidSamples, match=complaint):
        Samples.of(features)


def test_batches_cover_the_samples_in_order():
    samples = Samples.of(torch.eye(5))
    assert [len(batch) for batch in samples.batches(2)] == [2, 2, 1]
    assert torch.equal(torch.cat([batch.features for batch in samples.batches(2)]), torch.eye(5))

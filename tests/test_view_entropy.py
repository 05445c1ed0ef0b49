"""The entropy of views together: which views it is of, its value, and its gradient."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pta.engines.prompts.view_entropy import by_entropy, entropy_by_bias, entropy_of_mean, most_confident, number_kept


def test_a_tenth_of_64_views_are_the_six_of_the_lowest_entropy():
    assert number_kept(64, 0.1) == 6
    order = torch.randperm(64, generator=torch.Generator().manual_seed(0))
    confidence = torch.empty(64, dtype=torch.float64)
    confidence[order] = torch.arange(64, 0, -1, dtype=torch.float64)  # order[0] is the most confident
    z = torch.stack([confidence, torch.zeros(64), torch.zeros(64)], dim=1)[None]
    assert by_entropy(z)[0, :6].tolist() == order[:6].tolist()
    torch.testing.assert_close(most_confident(z, 6), z[:, order[:6]].softmax(dim=2))


def test_at_least_one_view_is_kept():
    assert [number_kept(views, 0.1) for views in (1, 9, 10, 19, 20)] == [1, 1, 1, 1, 2]


def test_of_equally_sure_views_the_first_comes_first():
    z = torch.tensor([[[0.0, 2.0], [2.0, 0.0], [3.0, 0.0], [0.0, 2.0]]])
    assert by_entropy(z).tolist() == [[2, 0, 1, 3]]


def test_the_entropy_of_two_rows_is_that_of_their_mean_probability():
    """softmax(ln 3, 0) = (3/4, 1/4) and softmax(0, 0) = (1/2, 1/2), so the mean is (5/8, 3/8)."""
    value, _ = entropy_of_mean(torch.tensor([[math.log(3), 0.0], [0.0, 0.0]], dtype=torch.float64))
    assert float(value) == pytest.approx(-(5 / 8) * math.log(5 / 8) - (3 / 8) * math.log(3 / 8), abs=1e-14)


def test_rows_whose_confidence_rounds_to_one_have_a_finite_entropy_and_gradient():
    value, gradient = entropy_of_mean(torch.tensor([[900.0, 0.0, -900.0], [-900.0, 0.0, 900.0]]))
    assert float(value) == pytest.approx(math.log(2))
    assert bool(torch.isfinite(gradient).all())


@given(st.integers(0, 1000), st.integers(1, 6), st.integers(2, 9), st.sampled_from([0.1, 3.0, 30.0]))
def test_the_gradient_is_the_one_of_automatic_differentiation(seed, rows, classes, spread):
    z = spread * torch.randn(2, rows, classes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    value, gradient = entropy_of_mean(z)
    z.requires_grad_()
    p = z.softmax(dim=-1).mean(dim=-2)
    by_definition = -torch.xlogy(p, p).sum(dim=-1)
    torch.testing.assert_close(value, by_definition.detach(), atol=1e-12, rtol=1e-10)
    (expected,) = torch.autograd.grad(by_definition.sum(), z)
    torch.testing.assert_close(gradient, expected, atol=1e-12, rtol=1e-8)
    by_bias = entropy_by_bias(z.detach().softmax(dim=-1))
    torch.testing.assert_close(by_bias, (value, gradient.sum(dim=-2)), atol=1e-12, rtol=1e-8)

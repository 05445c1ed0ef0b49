"""Samples are checked before anything learns from them."""

import math
from contextlib import suppress
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
from odd_tensors import ODD_TENSORS
from refusals import unless_refused
from torch.nn.functional import normalize

from pta import Samples, create_adapter, list_adapters
from pta.errors import InvalidSamples
from pta.methods.toys import ToyStream


def test_rows_become_unit_length_unless_the_caller_says_otherwise():
    assert torch.allclose(Samples.of([[3.0, 4.0], [0.0, 2.0]]).features.norm(dim=1), torch.ones(2))
    assert Samples.of([[0.3, 0.4]], normalise=False).features.norm() == pytest.approx(0.5)  # a mean of views


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
        (torch.ones(3), "one row per sample"),
        (torch.ones(2, 3, 4), "one row per sample"),
        ([[1.0, math.nan]], "row 0 .* not finite"),
        ([[1.0, 1.0], [math.inf, 1.0]], "row 1 .* not finite"),
        ([[1.0, 1.0], [0.0, 0.0]], "row 1 .* zero"),
        ([["a", "b"]], "cannot be read as numbers"),
        (torch.ones(1, 2, dtype=torch.complex64), "real numbers"),
        (torch.ones(1, 2, dtype=torch.bool), "real numbers"),
    ],
)
def test_what_has_no_direction_is_refused_with_its_place(features, complaint):
    with pytest.raises(InvalidSamples, match=complaint):
        Samples.of(features)


# -- views and raw -------------------------------------------------------------------------------------------------


def full_samples(count=5, dim=4):
    random = torch.manual_seed(0)
    return Samples(
        0.9 * normalize(torch.randn(count, dim, generator=random)),
        views=torch.randn(count, 7, dim, generator=random),
        most_confident=torch.randn(count, 2, dim, generator=random),
        raw=torch.randn(count, 3, 6, 6, generator=random),
        patches=torch.randn(count, 9, dim, generator=random),
        generated=torch.randn(count, 3, dim, generator=random),
    )


@pytest.mark.parametrize("rows", [slice(1, 3), torch.tensor([4, 0, 2])], ids=["slice", "rows"])
def test_everything_known_of_a_sample_stays_with_it(rows):
    samples = full_samples()
    for name, tensor in samples[rows].tensors().items():
        assert torch.equal(tensor, samples.tensors()[name][rows]), name


def test_batches_carry_everything_in_order():
    samples = full_samples()
    assert [len(batch) for batch in samples.batches(2)] == [2, 2, 1]
    for name, tensor in samples.tensors().items():
        assert torch.equal(torch.cat([batch.tensors()[name] for batch in samples.batches(2)]), tensor), name


@pytest.mark.parametrize("names", [[], ["views"], ["raw"], ["most_confident"], ["views", "most_confident", "raw"]])
def test_samples_provide_what_they_were_given(names):
    samples = full_samples()
    given = Samples(samples.features, **{name: getattr(samples, name) for name in names})
    assert given.provides == given[1:3].provides == given.to(torch.zeros(1)).provides == {"features", *names}


def test_views_become_unit_rows_where_they_are_used_and_features_stay():
    samples = full_samples()
    used = samples.to(torch.zeros(1, dtype=torch.float64))
    for name in ("views", "most_confident", "patches", "generated"):
        expected = normalize(getattr(samples, name).double(), dim=2)
        torch.testing.assert_close(getattr(used, name), expected)
    assert torch.equal(used.features, samples.features.double())
    assert torch.equal(used.raw, samples.raw)


def test_views_and_raw_are_kept_beside_converted_features_and_a_mean_of_views_keeps_its_length():
    samples = full_samples()
    made = Samples.of(samples.features.numpy(), views=samples.views.numpy(), raw=samples.raw)
    assert torch.allclose(made.features.norm(dim=1), torch.ones(5))
    assert torch.equal(made.views, samples.views)
    assert made.raw is samples.raw
    mean = Samples.of(samples.features, most_confident=samples.most_confident)
    assert torch.equal(mean.features, samples.features)
    assert mean.most_confident is samples.most_confident


@pytest.mark.parametrize("name", ["views", "most_confident", "patches", "generated"])
@pytest.mark.parametrize(
    ("views", "complaint"),
    [
        (torch.ones(5, 4), r"must be a floating-point tensor B×n×d, got \(5, 4\)"),
        (torch.ones(5, 3, 4, dtype=torch.int64), r"must be a floating-point tensor B×n×d, got \(5, 3, 4\)"),
        (torch.ones(5, 0, 4), r"must be a floating-point tensor B×n×d, got \(5, 0, 4\)"),
        ([[1.0]], r"must be a tensor, got list; Samples.of\(...\) converts arrays and lists"),
        (torch.ones(4, 3, 4), r"have shape \(4, 3, 4\), expected 5×n×4"),
        (torch.ones(5, 3, 6), r"have shape \(5, 3, 6\), expected 5×n×4"),
    ],
    ids=["two dimensions", "integers", "no view", "a list", "other samples", "another dimension"],
)
def test_views_of_another_shape_are_refused_in_one_line(name, views, complaint):
    with pytest.raises(InvalidSamples, match=rf"^{name} {complaint}$"):
        Samples(full_samples().features, **{name: views})


@pytest.mark.parametrize("name", ["views", "most_confident", "patches", "generated"])
@pytest.mark.parametrize("value", [0.0, math.nan, math.inf, -math.inf, 3e38])
def test_a_view_without_direction_is_refused_with_its_place(name, value):
    views = torch.ones(5, 3, 4)
    views[2, 1] = value
    with pytest.raises(InvalidSamples, match=rf"^{name}: number 1 of sample 2 is (zero|not finite)"):
        Samples.of(full_samples().features, **{name: views})


@pytest.mark.parametrize(
    ("raw", "complaint"),
    [
        (torch.ones(5), r"raw must have a row for each of 5 samples, got shape \(5,\)"),
        (torch.ones(4, 3, 6, 6), r"raw must have a row for each of 5 samples, got shape \(4, 3, 6, 6\)"),
        (torch.ones(5, 3).index_fill(0, torch.tensor([4]), math.nan), "raw: some numbers are NaN or Inf"),
        (torch.ones(5, 3, dtype=torch.complex64), "raw must be an ordinary dense tensor of real numbers"),
    ],
    ids=["one dimension", "other samples", "not finite", "complex"],
)
def test_raw_of_another_kind_is_refused_in_one_line(raw, complaint):
    with pytest.raises(InvalidSamples, match=rf"^{complaint}[^\n]*$"):
        Samples.of(torch.ones(5, 4), raw=raw)


def test_a_name_that_samples_do_not_have_is_answered_with_the_nearest():
    with pytest.raises(InvalidSamples, match="did you mean 'views'"):
        Samples.of(torch.ones(5, 4), view=torch.ones(5, 2, 4))


# -- how long a row may be -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [Samples, lambda features: Samples.of(features, normalise=False)])
def test_a_row_that_keeps_its_length_is_at_most_one_long(make):
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        rounded = normalize(torch.randn(50, 64, generator=torch.manual_seed(0))).to(dtype)
        make(rounded)  # a unit row stays one when it is rounded
        with pytest.raises(InvalidSamples, match=r"row 3 .* long, more than 1\.0"):
            make(torch.where(torch.arange(50)[:, None] == 3, 1.02 * rounded, rounded).to(dtype))


@pytest.mark.parametrize("length", [1e-5, 1.0, 1e18])
def test_rows_of_any_usual_length_are_scaled_to_one(length):
    unit = normalize(torch.randn(5, 8, generator=torch.manual_seed(0)))
    torch.testing.assert_close(Samples.of(0.5 * length * unit).features, unit)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_row_whose_squares_are_too_large_is_refused(dtype):
    with pytest.raises(InvalidSamples, match=r"row 1 .* too large"):
        Samples.of(torch.tensor([[1.0, 0.0], [3e38, 3e38]], dtype=dtype))


@pytest.mark.parametrize("name", list_adapters())
def test_no_length_of_views_or_features_makes_a_method_non_finite(name):
    stream = ToyStream.make(partial(create_adapter, name), 1)
    adapter, tensors = stream.adapter(), stream.samples[:8].tensors()
    for changed, length, dtype in product(
        ["features", "views", "patches", "generated"], [1e18, 1e25, 3e38], [torch.float32, torch.float64]
    ):
        with suppress(InvalidSamples):
            adapter.step(Samples.of(**tensors | {changed: (length * tensors[changed].double()).to(dtype)}))
    assert adapter.step(stream.samples).isfinite().all()


# -- tensors of other kinds ----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")  # of torch, about tensors of some kinds
@pytest.mark.parametrize("kind", ODD_TENSORS)
@pytest.mark.parametrize("name", ["features", "views", "most_confident", "raw", "patches", "generated"])
def test_an_odd_tensor_is_refused_in_one_line_or_read_as_the_numbers_it_has(kind, name):
    plain = full_samples().tensors()
    for make in (Samples, Samples.of):
        odd = ODD_TENSORS[kind](plain[name])
        samples = unless_refused(lambda make=make, odd=odd: make(**{"features": plain["features"]} | {name: odd}))
        if samples is not None:
            given = samples.tensors().get(name, plain["features"])
            assert type(given) is torch.Tensor
            assert not given.requires_grad
            assert given.isfinite().all()


def test_arrays_in_reverse_or_of_another_byte_order_are_read():
    given = np.arange(1.0, 7.0).reshape(2, 3)
    expected = Samples.of(given).features
    assert torch.equal(Samples.of(given.astype(">f8")).features, expected)
    assert torch.equal(Samples.of(given[::-1]).features, expected.flip(0))


@pytest.mark.parametrize("size", [0, -1])
def test_batches_of_no_size_are_refused(size):
    with pytest.raises(InvalidSamples, match="1 or more"):
        list(full_samples().batches(size))

"""Farthest points and neighbours are those of the definitions, point by point."""

from importlib.util import find_spec

import numpy as np
import pytest
import torch
from effort import repeated
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pta.door.points.groups import farthest_points, nearest_by_product, nearest_points

# Few different whole numbers make duplicates and ties, and their distances are exact in every precision.
CLOUDS = st.tuples(st.integers(1, 4), st.integers(1, 20), st.just(3)).flatmap(
    lambda shape: arrays(np.float32, shape, elements=st.integers(-3, 3).map(float))
)
NEAREST = [nearest_points, nearest_by_product]
if find_spec("numba"):
    from pta.door.points.numba_neighbours import nearest_by_numba

    NEAREST.append(nearest_by_numba)
FORMS = [("deterministic", 1e-3), ("legacy", -1.0)]


def by_definition(points, count, start, least_norm):
    """The numbers of the centres, by a loop over points."""
    chosen, nearest = [start], [1e10] * len(points)
    for _ in range(count - 1):
        best, farthest = -1.0, 0
        for number, point in enumerate(points):
            if (point**2).sum() > least_norm:
                nearest[number] = min(nearest[number], ((point - points[chosen[-1]]) ** 2).sum())
                if nearest[number] > best:
                    best, farthest = nearest[number], number
        chosen.append(farthest)
    return chosen


@given(clouds=CLOUDS, count=st.integers(1, 25), form=st.sampled_from(FORMS), seed=st.integers(0, 99))
@settings(max_examples=repeated(150), deadline=None)
def test_farthest_points_are_those_of_a_loop_over_points(clouds, count, form, seed):
    sampling, least_norm = form
    generator = torch.Generator().manual_seed(seed)
    found = farthest_points(torch.from_numpy(clouds), count, sampling=sampling, generator=generator)
    starts = [0] * len(clouds)
    if sampling == "legacy":
        starts = torch.randint(clouds.shape[1], (len(clouds),), generator=generator.manual_seed(seed)).tolist()
    assert found.tolist() == [by_definition(p, count, s, least_norm) for p, s in zip(clouds, starts, strict=True)]


def test_points_near_the_origin_are_centres_only_if_they_come_first():
    cloud = torch.tensor([[[0.01, 0, 0], [0.03, 0, 0], [-0.03, 0.02, 0], [0.2, 0, 0]]])
    assert set(farthest_points(cloud, 4)[0].tolist()) == {0, 2, 3}
    assert set(farthest_points(cloud, 4, sampling="legacy")[0].tolist()) == {0, 1, 2, 3}
    assert farthest_points(cloud[:, :2], 3).tolist() == [[0, 0, 0]], "no other point may be chosen"


def test_legacy_distances_are_in_half_precision():
    cloud = torch.tensor([[[0, 0, 0], [1, 0, 0], [1.0001, 0, 0]]])
    generator = torch.Generator()
    starts = {}
    for seed in range(20):
        chosen = farthest_points(cloud, 2, sampling="legacy", generator=generator.manual_seed(seed))[0].tolist()
        starts[chosen[0]] = chosen[1]
    assert starts[0] == 1, "1 and 1.0001 are equal there, and the first is taken"


@pytest.mark.parametrize("nearest", NEAREST)
@given(clouds=CLOUDS, groups=st.integers(1, 5), data=st.data())
@settings(max_examples=repeated(100), deadline=None)
def test_no_point_is_nearer_than_the_nearest(nearest, clouds, groups, data):
    count = data.draw(st.integers(1, clouds.shape[1]))
    centres = data.draw(
        arrays(np.float32, (len(clouds), groups, 3), elements=st.integers(-3, 3).map(float)), label="centres"
    )
    found = nearest(torch.from_numpy(clouds), torch.from_numpy(centres), count).numpy()
    distances = ((centres[:, :, None] - clouds[:, None]) ** 2).sum(-1)
    assert found.shape == (len(clouds), groups, count)
    assert all(len(set(row)) == count for row in found.reshape(-1, count).tolist())
    np.testing.assert_array_equal(
        np.sort(np.take_along_axis(distances, found, 2), 2), np.sort(distances, 2)[:, :, :count]
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("nearest", [nearest_points, nearest_by_product])
def test_in_every_precision_no_point_is_nearer_by_more_than_rounding(nearest, dtype):
    cloud = torch.rand(2, 500, 3, generator=torch.Generator().manual_seed(1)).to(dtype)
    found = nearest(cloud, cloud[:, :40], 32)
    distances = (cloud[:, :40, None].double() - cloud[:, None].double()).square().sum(-1)
    chosen = distances.gather(2, found).amax(dim=2)
    expected = distances.sort(dim=2).values[:, :, 31]
    torch.testing.assert_close(chosen, expected, rtol=0, atol=8 * torch.finfo(dtype).eps)

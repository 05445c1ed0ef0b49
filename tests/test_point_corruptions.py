"""The corruptions of clouds, against a second implementation from the text of ModelNet-C's rules, and by their laws."""

import math
from itertools import product

import numpy as np
import pytest

from pta.data.shifts.points import CORRUPTIONS, SEVERITIES, corrupt_as_published, corrupt_points, corrupted_size
from pta.errors import InvalidParameter, InvalidSamples

EVERY = list(product(CORRUPTIONS, SEVERITIES))
FLOAT64 = {"jitter", "rotate", "add_global"}


def some_clouds(count, points=1024, seed=3):
    clouds = np.random.default_rng(seed).standard_normal((count, points, 3))
    clouds /= np.linalg.norm(clouds, axis=2).max(axis=1)[:, None, None]
    return clouds.astype(np.float32)


class SecondImplementation:
    """Point by point, with the module-wide legacy generator of NumPy."""

    @staticmethod
    def order_by_draws(points):
        draws = [np.random.rand() for _ in points]
        return [points[i] for i in sorted(range(len(points)), key=draws.__getitem__)]

    @staticmethod
    def clusters(level):
        count = np.random.randint(1, 8)
        draws = [np.random.randint(count) for _ in range(100 * (level + 1))]
        return [draws.count(cluster) for cluster in range(count)]

    def scale(self, points, level):
        factors = [np.random.uniform(1 / (1.6 + 0.1 * level), 1.6 + 0.1 * level) for _ in range(3)]
        points = [np.float32(point * factors) for point in points]
        mean = np.mean(np.array(points, np.float64), axis=0)
        return [(point - mean) / max(math.dist(mean, other) for other in points) for point in points]

    def jitter(self, points, level):
        return [point + [0.01 * (level + 1) * np.random.randn() for _ in range(3)] for point in points]

    def rotate(self, points, level):
        most = math.radians(6 * (level + 1))
        x, y, z = (np.random.uniform(-most, most) for _ in range(3))
        turned = []
        for point in points:  # p·Rz·Ry·Rx: a row turns the other way round
            a, b, c = map(float, point)
            a, b = a * math.cos(z) + b * math.sin(z), -a * math.sin(z) + b * math.cos(z)
            a, c = a * math.cos(y) - c * math.sin(y), a * math.sin(y) + c * math.cos(y)
            b, c = b * math.cos(x) + c * math.sin(x), -b * math.sin(x) + c * math.cos(x)
            turned.append((a, b, c))
        return turned

    def dropout_global(self, points, level):
        return self.order_by_draws(points)[: (768, 640, 512, 384, 256)[level]]

    def dropout_local(self, points, level):
        for size in self.clusters(level):
            points = self.order_by_draws(points)
            points = sorted(points, key=lambda point, first=points[0]: float(np.sum((point - first) ** 2)))
            points = points[size:][::-1]
        return points

    def add_global(self, points, level):
        count = 10 * (level + 1)
        radii, cosines, turns = ([np.random.rand() for _ in range(count)] for _ in range(3))
        added = []
        for radius, cosine, turn in zip(radii, cosines, turns, strict=True):
            z, phi = 2 * cosine - 1, 2 * math.pi * turn
            flat = radius ** (1 / 3) * math.sqrt(1 - z * z)
            added.append((flat * math.cos(phi), flat * math.sin(phi), radius ** (1 / 3) * z))
        return [*points, *added]

    def add_local(self, points, level):
        sizes = self.clusters(level)
        points, added = self.order_by_draws(points), []
        for centre, size in zip(points, sizes, strict=False):
            spread = np.random.uniform(0.075, 0.125)
            for _ in range(size):
                point = centre + [spread * np.random.randn() for _ in range(3)]
                added.append(point / max(1, point @ point))
        return [*points, *added]


@pytest.mark.extensive
def test_in_the_published_order_every_number_is_that_of_a_second_implementation():
    clouds, second = some_clouds(3), SecondImplementation()
    np.random.seed(0)
    order = []
    for corruption, severity, found in corrupt_as_published(clouds):
        order.append((corruption, severity))
        expected = [getattr(second, corruption)(list(cloud), severity) for cloud in clouds]
        np.testing.assert_allclose(found, expected, atol=1e-12 if corruption in FLOAT64 else 2e-6)
        assert {one.dtype for one in found} == {np.dtype("f8" if corruption in FLOAT64 else "f4")}, "as in the files"
    published = ("scale", "jitter", "rotate", "dropout_global", "dropout_local", "add_global", "add_local")
    assert order == list(product(published, SEVERITIES))


@pytest.mark.parametrize(("corruption", "severity"), EVERY)
def test_what_is_drawn_depends_on_seed_number_corruption_and_severity_alone(corruption, severity):
    cloud = some_clouds(1)[0]

    def made(**other):
        given = {"corruption": corruption, "severity": severity, "seed": 1, "number": 5} | other
        return corrupt_points(cloud, **given)

    alone = made()
    made(number=6)
    np.testing.assert_array_equal(made(), alone)
    assert alone.shape == (corrupted_size(1024, corruption, severity), 3)
    for other in ({"seed": 2}, {"number": 6}):
        assert not np.array_equal(made(**other), alone)


def test_the_sizes_are_those_of_the_published_files():
    assert {name: [corrupted_size(1024, name, severity) for severity in SEVERITIES] for name in CORRUPTIONS} == {
        "add_global": [1034, 1044, 1054, 1064, 1074],
        "add_local": [1124, 1224, 1324, 1424, 1524],
        "dropout_global": [768, 640, 512, 384, 256],
        "dropout_local": [924, 824, 724, 624, 524],
        **dict.fromkeys(("rotate", "scale", "jitter"), [1024] * 5),
    }


def rows(cloud):
    return {tuple(point) for point in cloud.tolist()}


@pytest.mark.parametrize("severity", SEVERITIES)
def test_each_corruption_keeps_what_it_should(severity):
    cloud = some_clouds(1)[0]
    made = {name: corrupt_points(cloud, name, severity, seed=9) for name in CORRUPTIONS}

    def distances(points):
        return np.linalg.norm(points[:50, None] - points[None, :50], axis=2)

    np.testing.assert_allclose(distances(made["rotate"]), distances(cloud.astype(float)), atol=1e-12)
    assert not np.allclose(made["rotate"], cloud)
    assert np.linalg.norm(made["scale"], axis=1).max() == pytest.approx(1, abs=1e-6)
    np.testing.assert_allclose(made["scale"].mean(axis=0), 0, atol=1e-6)
    noise = made["jitter"] - cloud
    assert noise.std() == pytest.approx(0.01 * (severity + 1), rel=0.1)
    for name in ("dropout_global", "dropout_local"):
        assert rows(made[name]) < rows(cloud)
        assert len(rows(made[name])) == len(made[name]), "no point twice"
    for name in ("add_global", "add_local"):
        assert rows(cloud) < rows(made[name].astype(np.float32))
        assert np.linalg.norm(made[name][1024:], axis=1).max() <= 1 + 1e-6


def test_an_added_local_point_outside_the_unit_ball_is_divided_by_its_squared_norm():
    """Clusters about points of norm 3, so with squared norms about 9, land at radii about 1/3."""
    far = some_clouds(1, 600)[0]
    far *= 3 / np.linalg.norm(far, axis=1, keepdims=True)
    radii = np.linalg.norm(corrupt_points(far, "add_local", 2, seed=1)[600:], axis=1)
    assert radii.min() > 0.25
    assert radii.max() < 0.45


def test_points_added_everywhere_are_uniform_in_the_ball():
    cloud = some_clouds(1, 64)[0]
    added = np.concatenate([corrupt_points(cloud, "add_global", 4, seed=1, number=n)[64:] for n in range(100)])
    shells = np.histogram(np.linalg.norm(added, axis=1) ** 3, bins=10, range=(0, 1))[0]
    octants = np.bincount((added > 0) @ [1, 2, 4], minlength=8)
    for counts in (shells, octants):
        expected = len(added) / len(counts)
        assert ((counts - expected) ** 2 / expected).sum() < 35, "χ² with at most 9 degrees of freedom"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"severity": 5}, "severity must be a whole number from 0 to 4, got 5"),
        ({"severity": True}, "severity must be a whole number"),
        ({"corruption": "rotation"}, "did you mean 'rotate'"),
        ({"seed": -1}, "seed"),
        ({"number": -1}, "number must be"),
    ],
)
def test_what_does_not_exist_is_refused(change, complaint):
    given = {"corruption": "rotate", "severity": 0, "seed": 1} | change
    with pytest.raises(InvalidParameter, match=complaint):
        corrupt_points(some_clouds(1)[0], **given)


@pytest.mark.parametrize(
    ("points", "corruption", "severity"),
    [(299, "add_local", 2), (207, "dropout_local", 1), (31, "dropout_global", 4), (499, "add_local", 4)],
)
def test_a_cloud_with_too_few_points_is_refused(points, corruption, severity):
    complaint = f"cloud 7: {points} points are too few for {corruption} of severity {severity}"
    with pytest.raises(InvalidSamples, match=complaint):
        corrupt_points(some_clouds(1, points)[0], corruption, severity, seed=1, number=7)
    assert len(corrupt_points(some_clouds(1, points + 1)[0], corruption, severity, seed=1)) > 0


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda cloud: np.where(np.arange(1024)[:, None] == 11, np.nan, cloud), "point 11 is NaN"),
        (lambda cloud: cloud[:7], "7 points are too few"),
        (lambda cloud: cloud[:, :2], "must be n×3"),
        (lambda cloud: np.ones((20, 3)), "all 20 points are equal"),
        (lambda cloud: cloud.astype(str), "points cannot be read as numbers"),
        (lambda cloud: cloud.astype(float) * 1e300, "too large for float32"),
    ],
)
def test_a_cloud_that_is_none_is_refused_with_its_number_before_any_is_corrupted(spoil, complaint):
    good = some_clouds(1)[0]
    with pytest.raises(InvalidSamples, match=f"cloud 1: .*{complaint}"):
        next(corrupt_as_published([good, spoil(good)]))

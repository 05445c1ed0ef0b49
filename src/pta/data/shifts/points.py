"""The seven corruptions of ModelNet-C for point clouds, in severities 0 to 4.

Ren, Pan, Liu: "Benchmarking and Analyzing Point Cloud Classification under Corruptions" (ICML 2022),
https://arxiv.org/abs/2202.03377. A corruption draws from one generator and in one order. With the legacy generator of
NumPy and all clouds in the published order (`corrupt_as_published`), the clouds are those of the published files.
One thing differs: points at equal distances, which `dropout_local` takes in one order on every processor. The published
order was the processor's own.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from pta.core.parameters import require_count, require_seed
from pta.door.points.cloud import FEWEST_POINTS, Cloud, as_cloud, normalised
from pta.errors import InvalidParameter, InvalidSamples, naming, nearest, shown

Random = np.random.RandomState  # whose draws are the same in every release of NumPy
Points = NDArray[np.float32] | NDArray[np.float64]

CORRUPTIONS = ("add_global", "add_local", "dropout_global", "dropout_local", "rotate", "scale", "jitter")
"""In the order of the paper's tables."""

SEVERITIES = range(5)
DROPPED_SHARES = (0.25, 0.375, 0.5, 0.625, 0.75)
_PUBLISHED_ORDER = ("scale", "jitter", "rotate", "dropout_global", "dropout_local", "add_global", "add_local")
EVERY = tuple(product(_PUBLISHED_ORDER, SEVERITIES))
"""Every corruption and severity, in the published order."""

_PUBLISHED_SEED = 0
_MOST_CLUSTERS = 7


def corrupted_size(points: int, corruption: str, severity: int) -> int:
    """How many points a cloud has after a corruption; refused if it has too few for it.

    >>> [corrupted_size(1024, "dropout_global", severity) for severity in SEVERITIES]
    [768, 640, 512, 384, 256]
    """
    require_corruption(corruption, severity)
    change = {"add_global": 10, "add_local": 100, "dropout_local": -100}.get(corruption, 0) * (severity + 1)
    left = int(points * (1 - DROPPED_SHARES[severity])) if corruption == "dropout_global" else points + change
    if left < FEWEST_POINTS or (corruption == "add_local" and points < change):  # it adds at most as many as there are
        raise InvalidSamples(f"{points} points are too few for {corruption} of severity {severity}")
    return left


def require_corruption(corruption: str, severity: int) -> None:
    """Refuse what is not a corruption or not a severity."""
    if corruption not in CORRUPTIONS:
        raise InvalidParameter(f"unknown corruption {shown(corruption)}; {nearest(corruption, CORRUPTIONS)}")
    require_count("severity", severity, 0, SEVERITIES[-1])


def corrupt_points(cloud: object, corruption: str, severity: int, *, seed: int, number: int = 0) -> Points:
    """Cloud `number` under a corruption; what is drawn depends on nothing but the arguments.

    >>> grid = np.indices((4, 4, 4)).reshape(3, -1).T
    >>> corrupt_points(grid, "dropout_global", 2, seed=1).shape
    (32, 3)
    """
    require_corruption(corruption, severity)
    drawn = (require_seed(seed), require_count("number", number, 0, 2**32 - 1), CORRUPTIONS.index(corruption), severity)
    rng = Random(np.random.PCG64(np.random.SeedSequence(drawn)))
    with naming(f"cloud {number}"):
        return _BY_NAME[corruption](_usable(cloud, [(corruption, severity)]), severity, rng)


def corrupt_as_published(clouds: Sequence[object]) -> Iterator[tuple[str, int, list[Points]]]:
    """Each corruption, severity and its clouds, drawn as for the published files."""
    rng, usable = Random(_PUBLISHED_SEED), corruptible(clouds)
    for corruption, severity in EVERY:
        yield corruption, severity, [_BY_NAME[corruption](cloud, severity, rng) for cloud in usable]


def corruptible(clouds: Sequence[object]) -> list[Cloud]:
    """The clouds, if every corruption can be applied to each of them."""
    usable = []
    for number, cloud in enumerate(clouds):
        with naming(f"cloud {number}"):
            usable.append(_usable(cloud, EVERY))
    return usable


def _usable(cloud: object, corruptions: Sequence[tuple[str, int]]) -> Cloud:
    """A cloud that has enough points for these corruptions."""
    checked = as_cloud(cloud)
    for corruption, severity in corruptions:
        corrupted_size(len(checked), corruption, severity)
    return checked


def _scale(cloud: Cloud, severity: int, rng: Random) -> Points:
    """A factor for each axis, then the unit ball again."""
    most = (1.6, 1.7, 1.8, 1.9, 2.0)[severity]
    return normalised((cloud * rng.uniform(1 / most, most, 3)).astype(np.float32))


def _jitter(cloud: Cloud, severity: int, rng: Random) -> Points:
    """Noise on every coordinate."""
    return cloud + 0.01 * (severity + 1) * rng.standard_normal(cloud.shape)


def _rotate(cloud: Cloud, severity: int, rng: Random) -> Points:
    """A turn about each axis: a point p, a row, becomes p·Rz·Ry·Rx."""
    most = math.pi / 6 / 5 * (severity + 1)
    angles = rng.uniform(-most, most, 3)
    (cx, cy, cz), (sx, sy, sz) = np.cos(angles), np.sin(angles)
    about_x = np.array([[1, 0, 0], [0, cx, -sx], [0, sx, cx]])
    about_y = np.array([[cy, 0, sy], [0, 1, 0], [-sy, 0, cy]])
    about_z = np.array([[cz, -sz, 0], [sz, cz, 0], [0, 0, 1]])
    return cloud @ (about_z @ (about_y @ about_x))


def _dropout_global(cloud: Cloud, severity: int, rng: Random) -> Points:
    """A random subset."""
    return _shuffled(cloud, rng)[: corrupted_size(len(cloud), "dropout_global", severity)]


def _dropout_local(cloud: Cloud, severity: int, rng: Random) -> Points:
    """The points nearest to a few random ones are lost."""
    for lost in _cluster_sizes(severity, rng):
        cloud = _shuffled(cloud, rng)
        distances = np.sum((cloud - cloud[:1]) ** 2, axis=1)
        by_distance = np.argsort(distances, kind="stable")  # equal ones in one order on every processor
        cloud = cloud[by_distance[::-1][: len(cloud) - lost]]
    return cloud


def _add_global(cloud: Cloud, severity: int, rng: Random) -> Points:
    """Points uniform in the unit ball."""
    count = 10 * (severity + 1)
    radius = rng.uniform(0, 1, count) ** (1 / 3)
    theta = np.arccos(rng.uniform(-1, 1, count))
    phi = rng.uniform(0, 2 * np.pi, count)
    around = radius * np.sin(theta)
    return np.concatenate([cloud, np.stack([around * np.cos(phi), around * np.sin(phi), radius * np.cos(theta)], 1)])


def _add_local(cloud: Cloud, severity: int, rng: Random) -> Points:
    """Normal clusters about a few random points; an added point of squared norm q > 1 is divided by q, as published."""
    sizes = _cluster_sizes(severity, rng)
    cloud = _shuffled(cloud, rng)
    clusters = [
        centre + rng.uniform(0.075, 0.125) * rng.standard_normal((n, 3))
        for centre, n in zip(cloud, sizes, strict=False)
    ]
    added = np.concatenate(clusters).astype(np.float32)
    squares = np.sum(added**2, axis=1, keepdims=True)
    return np.concatenate([cloud, added / np.maximum(squares, 1)])


def _shuffled(cloud: Cloud, rng: Random) -> Cloud:
    return cloud[np.argsort(rng.random_sample(len(cloud)))]


def _cluster_sizes(severity: int, rng: Random) -> NDArray[np.int64]:
    """How many points each of one to seven clusters has, 100 per severity in all."""
    clusters = rng.randint(1, _MOST_CLUSTERS + 1)
    return np.bincount(rng.randint(clusters, size=100 * (severity + 1)), minlength=clusters)


_BY_NAME: dict[str, Callable[[Cloud, int, Random], Points]] = {
    "add_global": _add_global,
    "add_local": _add_local,
    "dropout_global": _dropout_global,
    "dropout_local": _dropout_local,
    "rotate": _rotate,
    "scale": _scale,
    "jitter": _jitter,
}

"""Run the demonstration on images or on point clouds, without a screen."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pta.core.parameters import require_count, require_seed
from pta.core.samples import Samples
from pta.data.fashion import load_fashion_test
from pta.data.features import FeatureFile
from pta.data.point_shapes import corrupted, load_shapes
from pta.data.prompts import build_classifier
from pta.data.shifts.images import apply_shift
from pta.data.shifts.points import require_corruption
from pta.measure.demo.result import DemoResult, Exhibit
from pta.measure.evaluate import evaluate
from pta.measure.report.pictures import turning_cloud
from pta.measure.stream_run import StreamRun, on_one_thread
from pta.models import EMBEDDED_TEMPLATES, EmbeddedEncoder
from pta.models.packaged.embedded_points import POINT_TEMPLATES, EmbeddedPointsEncoder

OnEncoded = Callable[[int, int], None] | None
"""Told how many samples of how many are encoded."""

ORDERS = 5  # of the stream, in which zero-shot and PTA are run; other methods take longer
PTA_H = 50.0  # as the paper's program has it for clouds
MOST_SHOWN = 520  # clouds: all furniture, and 20 procedural shapes of each class
_ORIGINS = {
    "procedural": "{} shapes that pta drew itself: composed solids of 26 classes with random proportions and parts",
    "furniture": "{} clouds of freely licensed models from Sweet Home 3D’s catalogues (authors and licences: "
    "pta/assets/furniture.csv)",
}

FASHION = Exhibit(
    thing="image",
    title="Fashion images, labelled by a small CLIP-like model",
    command="pta demo",
    call="run_demo(",
    severities="of 5",
    templates=EMBEDDED_TEMPLATES,
    origin="the first {} of Fashion-MNIST’s test file (Zalando SE, MIT licence)",
    model="the one embedded in pta, trained on Fashion-MNIST’s training images: a small model that knows only "
    "clothes, so these numbers say nothing about CLIP itself",
    others=("wpta", "tda", "sca", "onzeta", "bca", "adapt"),
    batch=100,
)


@on_one_thread()
def run_demo(
    shift: str = "gaussian_noise",
    severity: int = 3,
    seed: int = 1,
    *,
    limit: int | None = None,
    on_encoded: OnEncoded = None,
) -> DemoResult:
    """The packaged images, or the first `limit`, under a shift, labelled by all methods in the same order.

    The seed draws the shift's randomness and the order. `on_encoded` is told how many images of how many are encoded.

    >>> result = run_demo("blur", severity=2, limit=60)
    >>> len(result.zero_shot.predictions), len(result.pta.predictions)
    (60, 60)
    """
    require_seed(seed)
    test = load_fashion_test()
    if limit is not None:
        require_count("limit", limit, 1, len(test.images))
    originals = test.images[:limit]
    images = apply_shift(originals, shift, severity, seed)
    encoder = EmbeddedEncoder.load()
    return _demonstrate(
        *(FASHION, shift, severity, seed, limit, originals, images, encoder, on_encoded),
        encode=lambda batch: (encoder.encode(encoder.preprocess(batch)),),
        name=f"fashion/{shift}/{severity}",
        class_names=test.class_names,
        labels=test.labels[:limit].astype(np.int64),
    )


@on_one_thread()
def run_cloud_demo(
    source: str = "furniture",
    shift: str = "jitter",
    severity: int = 2,
    seed: int = 1,
    *,
    limit: int | None = None,
    on_encoded: OnEncoded = None,
) -> DemoResult:
    """The clouds of a source, or the first `limit`, under a corruption, labelled by all methods in the same order.

    The seed draws the corruption's randomness and the order. `on_encoded` is told how many clouds of how many are
    encoded.
    """
    require_seed(seed)
    require_corruption(shift, severity)
    test = load_shapes(source)
    if limit is not None:
        require_count("limit", limit, 1, len(test))
    originals, encoder = test.clouds[: limit or MOST_SHOWN], EmbeddedPointsEncoder.load()
    exhibit = Exhibit(
        thing="cloud",
        title="Point clouds, labelled by a small ULIP-like model",
        command=f"pta demo --modality points --source {source}",
        call=f'run_cloud_demo("{source}", ',
        severities="of 0 to 4",
        templates=POINT_TEMPLATES,
        origin=_ORIGINS[source],
        model="embedded-points, trained on procedural shapes and other furniture: a small model that knows nothing "
        "else, so these numbers say nothing about ULIP itself",
        others=("point-cache", "wpta", "tda", "sca", "onzeta", "bca", "adapt"),
        batch=20,
        parameters={"h": PTA_H},
        draw=turning_cloud,
    )
    clouds = corrupted(originals, (shift, severity), seed)
    return _demonstrate(
        *(exhibit, shift, severity, seed, limit, originals, clouds, encoder, on_encoded),
        encode=lambda batch: encoder.encode_with_tokens(torch.stack([torch.from_numpy(one).float() for one in batch])),
        name=f"point_shapes/{source}/{shift}/{severity}",
        class_names=test.class_names,
        labels=test.labels[: len(clouds)],
    )


def _demonstrate(
    exhibit: Exhibit,
    shift: str,
    severity: int,
    seed: int,
    limit: int | None,
    originals: Sequence[Any] | NDArray[Any],
    shifted: Sequence[Any] | NDArray[Any],
    encoder: EmbeddedEncoder | EmbeddedPointsEncoder,
    on_encoded: OnEncoded,
    *,
    encode: Callable[[Any], tuple[Tensor, ...]],
    name: str,
    class_names: Sequence[str],
    labels: NDArray[np.int64],
) -> DemoResult:
    """Zero-shot, PTA and other methods in the same order, and the first two in four other orders.

    `encode` gives the features of a batch, and patches if it has them.
    """
    encoded, speeds = [], []
    for start in range(0, len(shifted), exhibit.batch):
        batch, begun = shifted[start : start + exhibit.batch], time.perf_counter()
        encoded.append(encode(batch))
        speeds.append(1e6 * (time.perf_counter() - begun) / len(batch))
        if on_encoded:
            on_encoded(start + len(batch), len(shifted))
    features, *patches = (torch.cat(own) for own in zip(*encoded, strict=True))
    samples = Samples.of(features, patches=patches[0] if patches else None)
    data = FeatureFile(name, samples, build_classifier(encoder, class_names, exhibit.templates), labels)
    both, later = {"clip": {}, "pta": exhibit.parameters}, [(seed + number) % 2**63 for number in range(1, ORDERS)]
    methods = both | {name: {} for name in exhibit.others}
    zero_shot, adapted, *others = (one.run for one in evaluate(data, methods, [seed]))
    reordered = tuple(one.run for one in evaluate(data, both, later))
    return DemoResult(
        *(shift, int(severity), int(seed), limit, originals, shifted, data, encoder.fingerprint, median(speeds)),
        *(with_median_time(zero_shot, reordered), with_median_time(adapted, reordered), tuple(others)),
        *(reordered, exhibit),
    )


def with_median_time(run: StreamRun, reordered: Sequence[StreamRun]) -> StreamRun:
    """The run with the median of the times that its method took in all orders: one takes a few milliseconds."""
    times = [other.seconds for other in reordered if other.method == run.method]
    return replace(run, seconds=median([run.seconds, *times]))

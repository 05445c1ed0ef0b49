"""Run the demonstration, without a screen."""

from collections.abc import Callable, Iterator
from numbers import Integral

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pta.corruptions.shifts import apply_shift
from pta.datasets.fashion import load_fashion_test
from pta.datasets.features import FeatureFile
from pta.demo.result import DemoResult
from pta.encoders import EMBEDDED_TEMPLATES, EmbeddedEncoder
from pta.errors import InvalidParameter
from pta.evaluation.evaluate import evaluate
from pta.prompts import build_classifier
from pta.samples import Samples

_ENCODE_BATCH = 100  # small, so that a progress bar moves


def run_demo(
    shift: str = "gaussian_noise",
    severity: int = 3,
    seed: int = 1,
    *,
    limit: int | None = None,
    on_encoded: Callable[[int, int], None] | None = None,
) -> DemoResult:
    """The packaged images under a shift, labelled by zero-shot and by PTA in the same order.

    Args:
        shift: one of `pta.corruptions.shifts.SHIFTS`.
        severity: 1 … 5.
        seed: of the shift's randomness and of the stream's order.
        limit: use the first so many images only.
        on_encoded: told how many images are encoded, and of how many.

    >>> result = run_demo("blur", severity=2, limit=60)
    >>> len(result.zero_shot.predictions), len(result.pta.predictions)
    (60, 60)
    """
    if not isinstance(seed, Integral) or seed < 0:
        raise InvalidParameter(f"seed must be a whole number from 0, not {seed!r}")
    test = load_fashion_test()
    if limit is not None and not 1 <= limit <= len(test.images):
        raise InvalidParameter(f"limit must be from 1 to {len(test.images)}, not {limit!r}")
    originals, labels = test.images[:limit], test.labels[:limit].astype(np.int64)
    images = apply_shift(originals, shift, severity, seed)

    encoder = EmbeddedEncoder.load()
    classifier = build_classifier(encoder, test.class_names, EMBEDDED_TEMPLATES)
    encoded = []
    for features in _encode(encoder, images):
        encoded.append(features)
        if on_encoded:
            on_encoded(sum(map(len, encoded)), len(images))
    data = FeatureFile(f"fashion/{shift}/{severity}", Samples.of(torch.cat(encoded)), classifier, labels)
    zero_shot, adapted = evaluate(data, {"clip": {}, "pta": {}}, [int(seed)])
    return DemoResult(
        shift=shift,
        severity=int(severity),
        seed=int(seed),
        limit=limit,
        originals=originals,
        images=images,
        data=data,
        model_fingerprint=encoder.fingerprint,
        zero_shot=zero_shot.run,
        pta=adapted.run,
    )


def _encode(encoder: EmbeddedEncoder, images: NDArray[np.uint8]) -> Iterator[Tensor]:
    for start in range(0, len(images), _ENCODE_BATCH):
        yield encoder.encode(encoder.preprocess(images[start : start + _ENCODE_BATCH]))

"""Run the demonstration, without a screen."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any, TypeVar

import numpy as np
import torch

from pta.core.parameters import require_count, require_seed
from pta.core.samples import Samples
from pta.data.fashion import load_fashion_test
from pta.data.features import FeatureFile
from pta.data.prompts import build_classifier
from pta.data.shifts.images import apply_shift
from pta.measure.demo.result import DemoResult
from pta.measure.evaluate import evaluate
from pta.measure.stream_run import StreamRun
from pta.models import EMBEDDED_TEMPLATES, EmbeddedEncoder

Encoded = TypeVar("Encoded")

ORDERS = 5  # of the stream, in which zero-shot and PTA are run; other methods take longer
_ENCODE_BATCH = 100  # small, so that a progress bar moves
_OTHERS = ("wpta", "tda", "sca", "onzeta", "bca", "adapt")  # those on features alone that take seconds, not minutes


@contextmanager
def on_one_thread() -> Iterator[None]:
    """Let torch compute on one thread meanwhile.

    The tensors of a demonstration are small. On a busy machine several threads would spend most of their time waiting
    for each other, which takes processor time and would be measured as the speed of the methods.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@on_one_thread()
def run_demo(
    shift: str = "gaussian_noise",
    severity: int = 3,
    seed: int = 1,
    *,
    limit: int | None = None,
    on_encoded: Callable[[int, int], None] | None = None,
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
    originals, labels = test.images[:limit], test.labels[:limit].astype(np.int64)
    images = apply_shift(originals, shift, severity, seed)

    encoder = EmbeddedEncoder.load()
    classifier = build_classifier(encoder, test.class_names, EMBEDDED_TEMPLATES)
    batches = [images[start : start + _ENCODE_BATCH] for start in range(0, len(images), _ENCODE_BATCH)]
    encoded, speed = encode_all(batches, lambda batch: encoder.encode(encoder.preprocess(batch)), on_encoded)
    data = FeatureFile(f"fashion/{shift}/{severity}", Samples.of(torch.cat(encoded)), classifier, labels)
    given = (shift, int(severity), int(seed), limit)
    runs = run_methods(data, int(seed), {}, _OTHERS)
    return DemoResult(*given, originals, images, data, encoder.fingerprint, speed, *runs)


def encode_all(
    batches: Sequence[Any], encode: Callable[[Any], Encoded], on_encoded: Callable[[int, int], None] | None
) -> tuple[list[Encoded], float]:
    """What the encoder makes of each batch, and the median of its microseconds per sample."""
    done, total = 0, sum(map(len, batches))
    encoded, speeds = [], []
    for batch in batches:
        begun = time.perf_counter()
        encoded.append(encode(batch))
        speeds.append(1e6 * (time.perf_counter() - begun) / len(batch))
        done += len(batch)
        if on_encoded:
            on_encoded(done, total)
    return encoded, median(speeds)


def run_methods(
    data: FeatureFile, seed: int, parameters: Mapping[str, Any], others: Sequence[str]
) -> tuple[StreamRun, StreamRun, tuple[StreamRun, ...], tuple[StreamRun, ...]]:
    """Zero-shot, PTA with its parameters, other methods in the same order, and the first two in four other orders."""
    both, later = {"clip": {}, "pta": parameters}, [(seed + number) % 2**63 for number in range(1, ORDERS)]
    methods = {**both, **{name: {} for name in others}}
    zero_shot, adapted, *rest = (one.run for one in evaluate(data, methods, [seed]))
    return zero_shot, adapted, tuple(rest), tuple(one.run for one in evaluate(data, both, later))

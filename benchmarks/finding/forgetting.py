"""What junk and a change of the images do to WPTA, and whether it should forget.

* shuffled, separate: a file's samples, in any order or one class after the other.
* junk first: up to as many samples of the next file before them, which are not counted.
* shifts in turn: the packaged Fashion-MNIST images as they are and under one shift after the other.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from result_file import Row
from torch import Tensor

from finding.table import feature_files, mean
from pta import WPTA, Adapter, ZeroShotClassifier, create_adapter
from pta.data.fashion import load_fashion_test
from pta.data.orders import iid, separate
from pta.data.prompts import build_classifier
from pta.data.shifts.images import SHIFTS, apply_shift
from pta.models import EMBEDDED_TEMPLATES, EmbeddedEncoder

SEEDS, LARGE, BATCH = (1, 2, 3), 5000, 128  # a file of more samples has the first seed alone
SEVERITY, SHIFT_SEED = 3, 1


class Forgetful(WPTA):
    """Sums decay over so many samples, at every refresh.

    The factor is the one next to exp(−samples since the last refresh / memory) that leaves a whole number of samples.
    """

    name = "wpta-forgetful"

    def __init__(self, classifier: ZeroShotClassifier, memory: float, **given: Any) -> None:
        super().__init__(classifier, **given)
        self.memory, self.at_last = memory, 0

    def refresh_state(self) -> None:
        count = int(self.seen)
        self.at_last = round(count * math.exp((self.at_last - count) / self.memory))
        for sums in (
            self.total,
            self.gram,
            *(tensor for layer in self._layers for tensor in (layer.sums, layer.weights)),
        ):
            sums *= self.at_last / count
        self.seen.fill_(self.at_last)
        self._state_replaced()
        super().refresh_state()


METHODS: dict[str, Callable[[ZeroShotClassifier], Adapter]] = {
    "clip": partial(create_adapter, "clip"),
    "tda": partial(create_adapter, "tda"),
    "pta": partial(create_adapter, "pta"),
    "wpta": WPTA,
    "wpta without prior": partial(WPTA, prior="none"),
    "wpta, depth 2": partial(WPTA, depth=2),
    **{
        f"wpta without prior, forgets over {memory:,}": partial(Forgetful, memory=memory, prior="none")
        for memory in (500, 1000, 2000)
    },
}


class Course(NamedTuple):
    """A stream, and from where on it is counted."""

    classifier: ZeroShotClassifier
    features: Tensor
    labels: NDArray[np.int64]
    counted: int = 0


def measure(folder: Path) -> Iterator[Row]:
    """Each stream and method."""
    files = list(feature_files(folder))
    for data, other in zip(files, [*files[1:], *files[:1]], strict=True):
        labels, features = np.asarray(data.labels), data.samples.features
        seeds = SEEDS[:1] if len(labels) > LARGE else SEEDS
        shuffled, sorted_by_class, junk = [], [], []
        for seed in seeds:
            order, by_class = iid(len(labels), seed), separate(labels, seed)
            foreign = other.samples.features[iid(len(other.samples), seed)[: len(labels)]]
            shuffled.append(Course(data.classifier, features[order], labels[order]))
            sorted_by_class.append(Course(data.classifier, features[by_class], labels[by_class]))
            junk.append(
                Course(data.classifier, torch.cat([foreign, features[order]]), labels[order], counted=len(foreign))
            )
        yield from _rows(data.name, "shuffled", shuffled)
        yield from _rows(data.name, "separate", sorted_by_class)
        yield from _rows(data.name, "junk first", junk)
    yield from _rows("fashion", "shifts in turn", _in_turn())


def _rows(dataset: str, stream: str, courses: list[Course]) -> Iterator[Row]:
    for title, make in METHODS.items():
        found = [_accuracy(make(course.classifier), course) for course in courses]
        yield {"dataset": dataset, "stream": stream, "method": title, "accuracy": mean(found), "seeds": len(found)}


def _accuracy(adapter: Adapter, course: Course) -> float:
    answers = torch.cat([adapter.step(part).argmax(dim=1) for part in course.features.split(BATCH)])
    return 100 * float((answers[course.counted :].numpy() == course.labels).mean())


def _in_turn() -> list[Course]:
    """Every seed has an order of the shifts, and of the images within each."""
    test, encoder = load_fashion_test(), EmbeddedEncoder.load()
    classifier = build_classifier(encoder, test.class_names, EMBEDDED_TEMPLATES)
    shifted = [test.images, *(apply_shift(test.images, shift, SEVERITY, SHIFT_SEED) for shift in SHIFTS)]
    features, labels = [_encoded(encoder, images) for images in shifted], test.labels.astype(np.int64)
    courses = []
    for seed in SEEDS:
        orders = [(shift, iid(len(labels), seed + number)) for number, shift in enumerate(iid(len(shifted), seed))]
        found = torch.cat([features[shift][order] for shift, order in orders])
        courses.append(Course(classifier, found, np.concatenate([labels[order] for _, order in orders])))
    return courses


def _encoded(encoder: EmbeddedEncoder, images: NDArray[np.uint8]) -> Tensor:
    pixels = np.stack([encoder.preprocess.pixels(Image.fromarray(image)) for image in images])
    return encoder.encode(torch.from_numpy(pixels))

"""Look-alike classes drawn from a feature file: the task of telling a few similar things apart."""

from dataclasses import replace

import numpy as np
import torch

from pta.core.parameters import require_count, require_seed
from pta.data.features import FeatureFile, Part
from pta.errors import InvalidParameter, InvalidSamples

_OTHER_DRAW = 2**65  # added to a seed: its classes do not depend on its order


def drawn(data: FeatureFile, count: int, seed: int) -> FeatureFile:
    """The part of a file with `count` look-alike classes: one at random, and those whose texts have the largest cosine.

    Classes without samples are not drawn. The part has all samples of its classes, in the order of the file.
    """
    if data.labels is None:
        raise InvalidSamples(f"{data.name} has no labels, without which no classes can be drawn")
    whole, occurring = data.classifier, np.unique(data.labels)
    if not 2 <= require_count("classes_drawn", count, 0, 2**31) <= len(occurring):
        raise InvalidParameter(
            f"{data.name} has samples of {len(occurring)} classes; of these two or more can be drawn, not {count}"
        )
    first = np.random.default_rng(require_seed(seed) + _OTHER_DRAW).integers(len(occurring))
    texts = whole.anchors.double().cpu().numpy()[occurring]
    likeness = texts @ texts[first]
    likeness[first] = np.inf  # before a class with the same text
    classes = occurring[np.argsort(-likeness, kind="stable")[:count]]
    place = np.full(whole.classes, -1)
    place[classes] = np.arange(count)
    samples = np.flatnonzero(place[data.labels] >= 0)
    return replace(
        data,
        samples=data.samples[torch.from_numpy(samples)],
        classifier=whole.part(classes.tolist()),
        labels=place[data.labels[samples]],
        paths=data.paths and tuple(data.paths[row] for row in samples),
        part=Part(data, samples, classes),
    )

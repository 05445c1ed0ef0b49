"""Clouds, files of them, and a small model that reads them."""

import numpy as np
import torch
from torch import nn
from torch.nn.functional import normalize

from pta.core.modality import CLOUDS
from pta.door.points.h5 import StoredClouds, write_h5
from pta.door.points.reading import read_cloud
from pta.models import Encoder

SHAPES = ("rod", "disc", "ball")  # by how many axes are long
_AXES = {"rod": (1, 0.1, 0.1), "disc": (1, 1, 0.1), "ball": (1, 1, 1)}


def shape(name, points=64, seed=0):
    """A cloud in the unit ball."""
    cloud = np.random.default_rng(seed).standard_normal((points, 3)) * _AXES[name]
    return (cloud / np.linalg.norm(cloud, axis=1).max()).astype(np.float32)


def write_clouds(path, count=9, points=64, names=SHAPES):
    """An .h5 file of shapes in turn, and the names beside it."""
    labels = np.arange(count) % len(SHAPES)
    write_h5(path, StoredClouds(np.stack([shape(SHAPES[one], points, at) for at, one in enumerate(labels)]), labels))
    (path.parent / "shape_names.txt").write_text("\n".join(names))
    return path


class CloudEncoder(Encoder):
    """A cloud by how it spreads along each axis; a text by that of the shape it ends in."""

    modality = CLOUDS
    architecture = "spread of points"
    dim, scale = 3, 50.0

    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.ones(3))

    def prepare(self, content, key="the cloud"):
        return read_cloud(content, key)

    def features(self, raw):
        return normalize(raw.square().mean(dim=1) * self.factor, dim=-1)

    def text_features(self, texts):
        axes = [_AXES[text.rstrip(".").split()[-1]] for text in texts]
        return normalize(torch.tensor(axes).square(), dim=-1)


def load_clouds(rest):
    """What `clouds:…` is."""
    return CloudEncoder()

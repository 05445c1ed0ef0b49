"""Samples that belong to none of the classes, among samples that are learned."""

import numpy as np
import torch
from torch import Tensor

from pta.core.labels import NONE, Labels
from pta.core.samples import Samples
from pta.methods.adapter import Adapter


def step_with_labels(adapter: Adapter, samples: Samples, labels: Labels) -> Tensor:
    """Step on checked samples; those labelled NONE are answered at their turn and not learned."""
    stretches = np.split(np.arange(len(labels)), np.flatnonzero(np.diff(labels == NONE)) + 1)
    parts = [(samples[slice(rows[0], rows[-1] + 1)], labels[rows]) for rows in stretches]
    return torch.cat([adapter.predict(part) if told[0] == NONE else adapter.step(part, told) for part, told in parts])

"""PTA's loop with the state it ends in, and how close to it the package has to be."""

import numpy as np
import torch

from pta.reference.pta import pta_loop

# How far logits of size 100 may be from the oracle's, by the precision of the state; cosines and unit vectors have a
# hundredth of it.
TOLERANCES = {torch.float32: 2e-3, torch.float64: 1e-8}


def oracle_pta(anchors, features, **switches):
    """What the whole stream gives: outputs B×C, knowledge prototypes P and directions of the anchored prototypes R."""
    learned = {}
    outputs = pta_loop(anchors.double().numpy(), features.double().numpy(), learned=learned, **switches)
    return outputs, learned["P"], learned["R"]


def assert_agrees(logits, expected, tolerance):
    """Logits are the oracle's within the tolerance, and decide alike wherever that leaves no doubt."""
    logits = np.asarray(logits, dtype=np.float64)
    np.testing.assert_allclose(logits, expected, atol=tolerance, rtol=0)
    second, first = np.sort(expected, axis=1)[:, -2:].T
    clear = first - second > 2 * tolerance
    np.testing.assert_array_equal(logits.argmax(axis=1)[clear], expected.argmax(axis=1)[clear])

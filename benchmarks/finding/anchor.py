"""How much of the text anchor is left in R, so many refreshes after a class was touched first.

R is always a·T plus a combination of image features; the share of the anchor is the number a, with R of unit length.
It is followed by R ← w·A + (1−w)·P, so a ← w·a/‖·‖ with the recursive anchor (A = R) and a = w/‖·‖ with the fixed one
(A = T). The first refresh is the one of the touching sample itself.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from result_file import Row

from finding.table import feature_files
from pta.data.features import FeatureFile
from pta.data.orders import iid

Matrix = NDArray[np.float64]
REFRESHES = 6
WEIGHTS = (0.1, 0.01, 0.001, 0.0001)
H, MASK, SEED = 20.0, 0.1, 1


def shares(T: Matrix, features: Matrix, s: Matrix, w: float, *, fixed: bool, h: float = H) -> list[float]:
    """The share of the anchor T of one class after each of these samples, whose probabilities of it are s."""
    P, R, a, found = np.zeros_like(T), T, 1.0, []
    for f, probability in zip(features, s, strict=True):
        if probability >= MASK:
            kept = np.exp(-probability / h)
            P = kept * P + (1 - kept) * f
        mixed = w * (T if fixed else R) + (1 - w) * P
        length = float(np.linalg.norm(mixed))
        a = w * (1.0 if fixed else a) / length
        R = mixed / length
        found.append(a)
    return found


def measure(folder: Path) -> Iterator[Row]:
    """A toy (T and f orthogonal, one sure sample, then others), and the median class of each file."""
    T, f = np.eye(2)
    sure = np.array([1.0] + [0.0] * (REFRESHES - 1))
    for w in WEIGHTS:
        for fixed in (False, True):
            toy = shares(T, np.tile(f, (REFRESHES, 1)), sure, w, fixed=fixed)
            yield _row("toy: T and f orthogonal, s = 1", 1, w, fixed, toy)
    for data in feature_files(folder):
        stretches = list(_after_first_touch(data))
        for w in WEIGHTS:
            for fixed in (False, True):
                found = [shares(*stretch, w, fixed=fixed) for stretch in stretches]
                yield _row(data.name, len(found), w, fixed, np.median(found, axis=0))


def _after_first_touch(data: FeatureFile) -> Iterator[tuple[Matrix, Matrix, Matrix]]:
    """For each class that is touched and has so many samples after it: its anchor, these samples, their s."""
    order = torch.from_numpy(iid(len(data.samples), SEED))
    features = data.samples.features[order].double()
    T = data.classifier.anchors.double()
    s = (data.classifier.scale * features @ T.T).softmax(dim=1).numpy()
    for c in range(data.classifier.classes):
        touches = np.flatnonzero(s[:, c] >= MASK)
        if len(touches) and touches[0] + REFRESHES <= len(s):
            stretch = slice(touches[0], touches[0] + REFRESHES)
            yield T[c].numpy(), features[stretch].numpy(), s[stretch, c]


def _row(name: str, classes: int, w: float, fixed: bool, found: Sequence[float]) -> Row:
    kind = "fixed" if fixed else "recursive"
    columns = {f"after_{k}": f"{share:.2g}" if share < 1e-4 else f"{share:.4f}" for k, share in enumerate(found, 1)}
    return {"dataset": name, "classes": classes, "anchor": kind, "w": f"{w:g}", **columns}

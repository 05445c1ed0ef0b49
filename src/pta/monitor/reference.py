"""ScoreReference: the scores of samples that a person trusts, which later samples are compared with."""

from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pta.core.classifier import ZeroShotClassifier
from pta.door.files import load_tensors, save_tensors
from pta.errors import InvalidParameter, StateMismatch
from pta.methods.state_file import was_saved_for
from pta.monitor.detector import UNLUCKY, share_bound
from pta.monitor.scores import exactly_scored

LEAST, MOST = 200, 10**7  # samples of a reference
RANKS = (0.02, 0.05, 0.10, 0.20, 0.35, 0.50)
SHARES = 2 * len(RANKS)
_KIND = "reference of a monitor"
_AT_ONCE = 1024


@dataclass(frozen=True)
class ScoreReference:
    """n×2 scores as `scores.py` ranks them, and the means of confidence and cosine."""

    scores: NDArray[np.float64]
    means: tuple[float, float]

    def __post_init__(self) -> None:
        if not LEAST <= len(self.scores) <= MOST:
            raise InvalidParameter(f"a reference needs {LEAST} to {MOST:,} samples, got {len(self.scores):,}")

    @classmethod
    def of(cls, classifier: ZeroShotClassifier, features: Tensor) -> "ScoreReference":
        """The reference of N×d unit features."""
        if len(features) < LEAST:
            return cls(np.zeros((len(features), 2)), (0.0, 0.0))  # which is refused
        parts = [exactly_scored(classifier, part) for part in torch.split(features, _AT_ONCE)]
        confidence, cosine = np.concatenate([part.shown for part in parts]).mean(axis=0).tolist()
        return cls(np.concatenate([part.ranked for part in parts]), (confidence, cosine))

    @cached_property
    def _ranks(self) -> list[int]:
        return [max(1, int(share * len(self.scores))) for share in RANKS]

    @cached_property
    def thresholds(self) -> NDArray[np.float64]:
        """The k-th smallest scores, 6×2."""
        return np.sort(self.scores, axis=0)[[k - 1 for k in self._ranks]]

    @cached_property
    def bounds(self) -> NDArray[np.float64]:
        """p̄ of the share of samples below each threshold, 12."""
        n, level = len(self.scores), 1 - UNLUCKY / SHARES
        return np.repeat([share_bound(k, n, level) for k in self._ranks], 2)

    @cached_property
    def _spreads(self) -> tuple[float, float]:
        """The standard deviations of confidence, whose log-odds are ranked, and of cosine."""
        log_odds, cosine = torch.from_numpy(self.scores).T
        return log_odds.sigmoid().std().item(), cosine.std().item()

    def bands(self, window: int) -> list[tuple[float, float]]:
        """Where about 95 % of the mean confidences, and mean cosines, of so many samples like these lie."""
        errors = [2 * spread * sqrt(1 / window + 1 / len(self.scores)) for spread in self._spreads]
        return [(mean - error, mean + error) for mean, error in zip(self.means, errors, strict=True)]

    def below(self, scores: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which of B×2 scores are below which thresholds, B×12."""
        return (scores[:, None] < self.thresholds).reshape(len(scores), SHARES)

    def save(self, path: Path, classifier: ZeroShotClassifier) -> None:
        """Write it to a safetensors file, atomically."""
        names, scale, bias = classifier.class_names, classifier.scale, classifier.bias
        about = {"kind": _KIND, "class_names": names, "scale": scale, "bias": bias, "means": self.means}
        save_tensors(path, {"scores": torch.from_numpy(self.scores), "anchors": classifier.anchors}, about)

    @classmethod
    def load(cls, path: Path, classifier: ZeroShotClassifier) -> "ScoreReference":
        """Read one that was made with this classifier, but for the last bits that differ between machines."""
        tensors, about = load_tensors(path, kind=_KIND)
        scores, means = tensors.get("scores", torch.empty(0)), about.get("means")
        fits = scores.ndim == 2 and scores.shape[1] == 2 and scores.dtype == torch.float64 and not scores.isnan().any()
        if not fits or not isinstance(means, list) or [type(mean) for mean in means] != [float, float]:
            raise StateMismatch(f"{path} is damaged; make it again with pta monitor reference")
        same_names = about.get("class_names") == list(classifier.class_names)
        if not same_names or not was_saved_for(classifier, tensors.get("anchors"), about):
            wrong = "another model, other classes or other templates"
            raise StateMismatch(f"{path} was made with {wrong}; make it again with pta monitor reference")
        return cls(scores.numpy(), (means[0], means[1]))

"""Prototypes that are scored in a metric: a block of samples at once, and exactly what one at a time would give.

While the centre m and the metric P stand still, sample j moves the prototype E_c by w_jc·y_j, where y = x − m. So what
sample i meets at its turn follows from products with the prototypes before the block and within the block:

    ⟨y_i, E_c⟩ = ⟨y_i, E_c before⟩ + Σ_{j≤i} ⟨y_i, y_j⟩·w_jc        ‖E_c‖² grows by w_ic·(2·⟨y_i, E_c⟩ − w_ic·‖y_i‖²)

Differences to the centre are taken in float64: in a long stream of equal images they are small. Products are in the
precision of the metric. Where numbers are host-readable, the prototypes are kept, and those of classes that have
changed are computed again; a recorded step that is replayed would change the sums without any call. A row of prototypes
is computed by single operations on its own numbers, so that it has the same bits whenever it is computed from a state.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from pta.core.classifier import ZeroShotClassifier
from pta.core.plain import is_host_readable
from pta.engines.gpu import processors
from pta.engines.whitened.within_class import SHORTEST, inverse_by_products, squares_in


@dataclass(frozen=True)
class TextPrototypes:
    """What the anchors of a classifier give to the prototypes."""

    classifier: ZeroShotClassifier
    mean: Tensor  # t̄, d, float64
    part: Tensor  # what the text of each class counts, C×d

    @classmethod
    @lru_cache(maxsize=8)
    def of(cls, classifier: ZeroShotClassifier, weight: float, dtype: torch.dtype) -> "TextPrototypes":
        """Those of texts that count as so many samples, for products in a precision; adapters share them."""
        anchors = classifier.anchors.double()
        mean = anchors.mean(dim=0)
        return cls(classifier, mean, (weight * (anchors - mean)).to(dtype))


@dataclass
class Kept:
    """What the host keeps of a layer beside its state."""

    prototypes: Tensor | None = None


@dataclass(frozen=True)
class Layer:
    """What is learned about the classes, and the metric that they are scored in."""

    sums: Tensor  # M, C×d, float64: weighted sums of features
    weights: Tensor  # n, C, float64: sums of the weights
    metric: Tensor  # P, d×d
    squares: Tensor  # C, float64: ‖E_c‖² in the metric
    kept: Kept

    def refresh(self, relative: Tensor, ridge: Tensor, largest: float, centre: Tensor, texts: Tensor) -> None:
        """Take P = relative⁻¹/ridge, where `largest` bounds the eigenvalues, and another centre than before."""
        self.kept.prototypes = None
        if is_host_readable(relative):
            inverse = torch.cholesky_inverse(torch.linalg.cholesky_ex(relative).L)  # which reads whether it succeeded
        else:
            inverse = inverse_by_products(relative, largest)
        self.metric.copy_(inverse).div_(ridge)
        self.measure(centre, texts)

    def measure(self, centre: Tensor, texts: Tensor) -> None:
        """Compute the squares from the rest of the state."""
        self.squares.copy_(squares_in(self.metric, self.prototypes(centre, texts)).clamp_min_(0))

    def score(self, x: Tensor, w: Tensor, centre: Tensor, texts: Tensor, *, learn: bool) -> Tensor:
        """The cosine of each sample with each prototype, which holds the sample's own contribution, B×C.

        Samples are B×d and their weights B×C, both float64; the centre is d, float64, and the texts' part C×d. With
        `learn` samples are learned in order, and each meets those before it. Otherwise each is on its own.
        """
        if learn and len(x) == 1 and processors.triton_runs_on(x.device):
            from pta.engines.gpu.triton_whitened import learn_one_on_gpu

            return learn_one_on_gpu(x, w, centre, texts, self.metric, self.sums, self.weights, self.squares)
        y, prototypes = (x - centre).to(texts.dtype), self.prototypes(centre, texts)
        turned = y @ self.metric
        among = turned @ y.T
        own, given = among.diagonal()[:, None], w.sum(dim=0)
        # the classes that move, where that can be read
        moved = given.nonzero()[:, 0] if is_host_readable(given) else slice(None)
        weights = w[:, moved].to(texts.dtype)
        cosines = turned @ prototypes.T
        products = cosines[:, moved] + (among.tril() @ weights if learn else own * weights)
        growth = (2 * products).addcmul_(own, weights, value=-1).mul_(weights)
        squares = (growth.cumsum(dim=0) if learn else growth) + self.squares[moved].to(growth.dtype)
        products.div_(_lengths(squares))
        if isinstance(moved, slice):
            cosines = products
        else:
            cosines.div_(_lengths(self.squares.to(cosines.dtype)))
            cosines[:, moved] = products
        if learn:
            self.squares[moved] = (self.squares[moved] + growth.sum(dim=0)).clamp_min_(0)
            self.weights.add_(given)
            self._add(x, w, moved, centre, texts)
        return cosines.div_(_lengths(own)).clamp_(-1, 1)  # which rounding exceeds where a prototype almost vanishes

    def prototypes(self, centre: Tensor, texts: Tensor) -> Tensor:
        """E, C×d: the sums around the centre, and the texts' part."""
        if self.kept.prototypes is not None:
            return self.kept.prototypes
        prototypes = self._rows(slice(None), centre, texts)
        if is_host_readable(prototypes):
            self.kept.prototypes = prototypes
        return prototypes

    def _rows(self, classes: Tensor | slice, centre: Tensor, texts: Tensor) -> Tensor:
        around = self.weights[classes, None] * centre
        return torch.sub(self.sums[classes], around, out=around).to(texts.dtype).add_(texts[classes])

    def _add(self, x: Tensor, w: Tensor, moved: Tensor | slice, centre: Tensor, texts: Tensor) -> None:
        if self.kept.prototypes is None or isinstance(moved, slice):
            self.sums.addmm_(w.T, x)
            return
        few = w[:, moved]
        rows, columns = few.nonzero(as_tuple=True)
        self.sums.index_add_(0, moved[columns], few[rows, columns, None] * x[rows])
        self.kept.prototypes[moved] = self._rows(moved, centre, texts)


def _lengths(squares: Tensor) -> Tensor:
    return squares.clamp_min(SHORTEST).sqrt_()

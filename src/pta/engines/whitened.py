"""Prototypes that are scored in a metric: a block of samples at once, and exactly what one at a time would give.

While the centre m and the metric P stand still, sample j moves the prototype E_c by w_jc·y_j, where y = x − m. So what
sample i meets at its turn follows from products with the prototypes before the block and within the block:

    ⟨y_i, E_c⟩ = ⟨y_i, E_c before⟩ + Σ_{j≤i} ⟨y_i, y_j⟩·w_jc        ‖E_c‖² grows by w_ic·(2·⟨y_i, E_c⟩ − w_ic·‖y_i‖²)

Differences to the centre are taken in float64: in a long stream of equal images they are small. Products are in the
precision of the metric.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from pta.host_readable import is_host_readable

_NO_LENGTH = 1e-24  # squared; what is shorter is rounding


@dataclass(frozen=True)
class Layer:
    """What is learned about the classes, and the metric that they are scored in."""

    sums: Tensor  # M, C×d, float64: weighted sums of features
    weights: Tensor  # n, C, float64: sums of the weights
    metric: Tensor  # P, d×d
    squares: Tensor  # C, float64: ‖E_c‖² in the metric

    def prototypes(self, centre: Tensor, texts: Tensor) -> Tensor:
        """E, C×d: the sums around the centre (d, float64), and what the texts (C×d) count."""
        return torch.addr(self.sums, self.weights, centre, alpha=-1).to(texts.dtype).add_(texts)

    def measure(self, centre: Tensor, texts: Tensor) -> None:
        """Set the squares anew, after centre, metric or sums have changed."""
        prototypes = self.prototypes(centre, texts)
        self.squares.copy_((prototypes @ self.metric).mul_(prototypes).sum(dim=1))

    def score(self, x: Tensor, w: Tensor, centre: Tensor, texts: Tensor, *, learn: bool) -> Tensor:
        """The cosine of each sample with each prototype, which holds the sample's own contribution, B×C.

        Samples are B×d and their weights B×C, both float64. With `learn` they are learned in order, and each meets
        those before it. Otherwise each is on its own.
        """
        y = (x - centre).to(texts.dtype)
        seen = y @ self.metric
        among = seen @ y.T
        own, weights = among.diagonal()[:, None], w.to(texts.dtype)
        products = seen @ self.prototypes(centre, texts).T
        products += among.tril() @ weights if learn else own * weights
        growth = (2 * products).addcmul_(own, weights, value=-1).mul_(weights)
        squares = (growth.cumsum(dim=0) if learn else growth) + self.squares.to(growth.dtype)
        if learn:
            self.squares.add_(growth.sum(dim=0))
            self._add(x, w)
        return products.mul_(_inverse_length(own)).mul_(_inverse_length(squares))

    def _add(self, x: Tensor, w: Tensor) -> None:
        self.weights.add_(w.sum(dim=0))
        if is_host_readable(w):
            rows, classes = w.nonzero(as_tuple=True)  # a few classes per sample
            self.sums.index_add_(0, classes, x[rows] * w[rows, classes, None])
        else:
            self.sums.addmm_(w.T, x)


def _inverse_length(squares: Tensor) -> Tensor:
    """1/√ of squared lengths, and 0 of those that are 0."""
    return torch.where(squares > _NO_LENGTH, squares, torch.inf).rsqrt_()

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

import torch
from torch import Tensor
from torch.nn.functional import threshold

from pta.core.plain import is_host_readable
from pta.engines.gpu import processors
from pta.engines.whitened.layer_state import LayerState, Shrinkage
from pta.engines.whitened.product import product_with_samples
from pta.engines.whitened.within_class import (
    SHORTEST,
    by_rows,
    inverse_by_halves,
    inverse_by_products,
    scatter_within_classes,
    squares_in,
)


@dataclass
class Kept:
    """What the host keeps of a layer beside its state."""

    prototypes: Tensor | None = None


@dataclass(frozen=True)
class Layer(LayerState):
    """The computations on what a layer has learned."""

    kept: Kept

    def refresh(self, how: Shrinkage) -> None:
        """Take the metric of all that was learned; the centre is another than before."""
        self.kept.prototypes = None
        relative, ridge = self._relative_covariance(how)
        largest = 1 + len(relative) / how.ridge  # eigenvalue
        self.metric.copy_(self._inverse(relative, largest)).div_(ridge)
        self.measure()

    def measure(self) -> None:
        """Compute the squares from the rest of the state."""
        prototypes = self.prototypes()
        if self._has_products:
            from pta.engines.gpu.triton_metric import add_product_on_gpu

            squares = add_product_on_gpu(prototypes, self.metric)[0].mul_(prototypes).sum(dim=1)
        else:
            squares = squares_in(self.metric, prototypes)
        self.squares.copy_(squares.clamp_min_(0))

    def score(self, x: Tensor, s: Tensor, z: Tensor, *, learn: bool) -> Tensor:
        """z + factor·cosine of each sample with each prototype, which holds the sample's own contribution, B×C.

        Samples are B×d; their weights s and logits z are B×C, both float64. With `learn` samples are learned in order,
        and each meets those before it. Otherwise each is on its own.
        """
        if not (learn and processors.triton_runs_on(x.device)):
            return self._score(x.double(), threshold(s, self.least_weight, 0.0), z, learn=learn)
        from pta.engines.gpu.triton_prior import MOST_SAMPLES
        from pta.engines.gpu.triton_whitened import learn_one_on_gpu, learn_several_on_gpu

        if len(x) == 1:
            return learn_one_on_gpu(self, x, s, z)
        scores = []
        for part, shares, logits in zip(*(torch.split(one, MOST_SAMPLES) for one in (x, s, z)), strict=True):
            features, w = part.double(), threshold(shares, self.least_weight, 0.0)
            scores.append(learn_several_on_gpu(self, features, w, logits))
            self.sums.addmm_(w.T, features)
            self._count(features)
        return scores[0] if len(scores) == 1 else torch.cat(scores)

    def prototypes(self) -> Tensor:
        """E, C×d: the sums around the centre, and the texts' part."""
        if self.kept.prototypes is not None:
            return self.kept.prototypes
        if processors.triton_runs_on(self.metric.device):
            from pta.engines.gpu.triton_whitened import rows_on_gpu

            return rows_on_gpu(self, self.sums[:0])
        if not is_host_readable(self.metric):
            return self._rows(slice(None))
        self.kept.prototypes = by_rows(self._rows, torch.empty_like(self.texts))
        return self.kept.prototypes

    def _relative_covariance(self, how: Shrinkage) -> tuple[Tensor, Tensor]:
        """I + S/(tr S/d)/ridge, and the ridge; I and 1 while there is not enough to compute S from."""
        if processors.triton_runs_on(self.metric.device):
            from pta.engines.gpu.triton_metric import relative_covariance_on_gpu

            return relative_covariance_on_gpu(self, how)
        t, dtype = self.of_all.seen.clamp_min(1).double(), self.metric.dtype
        scatter = scatter_within_classes(t, self.of_all.total, self.of_all.gram, self.sums, self.weights, dtype)
        trace = scatter.trace()
        enough = (t >= how.first_metric) & (trace >= how.least_spread * t)
        ridge = torch.where(enough, how.ridge + how.early_ridge / t, 1.0)
        relative = scatter.to(dtype).mul_(torch.where(enough, len(scatter) / trace / ridge, 0.0))
        relative.diagonal().add_(1.0)
        return relative, ridge

    def _inverse(self, relative: Tensor, largest: float) -> Tensor:
        if is_host_readable(relative):
            return inverse_by_halves(relative)
        if not self._has_products:
            return inverse_by_products(relative, largest)
        from pta.engines.gpu.triton_metric import inverse_on_gpu

        return inverse_on_gpu(relative, largest)

    @property
    def _has_products(self) -> bool:
        """Whether a GPU has kernels for products with the metric."""
        return self.metric.dtype == torch.float32 and processors.triton_runs_on(self.metric.device)

    def _score(self, x: Tensor, w: Tensor, z: Tensor, *, learn: bool) -> Tensor:
        y, prototypes = (x - self.centre).to(self.texts.dtype), self.prototypes()
        turned = product_with_samples(y, self.metric)
        among = turned @ y.T
        own, given = among.diagonal()[:, None], w.sum(dim=0)
        # the classes that move, where that can be read
        moved = given.nonzero()[:, 0] if is_host_readable(given) else slice(None)
        few = w[:, moved]
        weights = few.to(y.dtype)
        cosines = product_with_samples(turned, prototypes.T)
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
            self._add(x, few, moved)
            self._count(x)
        cosines.div_(_lengths(own)).clamp_(-1, 1)  # which rounding exceeds where a prototype almost vanishes
        return torch.add(z, cosines, alpha=self.factor, out=cosines)

    def _rows(self, classes: Tensor | slice) -> Tensor:
        around = self.weights[classes, None] * self.centre
        return torch.sub(self.sums[classes], around, out=around).to(self.texts.dtype).add_(self.texts[classes])

    def _add(self, x: Tensor, w: Tensor, moved: Tensor | slice) -> None:
        if self.kept.prototypes is None or isinstance(moved, slice):
            self.sums.addmm_(w.T, x)
            return
        rows, columns = w.nonzero(as_tuple=True)
        self.sums.index_add_(0, moved[columns], w[rows, columns, None] * x.index_select(0, rows))
        self.kept.prototypes[moved] = self._rows(moved)

    def _count(self, x: Tensor) -> None:
        if self.counts:
            self.of_all.total.add_(x.sum(dim=0))
            self.of_all.gram.addmm_(x.T, x)


def _lengths(squares: Tensor) -> Tensor:
    return squares.clamp_min(SHORTEST).sqrt_()

"""What TransCLIP and StatA share: soft labels z of N samples, tied to each other by a graph of nearest neighbours.

Both alternate between soft labels, given class Gaussians, and class Gaussians, given soft labels. Labels are kept as
log z: nothing underflows, so a class without probable samples still has weights, where a quotient would be 0/0.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag, normalize

from pta.core.samples import SMALLEST_NORM

# Per dimension of a unit feature. Real ones are a million times larger; where a batch does not vary at all (a single
# sample, copies of one) the Gaussians would have no width.
SMALLEST_VARIANCE = 1e-10
SMALLEST_PROBABILITY = torch.finfo(torch.float32).tiny  # less is nothing, in any precision
_COSINES_AT_ONCE = 2**22  # 32 MiB in float64
_COSINE_STEPS = 2**32  # two cosines that differ by less than a step are equal; above float64's rounding


@dataclass(frozen=True)
class Ties:
    """W + Wᵀ, where W_ij is the cosine of i and j if j is one of the nearest neighbours of i, and 0 if not.

    A sample is never its own neighbour, and among equally near ones the earlier are taken. In a batch with fewer
    others than that, all others are neighbours.
    """

    others: Tensor  # the samples at the far end of ties, grouped by the sample at the near end
    weights: Tensor  # of the ties
    starts: Tensor  # N, where the ties of each sample begin

    @classmethod
    def of(cls, features: Tensor, neighbours: int, weight: float = 1.0) -> "Ties":
        """The ties of N samples, all multiplied by a weight."""
        count = len(features)
        nearest, cosines = nearest_neighbours(features, min(neighbours, count - 1))
        here = torch.arange(count, device=features.device).repeat_interleave(nearest.shape[1])
        ends = torch.cat([here, nearest.flatten()]), torch.cat([nearest.flatten(), here])
        order = ends[0].argsort(stable=True)
        degrees = torch.bincount(ends[0], minlength=count)
        weights = (cosines.flatten() * weight).repeat(2)
        return cls(ends[1][order], weights[order], degrees.cumsum(dim=0) - degrees)

    def pull(self, z: Tensor) -> Tensor:
        """(W + Wᵀ)·z."""
        return embedding_bag(self.others, z, self.starts, mode="sum", per_sample_weights=self.weights)


def nearest_neighbours(features: Tensor, neighbours: int) -> tuple[Tensor, Tensor]:
    """For each of N samples the `neighbours` others of largest cosine, and these cosines; never N×N numbers at once.

    Ranked in float64 and in steps of 2⁻³²: neither the precision of the features nor the place of a row in a product
    decides between copies of a sample.
    """
    unit = normalize(features.double(), dim=1)
    count = len(unit)
    nearest = torch.empty(count, neighbours, dtype=torch.int64, device=unit.device)
    cosines = features.new_empty(count, neighbours)
    earlier = torch.arange(count - 1, -1, -1, device=unit.device)
    rows = max(1, _COSINES_AT_ONCE // count)
    for start in range(0, count, rows):
        cosine = unit[start : start + rows] @ unit.T
        rank = (cosine * _COSINE_STEPS).round_().long().mul_(count).add_(earlier)  # no two alike: top-k has no ties
        own = torch.arange(len(rank), device=rank.device)
        rank[own, start + own] = torch.iinfo(torch.int64).min
        chosen = rank.topk(neighbours, dim=1).indices
        nearest[start : start + rows] = chosen
        cosines[start : start + rows] = cosine.gather(1, chosen)
    return nearest, cosines


def settle(log_z: Tensor, fixed: Tensor, ties: Ties, sweeps: int) -> Tensor:
    """Repeat z ∝ exp(fixed + (W + Wᵀ)·z), all samples at once, and give log z."""
    for _ in range(sweeps):
        log_z = (fixed + ties.pull(log_z.exp())).log_softmax(dim=1)
    return log_z


@dataclass(frozen=True)
class Moments:
    """Mean and variance of the features of each class, both C×d."""

    mean: Tensor
    variance: Tensor

    @classmethod
    def of(cls, features: Tensor, log_z: Tensor) -> "Moments":
        """Every sample weighted by z_ic / Σ_i z_ic."""
        middle = features.mean(dim=0)  # what is left of CLIP's cone is small, and so is the rounding of its squares
        centred, weights = features - middle, log_z.softmax(dim=0).T
        mean = weights @ centred
        variance = (weights @ centred.square()).sub_(mean.square()).clamp_(min=0)
        return cls(mean + middle, variance)

    def around(self, means: Tensor) -> Tensor:
        """Mean squares of f − μ_c, for other means μ."""
        return self.variance + (self.mean - means).square()


def log_likelihood(features: Tensor, means: Tensor, variances: Tensor) -> Tensor:
    """−½ Σ_j (f_ij − μ_cj)² / σ_cj, N×C, without the determinant; variances are C×d, or 1×d for all classes."""
    middle = features.mean(dim=0)
    centred, means, precisions = features - middle, means - middle, 1 / variances.clamp(min=SMALLEST_VARIANCE)
    cross = centred @ (means * precisions).T
    return cross - 0.5 * (centred.square() @ precisions.T + (means.square() * precisions).sum(dim=1))


def direction(rows: Tensor, otherwise: Tensor) -> Tensor:
    """Rows scaled to unit length; those too short to have a direction are replaced."""
    norms = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return torch.where(norms > SMALLEST_NORM, rows / norms, otherwise)


def as_logits(log_z: Tensor) -> Tensor:
    """log z, no class less probable than the smallest float32."""
    return log_z.clamp(min=math.log(SMALLEST_PROBABILITY))

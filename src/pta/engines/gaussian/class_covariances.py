"""Means and covariances of the classes, learned from weighted samples, and the mean covariance at each sample's turn.

DOTA's rule. A stretch is B samples with V views each (B×V×d). View v of sample t counts y_tvc for class c (B×V×C,
float64). The counts n_c before the first and after every sample are (B+1)×C. Every residual is x_v − μ_c with the mean
from before its sample.

Per class, n_c·Σ_c is kept: sums that only grow, written once per stretch. Within the stretch mean_c Σ_c is a weighted
sum of those before it and of the residuals since.
"""

from collections.abc import Iterator

import torch
from torch import Tensor


def learn_shared(pooled: Tensor, means: Tensor, views: Tensor, y: Tensor, counts: Tensor) -> Iterator[Tensor]:
    """Learn a stretch into Σ_c n_c·Σ_c / Σ_c n_c (d×d) and the means (C×d), in place.

    Gives the covariance before the first and after every sample, while the means are those of the same moment.
    """
    totals, smallest = counts.sum(dim=1), _smallest_count(means)
    yield pooled
    for t, x in enumerate(views):
        residuals = _move_means(means, x, y[t] / counts[t + 1].clamp_min(smallest)).flatten(0, 1)
        weighted = (y[t] / totals[t + 1]).to(x.dtype).flatten()[:, None] * residuals
        pooled.mul_(totals[t] / totals[t + 1]).addmm_(weighted.T, residuals)
        yield pooled


def learn_per_class(
    scatters: Tensor, means: Tensor, views: Tensor, y: Tensor, counts: Tensor, initial: float
) -> Iterator[Tensor]:
    """The same for mean_c Σ_c, given n_c·Σ_c (C×d×d) and `initial`, where a covariance starts as initial·I.

    With the means u_c from before the stretch and its rows x_s, every residual is Σ_j a_cs,j·x_j + a_cs,0·u_c.
    So Σ_s y_cs·r_cs·r_csᵀ needs no more than G_c = Σ_s y_cs·a_cs·a_csᵀ, and its mean C·d² operations per sample,
    however many residuals there are.
    """
    u, x, own, smallest = means.clone(), views.flatten(0, 1), views.shape[1], _smallest_count(means)
    a = _residual_coefficients(y, counts.clamp_min(smallest)).to(x.dtype)
    G = a.new_zeros(len(u), len(x) + 1, len(x) + 1)
    y_rows = y.flatten(0, 1).T.to(x.dtype)  # C×R
    weights = _weights_in_mean(counts, means)
    earlier = _weighted_mean(scatters, weights, initial)
    yield earlier[0]
    for t, sample in enumerate(views):
        _move_means(means, sample, y[t] / counts[t + 1].clamp_min(smallest))
        rows = slice(t * own, (t + 1) * own)
        G.baddbmm_((y_rows[:, rows, None] * a[:, rows]).mT, a[:, rows])
        Q = (weights[t + 1] @ G.flatten(1)).view(G.shape[1:])[1:, 1:]
        of_u = weights[t + 1][:, None] * G[:, 0]
        half = u.T @ (of_u[:, 1:] @ x + of_u[:, :1] * u / 2) + x.T @ (Q @ x) / 2
        yield earlier[t + 1] + half + half.T
    residuals = a[:, :, 1:] @ x + a[:, :, :1] * u[:, None]
    scatters.baddbmm_((y_rows[:, :, None] * residuals).mT, residuals)


def mean_covariance(scatters: Tensor, means: Tensor, counts: Tensor, initial: float) -> Tensor:
    """mean_c Σ_c, d×d, of n_c·Σ_c (C×d×d) and n_c (C)."""
    return _weighted_mean(scatters, _weights_in_mean(counts[None], means), initial)[0]


def _smallest_count(means: Tensor) -> float:
    """A class with a smaller count is as at the start: smaller sums would lose digits."""
    numbers = torch.finfo(means.dtype)
    return numbers.tiny / numbers.eps


def _move_means(means: Tensor, x: Tensor, shares: Tensor) -> Tensor:
    """Learn the means from views V×d with shares V×C; gives x_v − μ_c from before, V×C×d."""
    residuals = x[:, None] - means
    means += torch.einsum("vc,vcd->cd", shares.to(x.dtype), residuals)
    return residuals


def _residual_coefficients(y: Tensor, counts: Tensor) -> Tensor:
    """a, C×R×(1+R): what of u_c and of each row of the stretch is in x_s − μ_c, with μ_c from before its sample."""
    samples, own, _ = y.shape
    earlier = y.new_ones(samples, samples).tril(-1).kron(y.new_ones(own, own))
    n = counts[:-1].repeat_interleave(own, dim=0).T
    learned = y.flatten(0, 1).T[:, None] / n[:, :, None] * earlier
    of_u = learned.sum(dim=2, keepdim=True) - 1
    learned.diagonal(dim1=1, dim2=2).sub_(1.0)
    return torch.cat([of_u, -learned], dim=2)


def _weights_in_mean(counts: Tensor, means: Tensor) -> Tensor:
    """What n_c·Σ_c weighs in mean_c Σ_c with counts T×C; nothing if the class is as at the start."""
    weights = torch.where(counts < _smallest_count(means), 0.0, 1 / (len(means) * counts))
    return weights.to(means.dtype)


def _weighted_mean(scatters: Tensor, weights: Tensor, initial: float) -> Tensor:
    """mean_c Σ_c of the sums as they are with weights T×C: T×d×d."""
    mean = (weights @ scatters.flatten(1)).view(-1, *scatters.shape[1:])
    new = (weights == 0).to(mean.dtype).mean(dim=1, keepdim=True)
    mean.diagonal(dim1=1, dim2=2).add_(initial * new)
    return mean

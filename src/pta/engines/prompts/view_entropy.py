"""What methods that learn by a gradient minimise: the entropy of the mean probabilities of a sample's chosen views.

Rows of logits are float64 where they decide something: their order by entropy, or whether a loop ends.
"""

import torch
from torch import Tensor


def number_kept(views: int, keep: float) -> int:
    """How many of the views a share is: int(views·keep), at least one.

    >>> number_kept(64, 0.1), number_kept(4, 0.1)
    (6, 1)
    """
    return max(1, int(views * keep))


def by_entropy(z: Tensor) -> Tensor:
    """The order of B×V rows of logits (B×V×C) by their entropy, the lowest first; equal ones stay in order."""
    log_p = z.log_softmax(dim=-1)
    return _order(log_p.exp(), log_p)


def most_confident(z: Tensor, kept: int) -> Tensor:
    """The probabilities of so many rows of B×V×C logits, those of the lowest entropy, B×kept×C."""
    log_p = z.log_softmax(dim=-1)
    p = log_p.exp()
    return rows_of_each(p, _order(p, log_p)[:, :kept])


def rows_of_each(rows: Tensor, chosen: Tensor) -> Tensor:
    """Of B×n×d the rows with the B×k numbers, B×k×d."""
    return rows[torch.arange(len(rows), device=rows.device)[:, None], chosen]


def _order(p: Tensor, log_p: Tensor) -> Tensor:
    """The order of rows of probabilities by their entropy; the logarithms are overwritten."""
    return log_p.mul_(p).sum(dim=-1).neg_().argsort(dim=-1, stable=True)


def entropy_of_mean(z: Tensor) -> tuple[Tensor, Tensor]:
    """The entropy of the mean of the softmax of n rows (…×n×C), and its gradient with respect to each logit.

    H(p̄) with p̄ = mean of p_i, and ∂H/∂z_ij = −p_ij·(ln p̄_j − Σ_k p_ik ln p̄_k)/n. Of a single row it is the ordinary
    entropy.

    >>> entropy_of_mean(torch.tensor([[3.0, 0.0], [0.0, 3.0]]))[0]
    tensor(0.6931)
    """
    p = z.softmax(dim=-1)
    mean = p.mean(dim=-2)
    log_mean = mean.clamp_min(torch.finfo(z.dtype).tiny).log()  # where the mean is 0, so is every p
    own = (p @ log_mean[..., None])[..., 0]  # Σ_k p_ik ln p̄_k
    gradient = p * (log_mean[..., None, :] - own[..., None]) / -z.shape[-2]
    return -(mean * log_mean).sum(dim=-1), gradient


def entropy_by_bias(p: Tensor) -> tuple[Tensor, Tensor]:
    """The entropy of the mean of n rows of probabilities (B×n×C), and its gradient by what all their logits share.

    The gradient is the sum of `entropy_of_mean`'s over the rows: −p̄_j ln p̄_j + mean of p_ij·Σ_k p_ik ln p̄_k.
    """
    mean = p.mean(dim=1)
    log_mean = mean.clamp_min(torch.finfo(p.dtype).tiny).log()
    own = torch.bmm(log_mean[:, None], p.mT)
    terms = log_mean.mul_(mean)
    return -terms.sum(dim=1), torch.baddbmm(terms[:, None], own, p, beta=-1, alpha=1 / p.shape[1])[:, 0]

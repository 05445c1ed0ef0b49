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
    return log_p.exp().mul_(log_p).sum(dim=-1).neg_().argsort(dim=-1, stable=True)  # without another logarithm


def most_confident_rows(z: Tensor, kept: int) -> Tensor:
    """So many rows of B×V×C logits, those of the lowest entropy, B×kept×C."""
    return z.take_along_dim(by_entropy(z)[..., :kept, None], dim=-2)


def entropy_of_mean(z: Tensor) -> tuple[Tensor, Tensor]:
    """The entropy of the mean of the softmax of n rows (…×n×C), and its gradient with respect to each logit.

    H(p̄) with p̄ = mean of p_i, and ∂H/∂z_ij = −p_ij·(ln p̄_j − Σ_k p_ik ln p̄_k)/n. Of a single row it is the ordinary
    entropy. A number that is added to all rows alike has the sum of their gradients.

    >>> entropy_of_mean(torch.tensor([[3.0, 0.0], [0.0, 3.0]]))[0]
    tensor(0.6931)
    """
    p = z.softmax(dim=-1)
    mean = p.mean(dim=-2)
    log_mean = mean.clamp_min(torch.finfo(z.dtype).tiny).log()  # where the mean is 0, so is every p
    own = (p @ log_mean[..., None])[..., 0]  # Σ_k p_ik ln p̄_k
    gradient = p * (log_mean[..., None, :] - own[..., None]) / -z.shape[-2]
    return -(mean * log_mean).sum(dim=-1), gradient

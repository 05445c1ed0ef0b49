"""A C×C table of priors that begins as the identity, of which a stream changes few rows."""

from torch import Tensor

from pta.engines.host_readable import is_host_readable


def posterior_of(likelihood: Tensor, priors: Tensor, changed: Tensor) -> Tensor:
    """Πᵀ·q of …×C likelihoods q.

    On a CPU the rows that have not changed are not multiplied: they are those of the identity.

    Args:
        likelihood: q, …×C.
        priors: Π, C×C.
        changed: C flags, which rows have changed.
    """
    if not is_host_readable(changed):
        return likelihood @ priors
    rows = changed.nonzero()[:, 0]
    if 4 * len(rows) > len(priors):  # then picking them takes longer than multiplying all
        return likelihood @ priors
    return likelihood.index_fill(-1, rows, 0.0) + likelihood[..., rows] @ priors[rows]

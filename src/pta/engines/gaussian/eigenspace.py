"""The eigenvectors of large eigenvalues, from products alone: no library function for eigenvectors can be recorded."""

import torch
from torch import Tensor

_SQUARINGS = 26  # largest eigenvalues that differ by less than 2⁻²⁶ of them count as one
_SIGN_STEPS = 64  # tell eigenvalues from the cutoff that are 10⁻¹⁰ of the largest away from it


def eigenspace_above(covariance: Tensor, cutoff: Tensor) -> Tensor:
    """The projector on the eigenvectors whose eigenvalues are above a share (0-d) of the largest, d×d.

    It is (I + sign(Σ − cut·I))/2, with the limit of X ← X·(3I − X²)/2 for the sign and that of Σ's scaled squares for
    the projector on the eigenvectors of the largest eigenvalue. Of Σ = 0 it is I/2.
    """
    scaled = covariance / _length(covariance)
    top = scaled
    for _ in range(_SQUARINGS):
        top = top @ top
        top = top / _length(top)
    largest = (top * scaled).sum() / top.trace().clamp_min(torch.finfo(top.dtype).tiny)
    X = scaled.clone()
    X.diagonal().sub_(cutoff * largest)
    for _ in range(_SIGN_STEPS):
        X = torch.addmm(X, X @ X, X, beta=1.5, alpha=-0.5)
    X.diagonal().add_(1.0)
    return X / 2


def _length(matrix: Tensor) -> Tensor:
    return matrix.square().sum().sqrt().clamp_min(torch.finfo(matrix.dtype).tiny)

"""How much an anchored prototype still depends on where it started, after some samples were replayed."""

import numpy as np
import torch
from torch import Tensor

from pta.engines.affine import angle
from pta.engines.rule import Rule
from pta.engines.touches import Touches


def distance_left(
    knowledge: Tensor, largest_angle: Tensor, classes: Tensor, features: Tensor, touches: Touches, rule: Rule
) -> Tensor:
    """How far apart two anchored prototypes can be at most after the samples, for each of K classes.

    A refresh takes R and R' to u = w·R+(1−w)·P and u' = w·R'+(1−w)·P, scaled to unit length. Then their distance is
    at most that of R and R' times w/√(‖u‖·‖u'‖). The closer R is to P, the longer is u: an upper bound of that angle
    gives a lower bound of the length, and of the next angle.

    Given are P before the samples (K×d), an upper bound of the angle between P and both R and R' (K), the K class
    numbers, ascending, and the samples; the rule has a recursive, renormalised anchor.
    """
    P, away, F = knowledge.double(), largest_angle.numpy().copy(), features.double()
    push = (1 - rule.w) * torch.linalg.vector_norm(P, dim=1).numpy()
    distance = np.full(len(classes), 2.0 if rule.w < 1 else 0.0)  # with w = 1 nothing moves
    touches = touches.only(np.isin(touches.classes, classes.numpy()))
    order = np.argsort(touches.samples, kind="stable")
    rows = np.searchsorted(classes.numpy(), touches.classes[order])
    log_keep = torch.from_numpy(rule.log_decay(touches.probabilities[order]))[:, None]
    begin = np.searchsorted(touches.samples[order], np.arange(len(F) + 1))
    for sample, f in enumerate(F):
        now = slice(begin[sample], begin[sample + 1])
        if now.start < now.stop:
            row, keep = rows[now], log_keep[now]
            old = P[row]
            P[row] = keep.exp() * old - torch.expm1(keep) * f
            away[row] = np.minimum(away[row] + angle(old, P[row]).numpy(), np.pi)
            push[row] = (1 - rule.w) * torch.linalg.vector_norm(P[row], dim=1).numpy()
        along, across = rule.w * np.cos(away) + push, rule.w * np.sin(away)
        with np.errstate(divide="ignore", invalid="ignore"):
            distance = np.fmin(distance * (rule.w / np.hypot(along, across)), 2.0)
            # The angle after a refresh grows with the one before, up to its maximum if P outweighs R.
            at_most = np.where(push > rule.w, np.arcsin(np.minimum(rule.w / push, 1.0)), np.pi)
            past_maximum = (push > rule.w) & (np.cos(away) < -rule.w / push)
        away = np.where(past_maximum, at_most, np.arctan2(across, along))
    return torch.from_numpy(distance)

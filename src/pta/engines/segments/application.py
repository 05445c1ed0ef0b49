"""Applying a segment: the map of what came before its tail, then the ordinary step on the tail."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pta.engines.pta.advance import advance
from pta.engines.pta.chunk import refresh
from pta.engines.pta.rule import FORGOTTEN, Prototypes, Rule
from pta.engines.pta.touches import Touches
from pta.engines.segments.affine import AffineMap, angle, unit
from pta.engines.segments.segment import Segment

_REFRESHES_AT_ONCE = 64
_MOST_REFRESHES = 2**20
# `Rule.tail` is for an R along P. At a right angle to P, R forgets up to half as well, and starts at up to twice the
# distance.
_EXACT_WITHIN = 10 * FORGOTTEN
# Of P, in units of the rounding of its terms and the root of their number: a map and a stream round in other places.
_ROUNDING = 10


def after_segment(prototypes: Prototypes, anchors: Tensor, segment: Segment) -> tuple[Prototypes, bool]:
    """The prototypes from before a segment as they are after it, and whether its samples would have made them so."""
    new = prototypes.clone()
    exact = not segment.head.count or _apply_head(new, anchors, segment)
    advance(new, anchors, segment.tail.to(anchors.device), segment.touches, segment.rule)
    if segment.head.count and not (segment.rule.anchor == "recursive" and segment.rule.renormalise):
        exact = exact and _keeps_direction(prototypes, new, anchors, segment)
    return new, exact


def _keeps_direction(before: Prototypes, after: Prototypes, anchors: Tensor, segment: Segment) -> bool:
    """Whether every R, whose length is a sum's, is longer than the rounding of that sum's square.

    Engines follow the squares of lengths, so a shorter R may point anywhere, in a stream as well.
    """
    rule, touches = segment.rule, segment.touches
    decay = np.zeros(len(anchors))
    decay[segment.head.classes.numpy()] = segment.head.log_decay.numpy()
    np.add.at(decay, touches.classes, rule.log_decay(touches.probabilities))
    terms = np.exp(decay) * torch.linalg.vector_norm(before.knowledge.double(), dim=1).cpu().numpy() - np.expm1(decay)
    if rule.anchor == "fixed":
        mixed = rule.w * anchors.double() + (1 - rule.w) * after.knowledge.double()
        length, terms = torch.linalg.vector_norm(mixed, dim=1), rule.w + (1 - rule.w) * terms
    else:
        length, terms = after.length, rule.w**segment.count * before.length.double().cpu().numpy() + terms
    shortest = _ROUNDING * np.sqrt(torch.finfo(before.knowledge.dtype).eps) * terms
    return bool((length.double().cpu().numpy() > shortest)[decay < 0].all())


def _apply_head(prototypes: Prototypes, anchors: Tensor, segment: Segment) -> bool:
    head, rule = segment.head, segment.rule
    moved = np.union1d(head.classes.numpy(), torch.nonzero(~prototypes.resting)[:, 0].cpu().numpy())
    if rule.anchor == "fixed":
        moved = head.classes.numpy()
    classes = torch.from_numpy(moved)
    rows = classes.to(anchors.device)
    P, R = prototypes.knowledge[rows].cpu().double(), prototypes.anchored[rows].cpu().double()
    length = prototypes.length[rows].cpu()
    change = head.for_classes(classes, rule)
    new_P = change.log_decay.exp()[:, None] * P + change.offset
    settled, exact = ~new_P.any(dim=1), True
    if rule.anchor == "fixed":
        new_R = unit(rule.w * anchors[rows].cpu().double() + (1 - rule.w) * new_P, R)
        settled = torch.ones_like(settled)
    elif change.anchored:
        unscaled = (length * rule.w**head.count)[:, None] * R + change.anchored.from_knowledge[:, None] * P
        unscaled += change.anchored.offset
        new_R, length = unit(unscaled, R), torch.linalg.vector_norm(unscaled, dim=1)
    else:
        new_R, settled, exact = _refreshed(R, new_P, head.count, rule, prototypes.arrived_within)
        exact = exact and _replay_settles(P, R, new_P, change, segment, torch.finfo(prototypes.knowledge.dtype).eps)
    if rule.fades_linearly:
        prototypes.length[~prototypes.touched] *= rule.w**head.count
    prototypes.knowledge[rows] = new_P.to(prototypes.knowledge)
    prototypes.anchored[rows] = new_R.to(prototypes.anchored)
    prototypes.length[rows] = length.to(prototypes.length)
    prototypes.resting[rows] = settled.to(prototypes.resting)
    prototypes.touched[head.classes.to(rows)] = True
    return exact and prototypes.knowledge.dtype in (torch.float32, torch.float64)  # others round at every sample


def _refreshed(R: Tensor, P: Tensor, times: int, rule: Rule, arrived_within: float) -> tuple[Tensor, Tensor, bool]:
    """R after so many refreshes on a P that stands still, where it rests then, and whether it was worth the time."""
    overlap, square = (R * P).sum(dim=1).numpy(), P.square().sum(dim=1).numpy()
    settled = (square == 0) | (rule.w == 1)
    from_r, from_p = np.ones_like(square), np.zeros_like(square)
    left = min(times, _MOST_REFRESHES)
    while left > 0 and not settled.all():
        path = refresh(overlap, square, np.ones_like(square), min(left, _REFRESHES_AT_ONCE), rule, arrived_within)
        a, b, left = path.from_r[-1], path.from_p[-1], left - path.steps
        from_r, from_p = a * from_r, a * from_p + b
        overlap = a * overlap + b * square
        settled = path.arrived[-1] | (square == 0)
    moved = torch.from_numpy(from_r)[:, None] * R + torch.from_numpy(from_p)[:, None] * P
    done = bool(settled.all()) or times <= _MOST_REFRESHES
    return unit(moved, R), torch.from_numpy(settled), done


def _replay_settles(P: Tensor, R: Tensor, new_P: Tensor, change: AffineMap, segment: Segment, eps: float) -> bool:
    """Whether R after the tail is the stream's, although R before the tail is not, in classes touched before it.

    R before the tail is a mixture of R and P before the segment and of the features that were learned. All of them are
    within some angle of the new P; if that is a right angle or less, so is every mixture of them. Where the terms of P
    cancel to their rounding, P has no direction that R could follow.
    """
    touched = change.log_decay < 0
    P, R, new_P = P[touched], R[touched], new_P[touched]
    from_features = angle(change.offset[touched], new_P) + change.spread[touched]
    from_before = torch.where(P.any(dim=1), angle(P, new_P), 0.0)
    largest = torch.stack([angle(R, new_P), from_before, from_features]).amax(dim=0)
    largest[largest > np.pi / 2] = np.pi
    decay = change.log_decay[touched]
    terms = decay.exp() * torch.linalg.vector_norm(P, dim=1) - torch.expm1(decay)
    rounding = _ROUNDING * eps * np.sqrt(segment.count) * terms.numpy()
    left, undetermined = _distance_left(
        new_P, rounding, largest, change.classes[touched], segment.tail, segment.touches, segment.rule
    )
    # in float32, where P is rounded at every sample, R is as exact as P
    allowed = _EXACT_WITHIN * np.sqrt(eps / np.finfo(np.float64).eps)
    return bool((left <= _EXACT_WITHIN).all() and (undetermined <= allowed).all())


def _distance_left(
    knowledge: Tensor,
    rounding: NDArray[np.float64],
    largest_angle: Tensor,
    classes: Tensor,
    features: Tensor,
    touches: Touches,
    rule: Rule,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How far apart two anchored prototypes can be at most after the samples, for each of K classes.

    First because they were apart before, then because of the rounding of P.

    A refresh takes R and R' to u = w·R+(1−w)·P and u' = w·R'+(1−w)·P, scaled to unit length. Then their distance is
    at most that of R and R' times w/√(‖u‖·‖u'‖). The closer R is to P, the longer is u: an upper bound of that angle
    gives a lower bound of the length, and of the next angle. An error of P is added to that of u.

    Given are P before the samples (K×d) and the length of its error (K), an upper bound of the angle between P and
    both R and R' (K), the K class numbers, ascending, and the samples; the rule has a recursive, renormalised anchor.
    """
    P, away, F = knowledge.double(), largest_angle.numpy().copy(), features.double()
    push = (1 - rule.w) * torch.linalg.vector_norm(P, dim=1).numpy()
    distance = np.full(len(classes), 2.0 if rule.w < 1 else 0.0)  # with w = 1 nothing moves
    undetermined, errors = np.zeros(len(classes)), (1 - rule.w) * rounding
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
            length = np.hypot(along, across)
            distance = np.fmin(distance * (rule.w / length), 2.0)
            undetermined = np.fmin(undetermined * (rule.w / length) + errors / length, 2.0)
            # The angle after a refresh grows with the one before, up to its maximum if P outweighs R.
            at_most = np.where(push > rule.w, np.arcsin(np.minimum(rule.w / push, 1.0)), np.pi)
            past_maximum = (push > rule.w) & (np.cos(away) < -rule.w / push)
        away = np.where(past_maximum, at_most, np.arctan2(across, along))
    return distance, undetermined

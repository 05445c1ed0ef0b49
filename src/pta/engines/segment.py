"""Segments: what a stretch of stream does to the knowledge prototypes, as an affine map per class.

P ← decay·P + offset, whatever P was before. Maps compose, so stretches can be summarised anywhere, in parallel, and
put together in order; leaving one out is the stream without it.
"""

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pta.engines.prototypes import Prototypes
from pta.engines.refresh import refresh
from pta.engines.rule import Rule
from pta.engines.touches import Touches
from pta.errors import StateMismatch
from pta.files import load_tensors, save_tensors

_VERSION = 1
_REFRESHES_AT_ONCE = 64


@dataclass(frozen=True)
class Segment:
    """The summary of `count` consecutive samples.

    Attributes:
        log_decay: logarithm of what is kept of the P before (C, float64); zero for an untouched class.
        offset: what the samples themselves leave in P, C×d.
        count: how many samples were summarised.
        rule: the rule they were summarised by.
        classifier: fingerprint of the classifier whose probabilities they had.
    """

    log_decay: Tensor
    offset: Tensor
    count: int
    rule: Rule
    classifier: str

    @classmethod
    def of(cls, features: Tensor, touches: Touches, rule: Rule, classes: int, classifier: str) -> "Segment":
        """Summarise samples with the given touches."""
        log_keep = rule.log_decay(touches.probabilities)
        total = np.bincount(touches.classes, weights=log_keep, minlength=classes)
        up_to_class = np.cumsum(total) - total  # touches are sorted by class: one running sum serves all
        after = total[touches.classes] - (np.cumsum(log_keep) - up_to_class[touches.classes])
        weights = -np.expm1(log_keep) * np.exp(np.minimum(after, 0.0))
        shares = features.new_zeros(classes, len(features))
        shares[touches.classes, touches.samples] = torch.from_numpy(weights).to(features)
        offset = shares @ features
        return cls(torch.from_numpy(total).to(features.device), offset, len(features), rule, classifier)

    def save(self, path: str | Path) -> None:
        """Write the segment to a safetensors file, atomically."""
        about = {
            "kind": "segment",
            "version": _VERSION,
            "count": self.count,
            "rule": asdict(self.rule),
            "classifier": self.classifier,
        }
        save_tensors(path, {"log_decay": self.log_decay, "offset": self.offset}, about)

    @classmethod
    def load(cls, path: str | Path) -> "Segment":
        """Read what `save` wrote."""
        tensors, about = load_tensors(path, kind="segment")
        if about.get("version") != _VERSION:
            raise StateMismatch(f"{path} has segment version {about.get('version')}; this pta reads {_VERSION}")
        try:
            rule, count, classifier = Rule(**about["rule"]), int(about["count"]), str(about["classifier"])
            segment = cls(tensors["log_decay"], tensors["offset"], count, rule, classifier)
        except (KeyError, TypeError) as error:
            raise StateMismatch(f"{path} is not a whole segment: {error}") from None
        if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values()) or count < 0:
            raise StateMismatch(f"{path} holds NaN, Inf or a negative count; the file is damaged")
        return segment

    def require_for(self, rule: Rule, classifier: str, shape: tuple[int, ...]) -> None:
        """Refuse to mix summaries by different rules or for different classifiers."""
        if self.classifier != classifier:
            raise StateMismatch("the segment was summarised for another classifier (anchors, names, scale or bias)")
        if self.rule != rule:
            raise StateMismatch(f"the segment was summarised with {self.rule}, not {rule}")
        if tuple(self.offset.shape) != shape or tuple(self.log_decay.shape) != shape[:1]:
            raise StateMismatch(f"the segment is not for prototypes of shape {shape}")


def compose(first: Segment, then: Segment) -> Segment:
    """The segment of two consecutive stretches; `compose` is associative, not commutative."""
    then.require_for(first.rule, first.classifier, tuple(first.offset.shape))
    kept = then.log_decay.exp()[:, None].to(first.offset)
    return Segment(
        first.log_decay + then.log_decay,
        kept * first.offset + then.offset,
        first.count + then.count,
        first.rule,
        first.classifier,
    )


def apply_segment(prototypes: Prototypes, anchors: Tensor, segment: Segment) -> None:
    """Bring the prototypes from before a segment to after it.

    P is exactly that of the stream. R is refreshed on the new P as often as the segment has samples: that is exact
    for a fixed anchor and for classes the segment did not touch; for the others it lacks what the very last touches
    still had under way, which fades by about w/(w+‖P‖) a sample.
    """
    rule = segment.rule
    kept = segment.log_decay.exp()[:, None]
    prototypes.knowledge.copy_(kept.to(prototypes.knowledge) * prototypes.knowledge + segment.offset)
    if rule.anchor == "fixed":
        mixed = rule.w * anchors + (1 - rule.w) * prototypes.knowledge
        norm = torch.linalg.vector_norm(mixed, dim=1, keepdim=True)
        prototypes.anchored.copy_(torch.where(norm > 0, mixed / norm, prototypes.anchored))
    else:
        if not rule.renormalise:
            prototypes.length[~prototypes.touched & (segment.log_decay == 0)] *= rule.w**segment.count
        _refresh_all(prototypes, segment.count, rule)
    prototypes.touched |= segment.log_decay < 0


def _refresh_all(prototypes: Prototypes, times: int, rule: Rule) -> None:
    P, R = prototypes.knowledge.double(), prototypes.anchored.double()
    overlap, square = (R * P).sum(dim=1).cpu().numpy(), P.square().sum(dim=1).cpu().numpy()
    length, settled = prototypes.length.cpu().numpy(), square == 0
    from_r, from_p = np.ones_like(square), np.zeros_like(square)
    while times > 0 and not settled.all():
        path = refresh(overlap, square, length, min(times, _REFRESHES_AT_ONCE), rule, prototypes.arrived_within)
        a, b, times = path.from_r[-1], path.from_p[-1], times - path.steps
        from_r, from_p = a * from_r, a * from_p + b
        overlap, length = a * overlap + b * square, np.where(square > 0, path.length[-1], length)
        settled = path.arrived[-1] | (square == 0)
    moved = torch.from_numpy(from_r)[:, None].to(R) * R + torch.from_numpy(from_p)[:, None].to(R) * P
    prototypes.anchored.copy_(torch.nn.functional.normalize(moved, dim=1))
    prototypes.length.copy_(torch.from_numpy(length))
    prototypes.resting.copy_(torch.from_numpy(settled))

"""Segments: stretches of stream that are summarised anywhere, composed in order, and applied.

A segment is the affine map of all but its last samples, and those last samples themselves, its *tail*. The map gives
exactly the knowledge prototypes P. The recursive anchored prototype R is renormalised at every sample, which no map
gives; but it forgets where it started within a few samples, so replaying the tail makes it exact as well.
"""

import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pta.core.parameters import check_given
from pta.core.samples import LONGEST_MEAN, SMALLEST_NORM
from pta.door.files import load_tensors, save_tensors
from pta.engines.pta.rule import LABEL_WEIGHTS, PARAMETERS, Rule
from pta.engines.pta.touches import Touches
from pta.engines.segments.affine import AffineMap, AnchoredMap
from pta.errors import PtaError, StateMismatch, shown

_VERSION = 2
_MOST_SAMPLES = 2**53
_LARGEST_SIDE = 2**31
_ROUNDING = 1e-6  # of sums that are one at most
_HEAD = ("classes", "log_decay", "offset", "spread")
_TOUCHES = ("samples", "classes", "probabilities")


@dataclass(frozen=True)
class Segment:
    """The summary of consecutive samples, in main memory.

    `load` refuses anything that `summarise` could not have made. What is made of samples and of other segments is not
    checked.
    """

    head: AffineMap  # of the samples before the tail
    tail: Tensor  # n×d, the features of the last samples: as many as `rule.tail`, or all
    touches: Touches  # of the tail
    rule: Rule
    shape: tuple[int, int]  # number of classes and dimension of the prototypes
    classifier: str  # fingerprint of the classifier whose probabilities they had

    @property
    def count(self) -> int:
        """How many samples were summarised."""
        return self.head.count + len(self.tail)

    @classmethod
    def of(cls, features: Tensor, touches: Touches, rule: Rule, classes: int, classifier: str) -> "Segment":
        """Summarise samples with the given touches."""
        start, end = max(0, len(features) - rule.tail), len(features)
        head = AffineMap.of(features[:start], touches.between(0, start), rule)
        tail = features[start:].to("cpu", copy=True)
        return cls(head, tail, touches.between(start, end), rule, (classes, features.shape[1]), classifier)

    def followed_by(self, then: "Segment") -> "Segment":
        """The segment of both stretches, which are of one classifier and rule."""
        tail, touches = torch.cat([self.tail, then.tail]), Touches.joined([self.touches, then.touches])
        folded = Segment.of(tail, touches, self.rule, self.shape[0], self.classifier)
        head = self.head.followed_by(folded.head, self.rule).followed_by(then.head, self.rule)
        return replace(folded, head=head)

    def save(self, path: str | Path) -> None:
        """Write the segment to a safetensors file, atomically."""
        save_tensors(path, *self.parts())

    def parts(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The tensors of its file, and their description."""
        tensors = {f"head.{name}": getattr(self.head, name) for name in _HEAD} | {"tail": self.tail}
        tensors |= {f"touches.{name}": torch.from_numpy(getattr(self.touches, name)) for name in _TOUCHES}
        if self.head.anchored:
            tensors |= {f"anchored.{name}": part for name, part in self.head.anchored._asdict().items()}
        about = {
            "kind": "segment",
            "version": _VERSION,
            "count": self.count,
            "rule": asdict(self.rule),
            "shape": self.shape,
            "classifier": self.classifier,
        }
        return tensors, about

    @classmethod
    def load(cls, path: str | Path) -> "Segment":
        """Read what `save` wrote, and refuse anything that `summarise` could not have made."""
        return cls.of_parts(*load_tensors(path, kind="segment"), source=str(path))

    @classmethod
    def of_parts(cls, tensors: dict[str, Tensor], about: dict[str, Any], source: str) -> "Segment":
        """The segment of what `parts` gave, or a refusal that names the source."""
        if about.get("version") != _VERSION:
            raise StateMismatch(
                f"{source} has segment version {shown(about.get('version'))}; this pta reads {_VERSION}"
            )
        try:
            count, shape, given = (about.get(name) for name in ("count", "shape", "rule"))
            if type(count) is not int or not isinstance(shape, list):
                raise StateMismatch("its count must be a whole number and its shape a list")
            if not isinstance(given, dict) or given.keys() != PARAMETERS.keys():
                raise StateMismatch(f"its rule must say {', '.join(PARAMETERS)}")
            rule = Rule(**check_given("a segment's rule", PARAMETERS, given))
            names = {"head": _HEAD, "touches": _TOUCHES, "anchored": AnchoredMap._fields if rule.fades_linearly else ()}
            wanted = {"tail", *(f"{of}.{name}" for of, own in names.items() for name in own)}
            if wrong := wanted ^ tensors.keys():
                raise StateMismatch(f"{shown(min(wrong))} is missing, or no part of such a segment")
            parts = {of: {name: tensors[f"{of}.{name}"] for name in own} for of, own in names.items()}
            plain = all(part.dtype in (torch.int64, torch.float64) for part in parts["touches"].values())
            _require(plain, "its touches must be int64 and float64 numbers")
            tail = tensors["tail"]
            kept = len(tail) if tail.ndim else 0
            head = AffineMap(
                count - kept, **parts["head"], anchored=AnchoredMap(**parts["anchored"]) if names["anchored"] else None
            )
            touches = Touches(**{name: part.numpy() for name, part in parts["touches"].items()}, count=kept)
            segment = cls(head, tail, touches, rule, tuple(shape), about.get("classifier", ""))
            require_whole(*vars(segment).values())
        except PtaError as error:
            raise StateMismatch(f"{source} is not a whole segment: {error}") from None
        return segment

    def require_for(self, rule: Rule, classifier: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        """Refuse to be applied or composed where another rule, classifier (by fingerprint) or precision is used."""
        if self.classifier != classifier:
            raise StateMismatch("the segment was summarised for another classifier (anchors, names, scale or bias)")
        for own, other in ((self.rule, rule), (self.shape, shape), (self.tail.dtype, dtype)):
            if own != other:
                raise StateMismatch(f"the segment was summarised with {own}, not {other}")


def compose(first: Segment, then: Segment) -> Segment:
    """The segment of two consecutive stretches; `compose` is associative up to rounding, not commutative."""
    then.require_for(first.rule, first.classifier, first.shape, first.tail.dtype)
    return first.followed_by(then)


def require_whole(
    head: AffineMap, tail: Tensor, touches: Touches, rule: Rule, shape: tuple[int, int], classifier: str
) -> None:
    """Refuse parts that do not make a segment."""
    sizes = len(shape) == 2 and all(type(size) is int and 0 < size <= _LARGEST_SIDE for size in shape)
    _require(
        sizes and isinstance(classifier, str), "its shape must be the classes and dimensions, its classifier a text"
    )
    (C, d), n, wide = shape, head.count, torch.float64
    rows = tail.ndim == 2 and tail.shape[1] == d and len(tail) > 0 and tail.dtype in (torch.float32, wide)
    _require(rows, "its tail must be float32 or float64 rows, as long as an anchor")
    norms = torch.linalg.vector_norm(tail, dim=1)
    usable = ((norms >= SMALLEST_NORM) & (norms <= LONGEST_MEAN)).all()
    _require(usable, "a feature in its tail is zero, NaN or Inf, or longer than one")
    whole = 0 <= n <= _MOST_SAMPLES and len(tail) == min(n + len(tail), rule.tail)
    _require(whole, "its tail must hold as many samples as its rule asks for, or all")
    K = head.classes.numel()
    _require_numbers("classes", head.classes, K, torch.int64, 0, C - 1)
    ascending = (head.classes.diff() > 0).all() and (n > 0 or not K)
    _require(ascending, "its classes must be different and ascending, and none if it is all tail")
    once, every_time = (float(rule.log_decay(np.array(weight))) for weight in _weights(rule))
    _require_numbers("log_decay", head.log_decay, K, wide, n * every_time * (1 + _ROUNDING), once)
    _require_rows("offset", head.offset, -torch.expm1(head.log_decay), d, tail.dtype)
    _require_numbers("spread", head.spread, K, wide, 0.0, math.pi)
    if head.anchored:
        learned = 1 - rule.w**n + _ROUNDING  # the share in R of every P since the start
        _require_numbers("from_knowledge", head.anchored.from_knowledge, K, wide, 0.0, learned)
        _require_rows("anchored offset", head.anchored.offset, learned - head.anchored.from_knowledge, d, tail.dtype)
    require_touches(touches, rule, len(tail), C)


def _require_numbers(name: str, given: Tensor, count: int, dtype: torch.dtype, low: float, high: float) -> None:
    inside = given.shape == (count,) and given.dtype == dtype and ((given >= low) & (given <= high)).all()
    _require(inside, f"its {name} must be {count} numbers of {dtype} from {low:g} to {high:g}")


def _require_rows(name: str, given: Tensor, weights: Tensor, dim: int, dtype: torch.dtype) -> None:
    """Refuse rows that are not sums of features, none longer than one, with weights that add up to so much."""
    _require(
        given.shape == (len(weights), dim) and given.dtype == dtype, f"its {name} must be rows like those of its tail"
    )
    longest = torch.linalg.vector_norm(given, dim=1, dtype=torch.float64) <= weights * LONGEST_MEAN
    _require(longest.all(), f"its {name} has rows that are longer than any sum of its features")


def require_touches(touches: Touches, rule: Rule, count: int, classes: int) -> None:
    """Refuse what cannot be the touches of so many samples and classes."""
    samples, touched, p = touches.samples, touches.classes, touches.probabilities
    typed = samples.dtype == touched.dtype == np.int64 and p.dtype == np.float64
    whole = samples.ndim == 1 and samples.shape == touched.shape == p.shape and touches.count == count
    _require(
        typed and whole, "its touches must be int64 samples and classes and float64 probabilities, of each as many"
    )
    inside = ((samples >= 0) & (samples < count) & (touched >= 0) & (touched < classes)).all()
    ordered = ((np.diff(touched) > 0) | ((np.diff(touched) == 0) & (np.diff(samples) > 0))).all()
    _require(inside and ordered, "its touches must be of its samples and classes, ordered by class, then by sample")
    least, most = _weights(rule)
    _require(((p >= least) & (p <= most)).all(), f"the weights of its touches must be from {least:g} to {most:g}")


def _weights(rule: Rule) -> tuple[float, float]:
    """The least and the most that a touch can weigh: a probability, or what a label weighs."""
    return min(rule.threshold * (1 - _ROUNDING), LABEL_WEIGHTS[0]), LABEL_WEIGHTS[1]


def _require(holds: Any, complaint: str) -> None:
    if not holds:
        raise StateMismatch(complaint)

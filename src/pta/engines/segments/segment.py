"""Segments: stretches of stream that are summarised anywhere, composed in order, and applied.

A segment is the affine map of all but its last samples, and those last samples themselves, its *tail*. The map gives
exactly the knowledge prototypes P. The recursive anchored prototype R is renormalised at every sample, which no map
gives; but it forgets where it started within a few samples, so replaying the tail makes it exact as well.
"""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pta.core.parameters import check_given
from pta.door.files import load_tensors, save_tensors
from pta.engines.pta.rule import PARAMETERS, Rule
from pta.engines.pta.touches import Touches
from pta.engines.segments.affine import AffineMap, AnchoredMap
from pta.engines.segments.checks import require_whole
from pta.errors import PtaError, StateMismatch, shown

_VERSION = 2
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
        rule = self.rule
        tail, touches = torch.cat([self.tail, then.tail]), Touches.joined([self.touches, then.touches])
        start, end = max(0, len(tail) - rule.tail), len(tail)
        folded = AffineMap.of(tail[:start], touches.between(0, start), rule)
        head = self.head.followed_by(folded, rule).followed_by(then.head, rule)
        return replace(self, head=head, tail=tail[start:].clone(), touches=touches.between(start, end))

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
            return cls._of_parts(tensors, about)
        except PtaError as error:
            raise StateMismatch(f"{source} is not a whole segment: {error}") from None

    @classmethod
    def _of_parts(cls, tensors: dict[str, Tensor], about: dict[str, Any]) -> "Segment":
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
        if any(part.dtype not in (torch.int64, torch.float64) for part in parts["touches"].values()):
            raise StateMismatch("its touches must be int64 and float64 numbers")
        tail = tensors["tail"]
        kept = len(tail) if tail.ndim else 0
        head = AffineMap(
            count - kept, **parts["head"], anchored=AnchoredMap(**parts["anchored"]) if names["anchored"] else None
        )
        touches = Touches(**{name: part.numpy() for name, part in parts["touches"].items()}, count=kept)
        segment = cls(head, tail, touches, rule, tuple(shape), about.get("classifier", ""))
        require_whole(*vars(segment).values())
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

"""What the first pass keeps of a block."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pta.door.files import pack_tensors, unpack_tensors
from pta.engines.pta.touches import Touches
from pta.engines.segments.affine import AffineMap
from pta.engines.segments.segment import Segment, require_touches
from pta.errors import StateMismatch, shown
from pta.methods.wpta import Sums

_VERSION = 1
_KIND = "summary of a block"
_COUNTS = ("start", "count", "learned")
_TOUCHES = {"samples": torch.int32, "classes": torch.int32, "probabilities": torch.float64}
_LARGEST = 2**53


State = dict[str, Tensor]
"""The state of an adapter by name, as `Adapter.state` gives it and a `Snapshot` holds it."""


@dataclass(frozen=True)
class BlockSummary:
    """What a block teaches, and what the second pass needs beside its features."""

    start: int  # number of its first sample
    count: int  # of numbers
    learned: int  # samples that have features
    segment: Segment | None = None  # pta; None if no sample has features
    touches: Touches | None = None  # pta, of all rows; None if the rule has too many to be kept: they are found again
    sums: tuple[Sums, Sums] | None = None  # wpta: until the last refresh within the block, and since
    maps: list[AffineMap] = field(default_factory=list, init=False)  # what happens to P: before the tail, and in it

    def __post_init__(self) -> None:
        whole = all(type(getattr(self, name)) is int and 0 <= getattr(self, name) <= _LARGEST for name in _COUNTS)
        if not whole or self.learned > self.count:
            raise StateMismatch(f"a block cannot have {', '.join(shown(getattr(self, name)) for name in _COUNTS)}")
        held = sum(part.count for part in self.sums) if self.sums else self.segment.count if self.segment else 0
        if held != self.learned:
            raise StateMismatch(f"a block with {self.learned} samples is summarised as one with {held}")
        if self.touches is not None and self.segment is not None:
            require_touches(self.touches, self.segment.rule, self.learned, self.segment.shape[0])
        if self.segment is not None:
            tail = AffineMap.of(self.segment.tail, self.segment.touches, self.segment.rule)
            object.__setattr__(self, "maps", [self.segment.head, tail])

    def to_bytes(self) -> bytes:
        """The content of a safetensors file."""
        tensors: dict[str, Tensor] = {}
        about: dict[str, Any] = {"kind": _KIND, "version": _VERSION} | {name: getattr(self, name) for name in _COUNTS}
        if self.segment:
            parts, about["segment"] = self.segment.parts()
            tensors |= {f"segment.{name}": part for name, part in parts.items()}
        if self.touches:
            for name, dtype in _TOUCHES.items():
                tensors[f"touches.{name}"] = torch.from_numpy(getattr(self.touches, name)).to(dtype)
        if self.sums:
            about["sums"] = {"counts": [one.count for one in self.sums], "rule": dict(self.sums[0].rule)}
            about["sums"]["fingerprint"] = self.sums[0].fingerprint
            for place, one in enumerate(self.sums):
                tensors |= {f"sums.{place}.{name}": part for name, part in one.tensors.items()}
        return pack_tensors(tensors, about)

    @classmethod
    def of_bytes(cls, content: bytes) -> "BlockSummary":
        """What `to_bytes` gave; anything that `summarise_block` could not have made is refused."""
        tensors, about = unpack_tensors(content, _KIND)
        if about.get("version") != _VERSION:
            raise StateMismatch(
                f"the block has summary version {shown(about.get('version'))}; this pta reads {_VERSION}"
            )
        try:
            return cls._of_parts(tensors, about)
        except (KeyError, TypeError, AttributeError) as error:
            raise StateMismatch(f"the summary of a block lacks a part, or has a wrong one: {error}") from None

    @classmethod
    def _of_parts(cls, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> "BlockSummary":
        counts = {name: about[name] for name in _COUNTS}
        segment = touches = sums = None
        if "segment" in about:
            segment = Segment.of_parts(without_prefix("segment.", tensors), about["segment"], "the summary of a block")
        if found := without_prefix("touches.", tensors):
            if {name: part.dtype for name, part in found.items()} != _TOUCHES:
                raise StateMismatch("the touches of a block must be int32 samples and classes and float64 numbers")
            samples, classes = (found[name].numpy().astype(np.int64) for name in ("samples", "classes"))
            touches = Touches(samples, classes, found["probabilities"].numpy(), counts["learned"])
        if "sums" in about:
            given = about["sums"]
            first, then = (
                Sums(count, given["fingerprint"], given["rule"], without_prefix(f"sums.{place}.", tensors))
                for place, count in enumerate(given["counts"])
            )
            sums = first, then
        return cls(**counts, segment=segment, touches=touches, sums=sums)


@dataclass(frozen=True)
class BlockGroup:
    """What consecutive blocks teach together, for the upper level of a scan."""

    maps: list[AffineMap] = field(default_factory=list)  # pta
    sums: tuple[Sums, Sums] | None = None  # wpta


Part = BlockSummary | BlockGroup


def without_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin so, by the rest of their names."""
    return {name.removeprefix(prefix): one for name, one in tensors.items() if name.startswith(prefix)}

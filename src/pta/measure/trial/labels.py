"""Labels of the samples of a stream, from labelled samples that are the same by content or by file name."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np
from numpy.typing import NDArray

from pta.core.limits import USUAL_LIMITS
from pta.data.sample_set import ListedSample, SampleSet
from pta.errors import InvalidSamples

UNKNOWN = -1


@dataclass(frozen=True)
class Matched:
    """The labels of a stream's samples, and how they were found."""

    labels: NDArray[np.int64]  # one per sample of the stream, UNKNOWN for those without
    by_content: int  # labelled samples that were found
    by_name: int
    missing: int  # labelled samples that are not in the stream
    contradicting: tuple[str, ...]  # labelled samples whose content has several labels; they are not used

    def sentence(self, things: str) -> str:
        """What a user should know of it."""
        found, all_ = self.by_content + self.by_name, self.by_content + self.by_name + self.missing
        how = f"{self.by_content:,} by content, {self.by_name:,} by file name alone"
        return f"{found:,} of {all_:,} labelled {things} are in the stream: {how}"


def match_labels(stream: Sequence[ListedSample], labelled: SampleSet, most: int = USUAL_LIMITS.max_bytes) -> Matched:
    """Find the labelled samples in a stream; one of more than `most` bytes is refused.

    A file name counts where the content is not found, if it occurs once on either side.
    """
    assert labelled.labels is not None
    contents = [_digest(sample, most) for sample in labelled.samples]
    known: dict[bytes, set[int]] = {}
    for content, label in zip(contents, labelled.labels.tolist(), strict=True):
        known.setdefault(content, set()).add(label)
    sizes = {sample.stamp[0] for sample in labelled.samples}  # nothing else can have the same content
    coming = [_digest(sample, most) if sample.stamp[0] in sizes else b"" for sample in stream]
    labels = np.array([_only(known.get(content, ())) for content in coming], np.int64)
    found = {*coming}
    left = [number for number, content in enumerate(contents) if content not in found]
    names = _once([PurePosixPath(labelled.samples[number].key).name for number in left])
    own = _once([PurePosixPath(sample.key).name for sample in stream])
    by_name = [(own[name], left[at]) for name, at in names.items() if name in own and coming[own[name]] not in known]
    for position, number in by_name:
        labels[position] = labelled.labels[number]
    if not (labels != UNKNOWN).any():
        raise InvalidSamples(
            f"none of the {len(labelled):,} labelled samples of {labelled.name} is in the stream, neither by content "
            "nor by file name"
        )
    twice = tuple(s.key for s, content in zip(labelled.samples, contents, strict=True) if len(known[content]) > 1)
    return Matched(labels, len(contents) - len(left), len(by_name), len(left) - len(by_name), twice)


def _digest(sample: ListedSample, most: int) -> bytes:
    return hashlib.sha256(sample.read(most)).digest()


def _only(labels: set[int] | tuple[()]) -> int:
    return next(iter(labels)) if len(labels) == 1 else UNKNOWN


def _once(names: Sequence[str]) -> dict[str, int]:
    """The place of each name that occurs once."""
    times = Counter(names)
    return {name: place for place, name in enumerate(names) if times[name] == 1}

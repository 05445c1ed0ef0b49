"""Labels of the samples of a stream, from labelled samples that are the same by content or by file name."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath

import numpy as np
from numpy.typing import NDArray

from pta.core.labels import UNKNOWN
from pta.core.limits import USUAL_LIMITS
from pta.data.sample_set import ListedSample, SampleSet
from pta.door.patience import USUAL_PATIENCE
from pta.errors import InvalidSamples, PtaError


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


def match_labels(
    stream: Sequence[ListedSample],
    labelled: SampleSet,
    most: int = USUAL_LIMITS.max_bytes,
    *,
    passed: tuple[type[PtaError], ...] = (),
) -> Matched:
    """Find the labelled samples in a stream. One that cannot be read, or has more than `most` bytes, is an error.

    A file name counts where the content is not found, if it occurs once on either side. A sample with one of the
    `passed` errors has no content.
    """
    assert labelled.labels is not None
    digest = partial(_digest, most=most, passed=passed)
    contents = [digest(sample) for sample in labelled.samples]
    known: dict[bytes | None, set[int]] = {}
    for content, label in zip(contents, labelled.labels.tolist(), strict=True):
        if content is not None:
            known.setdefault(content, set()).add(label)
    sizes = {sample.stamp[0] for sample in labelled.samples}  # nothing else can have the same content
    coming = [digest(sample) if sample.stamp[0] in sizes else None for sample in stream]
    labels = np.array([_only(known.get(content, set())) for content in coming], np.int64)
    found = {*coming} - {None}
    left = {number for number, content in enumerate(contents) if content not in found}
    names, own = (_once([PurePosixPath(sample.key).name for sample in side]) for side in (labelled.samples, stream))
    by_name = [
        (own[name], number)
        for name, number in names.items()
        if number in left and name in own and coming[own[name]] not in known
    ]
    for position, number in by_name:
        labels[position] = labelled.labels[number]
    if not (labels != UNKNOWN).any():
        raise InvalidSamples(
            f"none of the {len(labelled):,} labelled samples of {labelled.name} is in the stream, neither by content "
            "nor by file name; is it the right --unlabelled?"
        )
    pairs = zip(labelled.samples, contents, strict=True)
    twice = tuple(sample.key for sample, content in pairs if len(known.get(content, ())) > 1)
    return Matched(labels, len(contents) - len(left), len(by_name), len(left) - len(by_name), twice)


def _digest(sample: ListedSample, most: int, *, passed: tuple[type[PtaError], ...]) -> bytes | None:
    try:
        return hashlib.sha256(USUAL_PATIENCE.ask(partial(sample.read, most))).digest()
    except passed:
        return None


def _only(labels: set[int]) -> int:
    return min(labels) if len(labels) == 1 else UNKNOWN


def _once(names: Sequence[str]) -> dict[str, int]:
    """The place of each name that occurs once."""
    times = Counter(names)
    return {name: place for place, name in enumerate(names) if times[name] == 1}

"""SampleSet: a list of samples that are read on demand, with their labels if known."""

import hashlib
import json
import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from pta.core.limits import USUAL_LIMITS
from pta.core.modality import IMAGES, Modality
from pta.door.files import read_sample, require_short
from pta.door.patience import reading, require_whole
from pta.errors import InvalidParameter, InvalidSamples


class SampleReference(Protocol):
    """A sample that is read on demand."""

    @property
    def key(self) -> str:
        """What users see and tables hold."""

    def read(self, most: int = ...) -> bytes:
        """The content, still encoded; refused if it has more than `most` bytes."""


class ListedSample(SampleReference, Protocol):
    """A sample that can also be told from another without reading it."""

    @property
    def stamp(self) -> tuple[int | str, ...]:
        """What changes when the sample does."""


@dataclass(frozen=True)
class SampleFile:
    """A sample in a file of its own; `key` is what users see and tables hold."""

    path: Path
    key: str

    def read(self, most: int = USUAL_LIMITS.max_bytes) -> bytes:
        """The content, still encoded."""
        return read_sample(self.path, most)

    @property
    def stamp(self) -> tuple[int, int]:
        """Size of the file and time of its last change in nanoseconds; (-1, -1) where there is no file."""
        try:
            status = self.path.stat()
        except OSError:
            return -1, -1
        return (status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else (-1, -1)


@dataclass(frozen=True)
class TarMember:
    """A sample inside an uncompressed tar archive, read by seeking; `key` is what users see and tables hold."""

    archive: Path
    key: str
    offset: int
    size: int

    def read(self, most: int = USUAL_LIMITS.max_bytes) -> bytes:
        """The content, still encoded."""
        require_short(self.key, self.size, most)
        with reading(self.key), self.archive.open("rb") as file:
            file.seek(self.offset)
            content = file.read(self.size)
        require_whole(self.key, len(content), self.size)
        return content

    @property
    def stamp(self) -> tuple[int, int]:
        """Size of the sample and time of the archive's last change in nanoseconds, -1 where it is gone."""
        try:
            return self.size, self.archive.stat().st_mtime_ns
        except OSError:
            return self.size, -1


@dataclass(frozen=True, eq=False)
class MemorySample:
    """A sample in memory; `key` is what users see and tables hold."""

    key: str
    held: Any
    encode: Callable[[Any], bytes]
    stamp: tuple[int | str, ...] = ()  # what changes when the sample does

    def read(self, most: int = USUAL_LIMITS.max_bytes) -> bytes:
        """The content, encoded; how large it may be was decided before it was held."""
        return self.encode(self.held)


class Listed(NamedTuple):
    """A sample of a source that is not read: where it is, and what its source says about it."""

    key: str  # what users see and tables hold
    place: str  # the file that holds it
    label: str | None = None  # as the source has it
    stream: str | None = None  # whose stream it belongs to, where streams are asked for
    number: str | None = None  # as the source has it
    line: int | None = None  # of the list that names it
    offset: int | None = None  # of a member of a tar archive, with its size
    size: int | None = None
    stamp: str | None = None  # what changes when the sample does, if the listing knows it


@dataclass(frozen=True, eq=False)
class SampleSet:
    """Samples of one source, in a fixed order."""

    name: str  # what the source is called, e.g. `dtd`, `imagenet_c/fog/5`, or the name of a folder
    class_names: tuple[str, ...]  # as listed, underscores and all; empty where nothing is known about classes
    samples: tuple[ListedSample, ...]
    labels: NDArray[np.int64] | None  # a position in `class_names` for each sample
    prompts: str | None = None  # whose prompt templates suit the set, e.g. `oxford_flowers`; None for a user's own
    notes: tuple[str, ...] = ()  # what a user should know about this copy of the data, one sentence each
    modality: Modality = IMAGES

    def __post_init__(self) -> None:
        if self.labels is None:
            return
        if self.labels.shape != (len(self.samples),):
            raise InvalidSamples(f"{self.name}: {len(self.samples)} samples but labels of shape {self.labels.shape}")
        wrong = self.labels[(self.labels < 0) | (self.labels >= len(self.class_names))]
        if len(wrong):
            raise InvalidSamples(
                f"{self.name}: label {wrong[0]} does not exist; there are {len(self.class_names)} classes"
            )

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def fingerprint(self) -> str:
        """The sha256 of class names and of each sample's name, label and stamp: size and time of last change of a file.

        The same list gives the same wherever it lies, if copying kept the times; a changed file gives another.
        """
        return self.fingerprint_with(sample.stamp for sample in self.samples)

    def fingerprint_with(self, stamps: Iterable[Iterable[int | str]]) -> str:
        """The same with other stamps."""
        labels = [None] * len(self) if self.labels is None else self.labels.tolist()
        digest = hashlib.sha256(json.dumps(self.class_names).encode())
        for sample, label, stamp in zip(self.samples, labels, stamps, strict=True):
            digest.update(b"\n" + json.dumps([sample.key, label, *stamp]).encode())
        return digest.hexdigest()


def packaged_set(
    source: str,
    arrays: Iterable[NDArray[Any]],
    encode: Callable[[Any], bytes],
    labels: NDArray[np.integer],
    class_names: tuple[str, ...],
    modality: Modality = IMAGES,
) -> SampleSet:
    """Packaged samples, whose stamps depend on their numbers alone; the prompts are called as the source begins."""
    samples = tuple(
        MemorySample(f"{source}/{number:04d}", array, encode, (hashlib.sha256(array.tobytes()).hexdigest(),))
        for number, array in enumerate(arrays)
    )
    prompts, own = source.partition("/")[0], labels[: len(samples)].astype(np.int64)
    return SampleSet(source, class_names, samples, own, prompts=prompts, modality=modality)


def names_for(source: str, known: tuple[str, ...], given: Sequence[str] | None) -> tuple[str, ...]:
    """The names of a packaged set's classes: its own, or as many that are given."""
    if given is not None and len(given) != len(known):
        raise InvalidParameter(f"{source} has {len(known)} classes, but {len(given)} names are given")
    return known if given is None else tuple(given)

"""ImageSet: a list of images that are read one by one when they are wanted, with their labels where these are known."""

import hashlib
import json
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pta.errors import InvalidSamples, UnreadableImage, reason
from pta.images import read_image
from pta.images.reading import MAX_BYTES


class ListedImage(Protocol):
    """An image that can be read when its turn comes, and told from another without reading it."""

    @property
    def key(self) -> str:
        """What users see and tables hold."""

    @property
    def stamp(self) -> tuple[int | str, ...]:
        """What changes when the image does."""

    def read(self) -> bytes:
        """The encoded image."""


@dataclass(frozen=True)
class FileImage:
    """An image in a file of its own; `key` is what users see and tables hold."""

    path: Path
    key: str

    def read(self) -> bytes:
        """The encoded image."""
        return read_image(self.path)

    @property
    def stamp(self) -> tuple[int, int]:
        """Size of the file and time of its last change in nanoseconds; (-1, -1) where there is no file."""
        try:
            status = self.path.stat()
        except OSError:
            return -1, -1
        return (status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else (-1, -1)


@dataclass(frozen=True)
class TarImage:
    """An image inside an uncompressed tar archive, read by seeking; `key` is what users see and tables hold."""

    archive: Path
    key: str
    offset: int
    size: int

    def read(self) -> bytes:
        """The encoded image."""
        if self.size > MAX_BYTES:
            raise UnreadableImage(f"{self.key} has {self.size >> 20} MiB; at most {MAX_BYTES >> 20} are read")
        try:
            with self.archive.open("rb") as file:
                file.seek(self.offset)
                content = file.read(self.size)
        except OSError as error:
            raise UnreadableImage(f"{self.key} cannot be read: {reason(error)}") from None
        if len(content) < self.size:
            raise UnreadableImage(f"{self.key} cannot be read: {self.archive} ends too early")
        return content

    @property
    def stamp(self) -> tuple[int, int]:
        """Size of the image and time of the archive's last change in nanoseconds, -1 where it is gone."""
        try:
            return self.size, self.archive.stat().st_mtime_ns
        except OSError:
            return self.size, -1


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images of one source, in a fixed order.

    Attributes:
        name: what the source is called, e.g. `dtd`, `imagenet_c/fog/5`, or the name of a folder.
        class_names: as listed, underscores and all; empty where nothing is known about classes.
        images: what to read.
        labels: a position in `class_names` for each image, or None.
        prompts: whose prompt templates suit the set, e.g. `oxford_flowers`; None for a user's own images.
        notes: what a user should know about this copy of the data, a sentence each.
    """

    name: str
    class_names: tuple[str, ...]
    images: tuple[ListedImage, ...]
    labels: NDArray[np.int64] | None
    prompts: str | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.labels is None:
            return
        if self.labels.shape != (len(self.images),):
            raise InvalidSamples(f"{self.name}: {len(self.images)} images but labels of shape {self.labels.shape}")
        wrong = self.labels[(self.labels < 0) | (self.labels >= len(self.class_names))]
        if len(wrong):
            raise InvalidSamples(
                f"{self.name}: label {wrong[0]} does not exist; there are {len(self.class_names)} classes"
            )

    def __len__(self) -> int:
        return len(self.images)

    @property
    def fingerprint(self) -> str:
        """The sha256 of class names and of each image's name, label and stamp: size and time of last change of a file.

        The same list gives the same wherever it lies, if copying kept the times; a changed picture gives another.
        """
        labels = [None] * len(self) if self.labels is None else self.labels.tolist()
        digest = hashlib.sha256(json.dumps(self.class_names).encode())
        for image, label in zip(self.images, labels, strict=True):
            digest.update(b"\n" + json.dumps([image.key, label, *image.stamp]).encode())
        return digest.hexdigest()

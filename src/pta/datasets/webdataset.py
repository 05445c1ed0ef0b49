"""Webdataset shards: tar archives with `KEY.jpg` (or jpeg, png, webp) and perhaps `KEY.cls`, the label, beside it.

As everywhere in this format, a key ends at the first dot of a file's name and the rest is its extension: `1.seg.png` is
not the image of sample 1, and a name with dots inside, such as `v1.5_cat.jpg`, cannot be a key. What has another
extension is passed over, and so are links and devices. Only headers are read to find the images; nothing is unpacked.
"""

import os
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import numpy as np

from pta.datasets.class_index import whole_number
from pta.datasets.sample_set import ImageSet, TarImage
from pta.datasets.shard_names import find_shards
from pta.errors import InvalidParameter, PtaError, UnreadableFile, reason

_IMAGES, _LABEL = frozenset(("jpg", "jpeg", "png", "webp")), "cls"
_LONGEST_LABEL = 64
_COMPRESSIONS = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}


def open_shards(source: str, class_names: Sequence[str] | None = None) -> ImageSet:
    """The images of one archive, of a pattern `*.tar` or of a range `shard-{000..003}.tar`, in the archives' order."""
    archives = find_shards(source)
    above = Path(os.path.commonpath([archive.absolute().parent for archive in archives]))
    images: list[TarImage] = []
    labels: list[int | None] = []
    for archive in archives:
        prefix = archive.absolute().relative_to(above).as_posix()
        for image, label in _samples(archive, prefix):
            images.append(image)
            labels.append(label)
    name = Path(source).name.split(".")[0]
    if not images:
        raise UnreadableFile(f"{source} holds no images: members must be KEY.jpg, .jpeg, .png or .webp, no dot in KEY")
    known = [label for label in labels if label is not None]
    if not known:
        return ImageSet(name, tuple(class_names or ()), tuple(images), None)
    if len(known) < len(images):
        unlabelled = images[labels.index(None)].key
        raise UnreadableFile(f"{unlabelled} has no .{_LABEL} beside it, other images have; either all or none need one")
    if class_names is None:
        raise InvalidParameter(f"{source} has labels, which are numbers; give the class names that they stand for")
    _require_range(images, known, len(class_names))
    return ImageSet(name, tuple(class_names), tuple(images), np.array(known, np.int64))


def _samples(archive: Path, prefix: str) -> list[tuple[TarImage, int | None]]:
    """The images of an archive in its order, each with its label."""
    try:
        with archive.open("rb") as file:
            _refuse_compressed(archive, file)
            return _read_samples(archive, prefix, file)
    except OSError as error:
        raise UnreadableFile(f"cannot read {archive}: {reason(error)}") from None
    except (tarfile.TarError, ValueError, OverflowError) as error:  # hostile headers raise whatever they like
        if isinstance(error, PtaError):
            raise
        raise UnreadableFile(f"{archive} cannot be read as a tar archive (truncated or damaged?): {error}") from None


def _read_samples(archive: Path, prefix: str, file: BinaryIO) -> list[tuple[TarImage, int | None]]:
    images: dict[str, TarImage] = {}
    labels: dict[str, int] = {}
    for member in list(_members(file)):  # to its end, before anything in it is believed
        path = PurePosixPath(member.name)
        stem, _, extension = path.name.partition(".")
        extension = extension.lower()
        if not stem or extension not in (*_IMAGES, _LABEL):
            continue
        key = str(path.with_name(stem))
        if key in (images if extension in _IMAGES else labels):
            raise UnreadableFile(f"{archive}: {member.name} is not the only one of its kind called {key}")
        if extension == _LABEL:
            file.seek(member.offset_data)
            labels[key] = _label(file.read(min(member.size, _LONGEST_LABEL)), f"{archive}: {member.name}")
        else:
            images[key] = TarImage(archive, f"{prefix}/{member.name}", member.offset_data, member.size)
    return [(image, labels.get(key)) for key, image in images.items()]


def _members(file: BinaryIO) -> Iterator[tarfile.TarInfo]:
    """The plain files of an archive, after which its end mark must stand: a damaged header ends a listing silently."""
    with tarfile.open(fileobj=file, mode="r:") as tar:
        for member in tar:
            if member.size < 0:
                raise tarfile.ReadError("a member has a negative size")
            if member.isfile() and not member.issparse():
                yield member
        file.seek(tar.offset)
        if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
            raise tarfile.ReadError("it stops without the mark that ends an archive")


def _refuse_compressed(archive: Path, file: BinaryIO) -> None:
    start = file.read(8)
    file.seek(0)
    for magic, compression in _COMPRESSIONS.items():
        if start.startswith(magic):
            raise UnreadableFile(
                f"{archive} is compressed ({compression}), so single images cannot be read from it; "
                "decompress it to a plain .tar"
            )


def _label(content: bytes, where: str) -> int:
    number = whole_number(content.decode("ascii", errors="replace").strip())
    if number is None:
        raise UnreadableFile(f"{where} must hold a class number, found {content[:20]!r}")
    return number


def _require_range(images: Sequence[TarImage], labels: Sequence[int], classes: int) -> None:
    for image, label in zip(images, labels, strict=True):
        if label >= classes:
            raise InvalidParameter(
                f"{image.key} has label {label}, but there are {classes} class names (0…{classes - 1})"
            )

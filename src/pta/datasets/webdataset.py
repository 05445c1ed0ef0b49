"""Webdataset shards: tar archives with `KEY.jpg` (or another ending) and perhaps `KEY.cls`, the label, beside it.

As everywhere in this format, a key ends at the first dot of a file's name and the rest is its extension: `1.seg.png` is
not the image of key 1, and a name with dots inside, such as `v1.5_cat.jpg`, cannot be a key. What has another
extension is passed over, and so are links and devices. Only headers are read to find the samples; nothing is unpacked.
"""

import os
import re
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import numpy as np

from pta.datasets.class_index import whole_number
from pta.datasets.sample_set import SampleSet, TarMember
from pta.datasets.shard_names import find_shards
from pta.errors import InvalidParameter, UnreadableFile
from pta.files import understanding
from pta.modality import IMAGES, Modality

_LABEL = ".cls"
_LONGEST_LABEL = 64
_LONGEST_HEADER = 2**16
_ENDLESS_DIGITS = re.compile(rb"\d{256}")  # no file name is so long
_DESCRIBING = (
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
)
_COMPRESSIONS = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}


def open_shards(source: str, class_names: Sequence[str] | None = None, modality: Modality = IMAGES) -> SampleSet:
    """The samples of one archive, of a pattern `*.tar` or of a range `shard-{000..003}.tar`, in the archives' order."""
    archives = find_shards(source)
    above = Path(os.path.commonpath([archive.absolute().parent for archive in archives]))
    prefixes = [archive.absolute().relative_to(above).as_posix() for archive in archives]
    found = [one for place in zip(archives, prefixes, strict=True) for one in _samples(*place, modality)]
    samples, labels = tuple(sample for sample, _ in found), [label for _, label in found]
    name = Path(source).name.split(".")[0]
    if not samples:
        raise UnreadableFile(
            f"{source} holds no {modality.name}s: members must be KEY and one of {modality.endings}, no dot in KEY"
        )
    known = [label for label in labels if label is not None]
    if not known:
        return SampleSet(name, tuple(class_names or ()), samples, None)
    if len(known) < len(samples):
        unlabelled = samples[labels.index(None)].key
        raise UnreadableFile(f"{unlabelled} has no {_LABEL} beside it, others have; either all or none need one")
    if class_names is None:
        raise InvalidParameter(f"{source} has labels, which are numbers; give the class names that they stand for")
    classes = len(class_names)
    for sample, label in zip(samples, known, strict=True):
        if label >= classes:
            there = f"there are {classes} class names (0…{classes - 1})"
            raise InvalidParameter(f"{sample.key} has label {label}, but {there}")
    return SampleSet(name, tuple(class_names), samples, np.array(known, np.int64))


def _samples(archive: Path, prefix: str, modality: Modality) -> list[tuple[TarMember, int | None]]:
    """The samples of an archive in its order, each with its label."""
    with understanding(archive, "tar archive"), archive.open("rb") as file:
        _refuse_compressed(archive, file)
        return _read_samples(archive, prefix, file, modality)


def _read_samples(archive: Path, prefix: str, file: BinaryIO, modality: Modality) -> list[tuple[TarMember, int | None]]:
    samples: dict[str, TarMember] = {}
    labels: dict[str, int] = {}
    for member in list(_members(file)):  # to its end, before anything in it is believed
        path = PurePosixPath(member.name)
        stem, dot, rest = path.name.partition(".")
        extension = (dot + rest).lower()
        if not stem or extension not in (*modality.suffixes, _LABEL):
            continue
        key = str(path.with_name(stem))
        if key in (labels if extension == _LABEL else samples):
            raise UnreadableFile(f"{archive}: {member.name} is not the only one of its kind called {key}")
        if extension == _LABEL:
            file.seek(member.offset_data)
            labels[key] = _label(file.read(min(member.size, _LONGEST_LABEL)), f"{archive}: {member.name}")
        else:
            samples[key] = TarMember(archive, f"{prefix}/{member.name}", member.offset_data, member.size)
    return [(sample, labels.get(key)) for key, sample in samples.items()]


class _Header(tarfile.TarInfo):
    """A header; one that describes the next, by a long name or times, is looked at before it is interpreted.

    It must be short, because it is read into memory, and without endless digits, which cost time by their square
    (CVE-2024-6232).
    """

    def _proc_member(self, tar: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type in _DESCRIBING and tar.fileobj is not None:
            start = tar.fileobj.tell()
            if self.size > _LONGEST_HEADER or _ENDLESS_DIGITS.search(tar.fileobj.read(self.size)):
                raise tarfile.ReadError(f"a header of {self.size:,} bytes is not sane")
            tar.fileobj.seek(start)
        return super()._proc_member(tar)  # type: ignore[misc]


def _members(file: BinaryIO) -> Iterator[tarfile.TarInfo]:
    """The plain files of an archive, after which its end mark must stand: a damaged header ends a listing silently."""
    with tarfile.open(fileobj=file, mode="r:", tarinfo=_Header) as tar:
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
            advice = "so single files cannot be read from it; decompress it to a plain .tar"
            raise UnreadableFile(f"{archive} is compressed ({compression}), {advice}")


def _label(content: bytes, where: str) -> int:
    number = whole_number(content.decode("ascii", errors="replace").strip())
    if number is None:
        raise UnreadableFile(f"{where} must hold a class number, found {content[:20]!r}")
    return number

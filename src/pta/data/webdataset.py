"""Webdataset shards: tar archives with `KEY.jpg` (or another ending) and perhaps `KEY.cls`, the label, beside it.

As everywhere in this format, a key ends at the first dot of a file's name and the rest is its extension: `1.seg.png` is
not the image of key 1, and a name with dots inside, such as `v1.5_cat.jpg`, cannot be a key. What has another
extension is passed over, and so are links and devices. Only headers are read to find the samples; nothing is unpacked.
"""

import os
import re
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import reduce
from glob import has_magic
from itertools import product
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import numpy as np

from pta.core.modality import IMAGES, Modality
from pta.data.class_index import whole_number
from pta.data.sample_set import SampleSet, TarMember
from pta.door.files import understanding
from pta.errors import InvalidParameter, UnreadableFile

_MOST_SHARDS = 100_000
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_SHARD = re.compile(r"\.(tar(\.(gz|bz2|xz|zst))?|tgz|tbz2?|txz)$", re.IGNORECASE)
_LABEL = ".cls"
_LONGEST_LABEL = 64
_LONGEST_HEADER = 2**16
_ENDLESS_DIGITS = re.compile(rb"\d{256}")  # no file name is so long
_DESCRIBING = (
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
)
_COMPRESSIONS = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}


def is_shards(source: str) -> bool:
    """Whether a source is written like tar archives.

    >>> [is_shards(name) for name in ("a.tar", "s-{000..003}.tar", "*.tar", "a.tar.gz", "photos")]
    [True, True, True, True, False]
    """
    return _SHARD.search(source) is not None


def find_shards(source: str) -> list[Path]:
    """The archives that a path, a pattern or a range stands for; every one of a range must be there."""
    if Path(source).is_file():
        return [Path(source)]
    found = [path for text in expand_range(source) for path in _matching(text)]
    if not found:
        raise UnreadableFile(f"no such archive: {source}")
    return found


def expand_range(source: str) -> list[str]:
    """Every text that `{first..last}` stands for, with the zeros in front that its ends have, as in a shell.

    >>> expand_range("shard-{008..010}.tar")
    ['shard-008.tar', 'shard-009.tar', 'shard-010.tar']
    """
    ranges, total = [], 1
    for first, last in _RANGE.findall(source):
        total *= max(int(last) - int(first) + 1, 0) if max(len(first), len(last)) < 10 else _MOST_SHARDS + 1
        if not 0 < total <= _MOST_SHARDS:
            raise InvalidParameter(
                f"{source}: {{{first}..{last}}} must count upwards, to at most {_MOST_SHARDS:,} shards"
            )
        padded = any(len(end) > 1 and end.startswith("0") for end in (first, last))
        width = max(len(first), len(last)) if padded else 0
        ranges.append([str(number).zfill(width) for number in range(int(first), int(last) + 1)])
    pattern = _RANGE.sub("\0", source)
    return [reduce(lambda text, number: text.replace("\0", number, 1), chosen, pattern) for chosen in product(*ranges)]


def _matching(text: str) -> list[Path]:
    path, found = Path(text), list[Path]()
    with suppress(ValueError):  # of a pattern with ** beside other letters
        # Not `glob.glob`, which follows links below ** and so may go round in circles.
        found = sorted(one for one in Path(path.anchor).glob(str(path.relative_to(path.anchor))) if one.is_file())
    if not found and not has_magic(text):
        raise UnreadableFile(f"no such archive: {text}")
    return found


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
        raise InvalidParameter(f"{source} has labels, which are numbers; give their class names")
    classes = len(class_names)
    for sample, label in zip(samples, known, strict=True):
        if label >= classes:
            there = f"there are {classes} class names (0…{classes - 1})"
            raise InvalidParameter(f"{sample.key} has label {label}, but {there}")
    return SampleSet(name, tuple(class_names), samples, np.array(known, np.int64))


def _samples(archive: Path, prefix: str, modality: Modality) -> list[tuple[TarMember, int | None]]:
    with understanding(archive, "tar archive"), archive.open("rb") as file:
        return labels_and_samples(archive, prefix, file, modality)


def labels_and_samples(
    archive: Path, prefix: str, file: BinaryIO, modality: Modality
) -> list[tuple[TarMember, int | None]]:
    """The samples of an open archive in its order, each with its label."""
    samples: dict[str, TarMember] = {}
    labels: dict[str, int] = {}
    _refuse_compressed(archive, file)
    for member in list(members(file)):  # to its end, before anything in it is believed
        path = PurePosixPath(member.name)
        stem, dot, rest = path.name.partition(".")
        extension = (dot + rest).lower()
        if not stem or extension not in (*modality.suffixes, _LABEL):
            continue
        key = str(path.with_name(stem))
        if key in (labels if extension == _LABEL else samples):
            raise UnreadableFile(f"{archive}: {member.name} is a second file for the key {key}")
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
                raise tarfile.ReadError(f"a header of {self.size:,} bytes is too long")
            tar.fileobj.seek(start)
        return super()._proc_member(tar)  # type: ignore[misc]


def members(file: BinaryIO) -> Iterator[tarfile.TarInfo]:
    """The plain files of an archive, after which its end mark must stand: a damaged header ends a listing silently."""
    with tarfile.open(fileobj=file, mode="r:", tarinfo=_Header) as tar:
        for member in tar:
            if member.size < 0:
                raise tarfile.ReadError("a member has a negative size")
            if member.isfile() and not member.issparse():
                yield member
        file.seek(tar.offset)
        if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
            raise tarfile.ReadError("it ends without the end mark of an archive")


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

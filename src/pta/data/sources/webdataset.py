"""Webdataset shards: tar archives with `KEY.jpg` (or another ending) and perhaps `KEY.cls`, the label, beside it.

As everywhere in this format, a key ends at the first dot of a file's name and the rest is its extension: `1.seg.png` is
not the image of key 1, and a name with dots inside, such as `v1.5_cat.jpg`, cannot be a key. What has another
extension is passed over, and so are links and devices. Only headers are read to find the samples; nothing is unpacked.
"""

import json
import posixpath
import re
import tarfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO

import numpy as np

from pta.core.modality import Modality
from pta.data.sample_set import Listed, SampleSet, TarMember
from pta.data.sources.addresses import find_files, is_remote, open_whole
from pta.data.sources.class_index import whole_number
from pta.door.files import understanding
from pta.door.patience import USUAL_PATIENCE
from pta.errors import InvalidParameter, UnreadableFile

_SHARD = re.compile(r"\.(tar(\.(gz|bz2|xz|zst))?|tgz|tbz2?|txz)$", re.IGNORECASE)
_LABEL = ".cls"
_LONGEST_LABEL = 64
_LARGEST_JSON = 2**16
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


def open_shards(source: str, class_names: Sequence[str] | None, modality: Modality) -> SampleSet:
    """The samples of one archive, of a pattern `*.tar` or of a range `shard-{000..003}.tar`, in the archives' order."""
    rows = list(list_archives(find_files(source, "archive"), modality))
    if not rows:
        raise UnreadableFile(
            f"{source} holds no {modality.name}s: members must be KEY and one of {modality.endings}, no dot in KEY"
        )
    name, labels = Path(source).name.split(".")[0], list[int]()
    samples = tuple(TarMember(Path(row.place), row.key, row.offset or 0, row.size or 0) for row in rows)
    if all(row.label is None for row in rows):
        return SampleSet(name, tuple(class_names or ()), samples, None, modality=modality)
    for row in rows:
        if row.label is None:
            raise UnreadableFile(f"{row.key} has no {_LABEL} beside it, others have; either all or none need one")
        if class_names is None:
            raise InvalidParameter(f"{source} has labels, which are numbers; give their class names")
        labels.append(int(row.label))
        if labels[-1] >= (classes := len(class_names)):
            there = f"there are {classes} class names (0…{classes - 1})"
            raise InvalidParameter(f"{row.key} has label {row.label}, but {there}")
    return SampleSet(name, tuple(class_names or ()), samples, np.array(labels, np.int64), modality=modality)


def list_shards(address: str, modality: Modality, by: str | None = None) -> Iterator[Listed]:
    """The same, listed; `by` is the key in `KEY.json` beside a sample whose value says whose stream it is in."""
    return list_archives(find_files(address, "archive", str), modality, by)


def list_archives(archives: Sequence[str], modality: Modality, by: str | None = None) -> Iterator[Listed]:
    """The samples of archives in their order; their keys begin with the archives' paths below a common folder."""
    absolute = [archive if is_remote(archive) else str(Path(archive).absolute()) for archive in archives]
    above = posixpath.commonpath([posixpath.dirname(archive) for archive in absolute])
    for archive, address in zip(archives, absolute, strict=True):
        prefix = posixpath.relpath(address, above)
        found, streams = USUAL_PATIENCE.ask(partial(_listed_in, archive, modality, by))
        for key, (member, label) in found.items():
            yield Listed(
                key=f"{prefix}/{member.name}",
                place=archive,
                label=None if label is None else str(label),
                stream=streams.get(key),
                offset=member.offset_data,
                size=member.size,
            )


_Samples = dict[str, tuple[tarfile.TarInfo, int | None]]
"""The samples of an archive in its order by key, each with its label."""


def _listed_in(archive: str, modality: Modality, by: str | None) -> tuple[_Samples, dict[str, str]]:
    """The samples of an archive, and by key whose streams they are in."""
    with understanding(archive, "tar archive"), open_whole(archive) as file:
        return _samples(archive, file, modality), {} if by is None else dict(_json_values(file, by))


def _samples(archive: str, file: IO[bytes], modality: Modality) -> _Samples:
    samples: dict[str, tarfile.TarInfo] = {}
    labels: dict[str, int] = {}
    _refuse_compressed(archive, file)
    for member in list(_members(file)):  # to its end, before anything in it is believed
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
            samples[key] = member
    return {key: (sample, labels.get(key)) for key, sample in samples.items()}


def _json_values(file: IO[bytes], by: str) -> Iterator[tuple[str, str]]:
    """The value of `by` in each `KEY.json` of an archive, by key."""
    file.seek(0)
    for member in list(_members(file)):
        if member.name.endswith(".json") and member.size <= _LARGEST_JSON:
            file.seek(member.offset_data)
            content = json.loads(file.read(member.size))
            if isinstance(content, dict) and by in content:
                yield member.name.removesuffix(".json"), str(content[by])


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


def _members(file: IO[bytes]) -> Iterator[tarfile.TarInfo]:
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


def _refuse_compressed(archive: str, file: IO[bytes]) -> None:
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

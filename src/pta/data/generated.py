"""Pictures that were generated from samples beforehand, such as DiffTPT's, in a folder of their own.

Those of `cats/1.jpg` are `cats/1_0.png`, `cats/1_1.png`, …, with any ending of a picture. If the folder has none of
these, they are `1_0.png`, …: folders at the front of the sample's path are left out until something is found. A
sample's stem ends at the last dot of its name.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from posixpath import normpath, splitext

from pta.core.parameters import require_count
from pta.data.sample_set import SampleFile, SampleReference, SampleSet
from pta.data.sources.folder import sample_files
from pta.door.files import as_path
from pta.errors import UnreadableFile, UnreadableSample

USUAL_COUNT = 63  # of a sample, as DiffTPT takes them
_MOST = 1024


@dataclass(frozen=True, eq=False)
class GeneratedPictures:
    """The files of generated pictures, equally many for each sample."""

    folder: Path
    count: int  # of each sample
    names: Mapping[str, tuple[str, ...]]  # paths below the folder, by the sample's key

    def of(self, sample: SampleReference) -> Iterator[SampleFile]:
        """Those of a sample, in order."""
        if sample.key not in self.names:
            raise UnreadableSample(f"no generated pictures were looked for in {self.folder}")
        return (SampleFile(self.folder / name, name) for name in self.names[sample.key])

    @property
    def fingerprint(self) -> str:
        """The sha256 of each file's path below the folder, size and time of last change."""
        digest = hashlib.sha256()
        for name in chain.from_iterable(self.names.values()):
            digest.update(b"\n" + json.dumps([name, *SampleFile(self.folder / name, name).stamp]).encode())
        return digest.hexdigest()


def find_generated(samples: SampleSet, folder: str | Path, count: int = USUAL_COUNT) -> GeneratedPictures:
    """The first `count` pictures generated from each sample; refused if a sample has fewer, or it is unclear which."""
    folder = as_path(folder)
    require_count("the number of generated pictures", count, 1, _MOST)
    by_stem: dict[str, list[str]] = {}
    for name in sample_files(folder, samples.modality):
        by_stem.setdefault(splitext(name)[0], []).append(name)
    if not by_stem:
        raise UnreadableFile(f"{folder} holds no {samples.modality.name}s ({samples.modality.endings})")
    names: dict[str, tuple[str, ...]] = {}
    owners: dict[str, str] = {}
    lacking: list[str] = []
    for key in dict.fromkeys(sample.key for sample in samples.samples):
        stem, found = _found(by_stem, key, count)
        if twice := next((several for several in found if len(several) > 1), None):
            raise UnreadableFile(f"{folder}: {twice[0]} or {twice[1]} was generated from {key}; remove one of them")
        if len(found) < count:
            lacking.append(f"{len(found)} of the {count} pictures {stem}_0 … {stem}_{count - 1} generated from {key}")
            continue
        if owners.setdefault(stem, key) != key:
            places = "leave them in sub-folders like those of the images, or rename an image"
            raise UnreadableFile(f"{folder}: {found[0][0]} was generated from {owners[stem]} or from {key}; {places}")
        names[key] = tuple(name for (name,) in found)
    if lacking:
        share = f"{len(lacking):,} of {len(lacking) + len(names):,} {samples.modality.name}s have too few"
        raise UnreadableFile(f"{folder} holds {lacking[0]}; {share}; make them, or take fewer of each with --generated")
    return GeneratedPictures(folder, count, names)


def _found(by_stem: Mapping[str, list[str]], key: str, count: int) -> tuple[str, list[list[str]]]:
    """The stem of a sample's generated pictures below their folder, and those of each number that is there."""
    stem = normpath(splitext(key)[0])
    while True:
        found = [by_stem[name] for number in range(count) if (name := f"{stem}_{number}") in by_stem]
        if found or "/" not in stem:
            return stem, found
        stem = stem.partition("/")[2]

"""The opener of samples: `open_samples` for a source with its labels, `open_places` for whatever a user names."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from glob import has_magic
from pathlib import Path, PurePosixPath
from typing import NoReturn

from pta.core.limits import USUAL_LIMITS, Limits
from pta.core.modality import CLOUDS, IMAGES, Modality
from pta.core.parameters import require_texts
from pta.core.plugins import load_plugin
from pta.data import fashion, point_shapes
from pta.data.catalogue import catalogue, is_catalogued
from pta.data.layouts import open_catalogued
from pta.data.sample_set import Listed, ListedSample, MemorySample, SampleFile, SampleReference, SampleSet
from pta.data.sources.addresses import is_folder
from pta.data.sources.csv_list import list_csv, listed_files, open_csv
from pta.data.sources.entries import is_folder_at, matches
from pta.data.sources.folder import list_folder, open_folder, sample_files
from pta.data.sources.h5_clouds import open_h5, read_clouds
from pta.data.sources.video import VideoFrames, VideoReading, open_video
from pta.data.sources.webdataset import is_shards, list_shards, open_shards
from pta.door.files import as_path, exists
from pta.door.images.frames import split_frames
from pta.door.refused_places import require_place_with_samples
from pta.errors import InvalidParameter, UnreadableFile, nearest, shown

GROUP = "pta.sources"
"""Entry points of installed packages: a function `(source, *, root, class_names)` that returns a `SampleSet`."""

PACKAGED: dict[str, Callable[[str, Sequence[str] | None], SampleSet]] = {
    fashion.NAME: fashion.open_fashion,
    point_shapes.NAME: point_shapes.open_point_shapes,
}
"""What opens the samples of this package, by the first part of their name."""

_STDIN = "-"


def _ending(address: str) -> str:
    """What a file's name ends in, in lower case.

    >>> _ending("s3://bucket/LIST.CSV")
    '.csv'
    """
    return PurePosixPath(address).suffix.lower()


def is_parquet(address: str) -> bool:
    """Whether an address is written like parquet files."""
    return _ending(address) == ".parquet"


def _refuse_parquet(source: str, class_names: Sequence[str] | None, modality: Modality) -> NoReturn:
    """Say what reads these files: pyarrow, which is not needed elsewhere."""
    raise UnreadableFile(f"{source}: only --cluster reads .parquet files; give a folder, a .csv or .tar shards")


@dataclass(frozen=True)
class Kind:
    """A kind of places that hold samples."""

    takes: Callable[[str], bool]  # an address
    open: Callable[[str, Sequence[str] | None, Modality], SampleSet]  # with class names, if they are given
    list: Callable[[str, Modality, str | None], Iterator[Listed]] | None  # for a cluster, perhaps by streams


KINDS = (
    Kind(is_folder, open_folder, list_folder),
    Kind(is_shards, open_shards, list_shards),
    Kind(lambda address: _ending(address) == ".csv", open_csv, list_csv),
    Kind(lambda address: _ending(address) == ".h5", open_h5, None),
    Kind(is_parquet, _refuse_parquet, None),  # the table for a cluster is made from their columns
)
"""In the order in which they are tried."""


def kind_of(address: str) -> Kind | None:
    """The kind of an address, if it is one."""
    return next((kind for kind in KINDS if kind.takes(address)), None)


def open_samples(
    source: str | Path,
    *,
    root: Path | None = None,
    class_names: Sequence[str] | None = None,
    modality: Modality = IMAGES,
    video: VideoReading | None = None,
    limits: Limits = USUAL_LIMITS,
) -> SampleSet:
    """Open a source of samples, without reading them; a video file is decoded to count its frames.

    Args:
        source: the id of a catalogued set, perhaps with a variant (`dtd`, `imagenet_a/legacy`, `imagenet_c/fog/5`), in
            the folder `root`; packaged samples (`fashion/blur/3`, `point_shapes/furniture`); a name that a plugin
            declares; or a folder with one sub-folder per class, or with samples only; or a `.csv` with the header
            `path,label` or `path`; or webdataset shards (`a.tar`, `*.tar`, `shard-{000..003}.tar`); or an `.h5` file of
            clouds; or, with `video`, a video file. A text that begins with a name means what has that name: write
            `./dtd`, or give a `Path`, for a folder of that name.
        class_names: in the order of the labels. For a set with class names they replace its own; the sub-folders of a
            folder and the names in a CSV must be among them; shards with labels need them.
    """
    as_path(source)
    if class_names is not None:
        require_texts("class names", class_names)
    if video is not None and video.takes(str(source)):
        return open_video(str(source), class_names, video, modality, limits)
    require_place_with_samples(str(source))
    if isinstance(source, str):
        name = source.partition("/")[0]
        if name in PACKAGED:
            return PACKAGED[name](source, class_names)
        if declared := load_plugin(GROUP, name, UnreadableFile):
            found = declared(source, root=root, class_names=class_names)
            if not isinstance(found, SampleSet):
                raise UnreadableFile(f"{name} is declared by a plugin, but does not return a pta.data.SampleSet")
            return found
        if is_catalogued(source):
            return open_catalogued(source, None if root is None else as_path(root), class_names)
    if kind := kind_of(str(source)):
        return kind.open(str(source), class_names, modality)
    if exists(Path(source)):
        raise UnreadableFile(
            f"{source} is not a source of samples; give a folder, a .csv with path,label, or .tar shards"
        )
    if any(mark in str(source) for mark in "/."):
        raise UnreadableFile(f"no such file or folder: {source}")
    raise UnreadableFile(f"'{source}' is neither a folder nor a known dataset; {nearest(source, catalogue())}")


def open_places(
    places: Sequence[str],
    modality: Modality = IMAGES,
    *,
    frames: bool = False,
    limits: Limits = USUAL_LIMITS,
    video: VideoReading | None = None,
) -> tuple[Iterable[SampleReference], int | None]:
    """The samples of folders and files, or of standard input for `-`, and how many there are, if that can be known.

    Standard input holds the paths of samples, one per line, or with `frames` pictures themselves.
    """
    videos = [place for place in places if video is not None and video.takes(place)]
    if video is not None and videos:
        if len(videos) < len(places):
            raise InvalidParameter("videos cannot be mixed with other paths; give videos by themselves")
        return VideoFrames(videos, video, modality, limits), None
    if _STDIN not in places:
        if frames:
            raise InvalidParameter("--frames reads pictures from standard input; give - as the path")
        found = find_samples(places, modality)
        return found, len(found)
    if len(places) > 1:
        raise InvalidParameter("standard input (-) cannot be mixed with other paths")
    if sys.stdin is None:
        raise InvalidParameter("there is no standard input to read from")
    if frames and modality != IMAGES:
        raise InvalidParameter(f"--frames reads pictures, but the model reads {modality.name}s")
    return (_frames(sys.stdin.fileno(), limits.max_bytes) if frames else _paths(sys.stdin.fileno())), None


# Both read a copy of standard input: Python could not end while a thread waits in sys.stdin for what never comes.


def _frames(stdin: int, most: int) -> Iterator[MemorySample]:
    with os.fdopen(os.dup(stdin), "rb") as pipe:
        for number, content in enumerate(split_frames(pipe, most)):
            yield MemorySample(f"frame {number}", content, bytes)


def _paths(stdin: int) -> Iterator[SampleFile]:
    with os.fdopen(os.dup(stdin), encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            if path := line.rstrip("\r\n"):
                yield SampleFile(Path(path), path)


def find_samples(places: Sequence[str | Path], modality: Modality = IMAGES) -> list[ListedSample]:
    """The given files, and all samples in the given folders and below them, sorted by path within each.

    A pattern such as `photos/*.jpg` stands for its matches, an .h5 file for all clouds in it, and a .csv with the
    header `path` for the samples that it lists, in their order.
    """
    if not all(map(str, places)):
        raise UnreadableFile("paths must be a list of non-empty paths")
    found: list[ListedSample] = []
    for place in (path for given in places for path in _matched(given)):
        if modality == CLOUDS and place.suffix.lower() == ".h5":
            found += read_clouds(place)[0]
            continue
        if modality == IMAGES and place.suffix.lower() == ".npz":
            raise UnreadableFile(f"{place} is a feature file, not an image; use pta eval --features {place}")
        if place.suffix.lower() == ".csv":
            found += listed_files(str(place), modality)
            continue
        inside = [place / name for name in sample_files(place, modality)] if is_folder_at(place) else [place]
        if not inside:
            raise UnreadableFile(f"no {modality.name}s in {place}; the model reads {modality.endings}")
        found += [SampleFile(path, str(path)) for path in inside]
    return found


def _matched(given: str | Path) -> list[Path]:
    """What is at a path, or what a pattern matches."""
    require_place_with_samples(str(given))
    place = as_path(given)
    if exists(place):
        return [place]
    found = matches(str(place)) if has_magic(str(place)) else []
    if not found:
        raise UnreadableFile(f"no such file or folder: {shown(str(place), 400)}")
    return [Path(path) for path in found]

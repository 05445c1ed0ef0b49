"""`open_samples`: open any kind of dataset."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from pta.core.modality import IMAGES, Modality
from pta.core.parameters import require_texts
from pta.data.catalogue import Entry, Listing, catalogue, find_entry, is_catalogued
from pta.data.csv_list import open_csv
from pta.data.h5_clouds import open_h5
from pta.data.layouts import list_images, missing_places
from pta.data.own_folder import open_folder
from pta.data.sample_set import SampleSet
from pta.data.webdataset import is_shards, open_shards
from pta.door.files import as_path, exists
from pta.errors import InvalidParameter, UnreadableFile, nearest


def open_samples(
    source: str | Path,
    *,
    root: Path | None = None,
    class_names: Sequence[str] | None = None,
    modality: Modality = IMAGES,
) -> SampleSet:
    """Open a source of samples, without reading them.

    Args:
        source: the id of a catalogued set, perhaps with a variant (`dtd`, `imagenet_a/legacy`, `imagenet_c/fog/5`), in
            the folder `root`; or a folder with one sub-folder per class, or with samples only; or a `.csv` with the
            header `path,label` or `path`; or webdataset shards (`a.tar`, `*.tar`, `shard-{000..003}.tar`); or an `.h5`
            file of clouds. A text that begins with an id means the catalogued set: write `./dtd`, or give a `Path`, for
            a folder of that name.
        class_names: in the order of the labels. For a catalogued set they replace its own; the sub-folders of a folder
            and the names in a CSV must be among them; shards with labels need them.
    """
    as_path(source)
    if class_names is not None:
        require_texts("class names", class_names)
    if isinstance(source, str) and is_catalogued(source):
        return _open_catalogued(source, None if root is None else as_path(root), class_names)
    if Path(source).suffix.lower() == ".h5":
        return open_h5(Path(source), class_names)
    return replace(_open_own(source, class_names, modality), modality=modality)


def _open_own(source: str | Path, class_names: Sequence[str] | None, modality: Modality) -> SampleSet:
    path = Path(source)
    if exists(path) and path.is_dir():
        return open_folder(path, class_names, modality)
    if is_shards(str(source)):
        return open_shards(str(source), class_names, modality)
    if not exists(path):
        raise UnreadableFile(_no_such(str(source)))
    if path.suffix.lower() == ".csv":
        return open_csv(path, class_names)
    raise UnreadableFile(f"{path} is not a source of samples; give a folder, a .csv with path,label, or .tar shards")


def _open_catalogued(source: str, root: Path | None, class_names: Sequence[str] | None) -> SampleSet:
    entry = find_entry(source)
    if root is None:
        raise InvalidParameter(
            f"{source} is a known dataset: give the folder of all datasets, --data ROOT (for a folder: ./{source})"
        )
    if entry.parts:
        example = "/".join(known[0] for known in entry.parts[:-1])
        raise InvalidParameter(
            f"{source} has many parts; choose one, for example {source}/{example}/{entry.parts[-1][-1]}"
        )
    advice = f"'pta datasets check {source} --data {root}' lists all that is missing"
    absent = missing_places(entry, root)
    if absent:
        raise UnreadableFile(f"{source}: {absent[0]}; {advice}")
    listing = list_images(entry, root, class_names)
    if listing.missing:
        raise UnreadableFile(
            f"{source}: {len(listing.missing):,} of {len(listing.images):,} images, "
            f"the first is {listing.missing[0].path}, are missing; {advice}"
        )
    if not listing.images:
        raise UnreadableFile(f"{source}: no {entry.modality.name}s in {entry.image_folder(root)}; {advice}")
    notes = (*listing.notes, *_shortage(entry, listing))
    labels = np.array(listing.labels, np.int64)
    samples = tuple(listing.images)
    return SampleSet(source, listing.class_names, samples, labels, entry.prompts, notes, entry.modality)


def _shortage(entry: Entry, listing: Listing) -> list[str]:
    notes = []
    if entry.count is not None and len(listing.images) != entry.count:
        notes.append(f"{len(listing.images):,} images, where the full set has {entry.count:,}")
    occurring = len(set(listing.labels))
    if occurring < entry.classes:
        absent = f"{entry.classes - occurring:,} of {entry.classes:,} classes"
        notes.append(f"{absent} have no {entry.modality.name}s here")
    return notes


def _no_such(source: str) -> str:
    if "/" in source or "." in source:
        return f"no such file or folder: {source}"
    return f"{source!r} is neither a folder nor a known dataset; {nearest(source, catalogue())}"

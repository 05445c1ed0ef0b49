"""A folder of samples: one sub-folder per class, or just samples.

They are found in the same order always, without hidden files, through links, and no file twice.
"""

import os
import posixpath
import warnings
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from pathlib import Path

import numpy as np

from pta.core.modality import IMAGES, Modality
from pta.data.sample_set import Listed, SampleFile, SampleSet
from pta.data.sources.addresses import ask, is_remote, remote_stamp
from pta.data.sources.class_index import ClassIndex
from pta.data.sources.entries import entries, identity, is_folder_at
from pta.door.refused_places import is_unread_photo, left_out
from pta.errors import InvalidParameter, UnreadableFile

_MOST_ENTRIES = 2**24  # files and folders; ImageNet-21k has 13 million


def open_folder(folder: str, class_names: Sequence[str] | None, modality: Modality) -> SampleSet:
    """Sub-folders are classes, in sorted order or in that of `class_names`; samples lying loose have no labels."""
    name, samples, owners = Path(folder).absolute().name, list[SampleFile](), list[str | None]()
    for row in list_folder(folder, modality):
        samples.append(SampleFile(Path(row.place), row.key))
        owners.append(row.label)
    if not samples:
        raise UnreadableFile(f"{folder} holds no {modality.name}s ({modality.endings}), nor do its sub-folders")
    found = sorted({owner for owner in owners if owner is not None})
    if not found:
        return SampleSet(name, tuple(class_names or ()), tuple(samples), None, modality=modality)
    if None in owners:
        loose, nested = samples[owners.index(None)].key, next(one.key for one in samples if "/" in one.key)
        raise UnreadableFile(
            f"{folder} holds {modality.name}s directly ({loose}) and in sub-folders ({nested}); "
            f"put every {modality.name} into the sub-folder of its class, or all into one folder"
        )
    names, notes = tuple(found if class_names is None else class_names), []
    if class_names is None:
        label = {owner: number for number, owner in enumerate(found)}
        if empty := [owner for owner in sub_folders(Path(folder)) if owner not in label]:
            notes.append(f"sub-folders without {modality.name}s are not classes: {', '.join(empty[:5])}")
    else:
        index = ClassIndex(names)
        label = {owner: index.label(owner, f"{folder}: the sub-folder") for owner in found}
    if missing := len(names) - len(set(label.values())):
        notes.append(f"{missing} of {len(names)} classes have no {modality.name}s here")
    labels = np.array([label[owner] for owner in owners if owner is not None], np.int64)
    return SampleSet(name, names, tuple(samples), labels, notes=tuple(notes), modality=modality)


def list_folder(address: str, modality: Modality, by: str | None = None) -> Iterator[Listed]:
    """The samples in a folder and below it; those of one sub-folder are one stream, if `by` is `folder`."""
    if by not in (None, "folder"):
        raise InvalidParameter(f"--by {by}: samples of a folder have no columns; --by folder is one stream per folder")
    stamps: dict[str, str] = {}
    if is_remote(address):
        path, files = ask(address, "listed", lambda system, path: (path, system.find(path, detail=True)))
        for name, about in files.items():
            *folders, file = parts = name.removeprefix(path).lstrip("/").split("/")
            if modality.takes(file) and not any(folder.startswith(".") for folder in folders):
                stamps["/".join(parts)] = remote_stamp(about)
    for key in sorted(stamps) if is_remote(address) else sample_files(Path(address), modality):
        label, nested, _ = key.partition("/")
        place, stream = f"{address.rstrip('/')}/{key}", posixpath.dirname(key) if by else None
        yield Listed(key, place, label if nested else None, stream, stamp=stamps.get(key))


def sample_files(
    folder: Path, modality: Modality = IMAGES, entered: Callable[[str], None] = lambda name: None
) -> list[str]:
    """The samples in a folder and all its sub-folders, as sorted paths relative to it, each real file once.

    A file that can be reached by several paths has the one with the fewest links, of these the one with the fewest
    folders, of these the first in sorted order. Hard links are files of their own. `entered` is told the path of each
    folder that is listed. Photographs in formats that are not read are warned about.
    """
    unread: list[str] = []
    found: dict[str, tuple[int, int, str]] = {}  # real path → links, folders, path
    seen: set[tuple[int, int]] = set()
    waiting, count = [(0, 0, "")], 0
    while waiting:
        links, depth, prefix = heappop(waiting)
        here = folder / prefix
        if (known := identity(here)) in seen:
            continue
        seen.add(known)
        entered(prefix)
        real = os.path.realpath(here)
        for entry in entries(here):
            count += 1
            if count > _MOST_ENTRIES:
                raise UnreadableFile(f"{folder} holds more than {_MOST_ENTRIES:,} files and folders; give a part of it")
            linked = links + entry.is_symlink()
            is_sample = modality.takes(entry.name)
            if is_folder_at(entry, is_sample=is_sample):
                heappush(waiting, (linked, depth + 1, f"{prefix}{entry.name}/"))
            elif is_sample and (entry.is_symlink() or entry.is_file()):  # no pipe, no device
                # a broken link, too: reading it will say so
                target = os.path.realpath(entry.path) if entry.is_symlink() else f"{real}/{entry.name}"
                path = (linked, depth, prefix + entry.name)
                found[target] = min(path, found.get(target, path))
            elif modality is IMAGES and is_unread_photo(entry.name):
                unread.append(entry.path)
    if unread:
        warnings.warn(left_out(sorted(unread)), stacklevel=2)
    return sorted(path for _, _, path in found.values())


def sub_folders(folder: Path) -> list[str]:
    """The sorted names of the folders in a folder."""
    return sorted(entry.name for entry in entries(folder) if is_folder_at(entry))


def loose_images(folder: Path) -> list[str]:
    """The sorted names of the images that lie directly in a folder."""
    inside = (entry for entry in entries(folder) if IMAGES.takes(entry.name))
    return sorted(entry.name for entry in inside if not is_folder_at(entry))

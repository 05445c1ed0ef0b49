"""Checks whether a copy of a catalogued dataset is complete; says what is missing and where to get it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pta.data.catalogue import CatalogueEntry, FoundSamples, Watch, find_entry, place_of
from pta.data.layouts import list_images, missing_places
from pta.door.files import exists
from pta.errors import PtaError, UnreadableFile, shown

_SHOWN = 3


@dataclass(frozen=True)
class Report:
    """The found and the published counts of a dataset, and its problems, one sentence each."""

    name: str
    title: str
    folder: str
    images: int
    expected_images: int | None
    classes: int
    expected_classes: int
    problems: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def record(self) -> dict[str, Any]:
        """Everything, for a JSON file."""
        return {**asdict(self), "complete": self.complete}


def check(name: str | CatalogueEntry, root: str | Path, watch: Watch = lambda done, total: None) -> Report:
    """Look for every part of a set below the folder of all datasets; `watch` is told of the progress.

    A set with many parts, such as `imagenet_c`, is checked in those parts that are there.
    """
    entry = name if isinstance(name, CatalogueEntry) else find_entry(name)
    if not isinstance(root, str | Path) or not Path(root).is_dir():
        raise UnreadableFile(f"no such folder: {shown(root)}; give the folder that holds the datasets")
    root = Path(root)
    return _check_parts(entry, root, watch) if entry.parts else _check_one(entry, root, watch)


def _check_one(entry: CatalogueEntry, root: Path, watch: Watch) -> Report:
    problems = missing_places(entry, root)
    listing = FoundSamples([], [], ())
    if not problems:
        try:
            listing = list_images(entry, root, watch=watch)
            problems += _gaps(entry, listing)
        except PtaError as error:
            problems.append(str(error))
    counts = (len(listing.images) - len(listing.missing), entry.count, len(set(listing.labels)), entry.classes)
    return Report(entry.id, entry.title, str(place_of(entry.images, root)), *counts, tuple(problems), listing.notes)


def _gaps(entry: CatalogueEntry, listing: FoundSamples) -> list[str]:
    problems = []
    if listing.missing:
        missing = [image.key for image in listing.missing]
        problems.append(f"{len(missing):,} images are listed but missing: {_some(missing)}")
    occurring = set(listing.labels)
    absent = [name for label, name in enumerate(listing.class_names) if label not in occurring]
    if absent:
        problems.append(f"{len(absent):,} of {entry.classes:,} classes have no {entry.modality.name}s: {_some(absent)}")
    if entry.count is not None and len(listing.images) != entry.count:
        what = "the list names" if entry.test_list else "the class folders hold"
        problems.append(f"{what} {len(listing.images):,} images, the full set has {entry.count:,}")
    return problems


def _check_parts(entry: CatalogueEntry, root: Path, watch: Watch) -> Report:
    parts = {"/".join(chosen): entry.part(*chosen) for chosen in entry.choices()}
    there = [part for part, own in parts.items() if exists(place_of(own.images, root))]

    def watch_part(number: int, done: int, total: int) -> None:
        watch(number * total + done, len(there) * total)

    reports = [_check_one(parts[part], root, partial(watch_part, number)) for number, part in enumerate(there)]
    absent = [part for part in parts if part not in there]
    problems = [f"{part}: {one}" for part, report in zip(there, reports, strict=True) for one in report.problems]
    notes = [f"{len(there)} of {len(parts)} parts were found; missing, and not counted: {_some(absent)}"]
    if not there:
        problems = missing_places(entry, root) or [f"none of its {len(parts)} parts were found: {_some([*parts])}"]
    images, classes = sum(one.images for one in reports), min((one.classes for one in reports), default=0)
    expected = sum(parts[part].count or 0 for part in there) or entry.count
    counts, notes = (images, expected, classes, entry.classes), notes if there and absent else []
    return Report(entry.id, entry.title, str(place_of(entry.images, root)), *counts, tuple(problems), tuple(notes))


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")

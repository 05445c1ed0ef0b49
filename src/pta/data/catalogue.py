"""The catalogue of sixteen image datasets and two point-cloud datasets: folders, class names, sample counts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from pta.core.modality import CLOUDS, IMAGES, Modality
from pta.core.parameters import require_text
from pta.data.sample_set import ListedSample, SampleFile
from pta.data.shifts.points import corrupted_size
from pta.door.files import packaged_json
from pta.errors import InvalidParameter, nearest, require_known

CLEAN = "clean"
"""What a set of corrupted clouds is called without a corruption."""


@dataclass(frozen=True)
class CatalogueEntry:
    """One set. Places are relative to the folder of all datasets; of several, the first that exists is taken."""

    id: str  # what it is called on the command line
    title: str
    layout: str  # `split_file` or `aircraft` for a list, `wnid_tree` or `index_tree` for class folders, `h5` for clouds
    images: tuple[str, ...]  # the folder of the images
    names: str  # which of our own lists of class names belongs to it
    classes: int  # of the full set
    count: int | None  # images of the full set, where that is published
    prompts: str  # whose templates suit it
    images_from: str  # where one gets them
    test_list: tuple[str, ...] = ()  # the file that says which images are the test set
    test_list_from: str = ""  # where one gets it
    names_file: tuple[str, ...] = ()  # with class names; only needed beside a test list
    subset: str | None = None  # which part of ImageNet's classes it has, if not all
    parts: tuple[tuple[str, ...], ...] = ()  # folders below `images` that a user chooses among, level by level
    filters: Mapping[str, str] = field(default_factory=dict)  # by name, letters whose files are left out on request
    without: str | None = None  # the letters chosen from `filters`
    counts: Mapping[str, int] = field(default_factory=dict)  # by the first of `parts`, where each has its own
    points: int | None = None  # of a cloud, after the corruption that was chosen

    @property
    def modality(self) -> Modality:
        """What its samples are."""
        return CLOUDS if self.layout == "h5" else IMAGES

    @property
    def class_names(self) -> tuple[str, ...]:
        """Our own list of class names, in the order of the labels."""
        return self._of_subset(packaged_json("classnames.json")[self.names])

    @property
    def wnids(self) -> tuple[str, ...]:
        """The WordNet ids that ImageNet's folders are called by, in the order of the labels."""
        return self._of_subset(packaged_json("imagenet.json")["wnids"])

    @property
    def class_folders(self) -> tuple[str, ...]:
        """What the folders of a tree are called, in the order of the labels."""
        return self.wnids if self.layout == "wnid_tree" else tuple(map(str, range(self.classes)))

    def _of_subset(self, of_all: Sequence[str]) -> tuple[str, ...]:
        if self.subset is None:
            return tuple(of_all)
        return tuple(of_all[label] for label in packaged_json("imagenet.json")[self.subset])

    def part(self, *chosen: str) -> "CatalogueEntry":
        """The set below the folders chosen from `parts`, or the file of a corruption and severity."""
        below, count, points = "/".join(chosen), self.counts.get(chosen[0], self.count), self.points
        if self.layout == "h5":
            *folders, corruption, severity = chosen if chosen[-1] != CLEAN else (*chosen, "")
            below = "/".join([*folders, "_".join(filter(None, (corruption, severity))) + ".h5"])
            points = corrupted_size(self.points or 0, corruption, int(severity)) if severity else points
        images = tuple(f"{place}/{below}" for place in self.images)
        id = "/".join((self.id, *chosen))
        return replace(self, id=id, images=images, parts=(), count=count, counts={}, points=points)

    def choices(self) -> Iterator[tuple[str, ...]]:
        """What `part` takes."""
        yield from product(*self.parts)
        if self.layout == "h5":
            yield from ((*chosen, CLEAN) for chosen in product(*self.parts[:-2]))

    def record(self) -> dict[str, Any]:
        """What is written to JSON."""
        return {
            "id": self.id,
            "title": self.title,
            "classes": self.classes,
            "images": self.count or dict(self.counts),
            "folder": self.images[0],
            "list": self.test_list[0] if self.test_list else None,
            "templates": self.prompts,
            "parts": [list(part) for part in self.parts],
            "variants": [f"{self.id}/{name}" for name in self.filters],
        }


Watch = Callable[[int, int], None]
"""Is told how many of how many pieces of work are done."""


@dataclass(frozen=True)
class FoundSamples:
    """Which images a copy of a set holds, in order, with their labels."""

    images: Sequence[ListedSample]
    labels: list[int]
    class_names: tuple[str, ...]
    notes: tuple[str, ...] = ()  # remarks for the user
    missing: tuple[SampleFile, ...] = ()  # images that are listed but not there


@cache
def catalogue() -> dict[str, CatalogueEntry]:
    """Every set by its id.

    >>> catalogue()["dtd"].count
    1692
    """
    found = {}
    for id, about in packaged_json("datasets.json").items():
        if not id.startswith("_"):
            fixed = {key: tuple(value) if isinstance(value, list) else value for key, value in about.items()}
            found[id] = CatalogueEntry(id, **fixed | {"parts": tuple(map(tuple, about.get("parts", [])))})
    return found


def is_catalogued(source: str) -> bool:
    """Whether a name is that of a set, or of a variant of one."""
    return require_text("the name of a dataset", source).split("/")[0] in catalogue()


def find_entry(source: str) -> CatalogueEntry:
    """The set of that name; what follows a slash chooses a variant, e.g. `imagenet_a/legacy`, `imagenet_c/fog/5`.

    >>> find_entry("imagenet_c/fog/5").images
    ('imagenet-c/fog/5',)
    """
    id, *chosen = require_text("the name of a dataset", source).split("/")
    require_known("dataset", id, catalogue())
    entry = catalogue()[id]
    if not chosen:
        return entry
    if entry.filters and len(chosen) == 1 and chosen[0] in entry.filters:
        return replace(entry, id=source, without=entry.filters[chosen[0]], count=None)
    levels = (*entry.parts[:-2], (CLEAN,)) if entry.layout == "h5" and chosen[-1] == CLEAN else entry.parts
    if len(chosen) != len(levels):
        raise InvalidParameter(f"{source}: {_how_to_choose(entry)}; for a folder write ./{source}")
    for name, known in zip(chosen, levels, strict=True):
        if name not in known:
            raise InvalidParameter(f"{source}: {name!r} does not exist; {nearest(name, known)}")
    return entry.part(*chosen)


def _how_to_choose(entry: CatalogueEntry) -> str:
    if entry.parts:
        return f"{entry.id} is chosen as {entry.id}/{'/'.join(known[-1] for known in entry.parts)}"
    if entry.filters:
        return f"{entry.id} has the variants {', '.join(f'{entry.id}/{name}' for name in entry.filters)}"
    return f"{entry.id} has no variants"


def place_of(places: Sequence[str], root: Path) -> Path:
    """Where one of the places of a set is, or should be: the first that exists, else the first of all."""
    return next((root / place for place in places if (root / place).exists()), root / places[0])

"""The sixteen image sets of this field, as data: where their parts lie, what they are called, how many there are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from pta.errors import InvalidParameter, nearest
from pta.files import packaged_json


@dataclass(frozen=True)
class Entry:
    """One set. Places are relative to the folder of all datasets; of several, the first that exists is taken.

    Attributes:
        id: what it is called on the command line.
        layout: which reader of `pta.datasets.folder_layouts` understands it.
        images: the folder of the images.
        test_list: the file that says which images are the test set.
        names_file: a file with class names; unless the layout needs it, a set is whole without it.
        names: which of our own lists of class names belongs to it.
        subset: which part of ImageNet's classes it has, if not all.
        classes, count: how many classes and images the full set has; count is None where nobody has said.
        prompts: whose templates suit it.
        images_from, test_list_from: where one gets them.
        parts: folders below `images` that a user chooses among, level by level.
        filters: by name, letters whose files are left out on request.
        without: the letters chosen from `filters`.
    """

    id: str
    title: str
    layout: str
    images: tuple[str, ...]
    names: str
    classes: int
    count: int | None
    prompts: str
    images_from: str
    test_list: tuple[str, ...] = ()
    test_list_from: str = ""
    names_file: tuple[str, ...] = ()
    subset: str | None = None
    parts: tuple[tuple[str, ...], ...] = ()
    filters: Mapping[str, str] = field(default_factory=dict)
    without: str | None = None

    @property
    def class_names(self) -> tuple[str, ...]:
        """Our own list of class names, in the order of the labels."""
        return self._of_subset(packaged_json("classnames.json")[self.names])

    @property
    def wnids(self) -> tuple[str, ...]:
        """The WordNet ids that ImageNet's folders are called by, in the order of the labels."""
        return self._of_subset(packaged_json("imagenet.json")["wnids"])

    def _of_subset(self, of_all: Sequence[str]) -> tuple[str, ...]:
        if self.subset is None:
            return tuple(of_all)
        return tuple(of_all[label] for label in packaged_json("imagenet.json")[self.subset])

    def image_folder(self, root: Path) -> Path:
        """Where the folder of the images is, or should be."""
        return _first_existing(root, self.images)

    def test_list_file(self, root: Path) -> Path:
        """Where the list of test images is, or should be; for a set that has one."""
        return _first_existing(root, self.test_list)

    def class_names_file(self, root: Path) -> Path:
        """Where the file with class names is, or should be; for a set that has one."""
        return _first_existing(root, self.names_file)

    def part(self, *chosen: str) -> "Entry":
        """The set below the folders chosen from `parts`."""
        below = "/".join(chosen)
        return replace(
            self, id=f"{self.id}/{below}", images=tuple(f"{place}/{below}" for place in self.images), parts=()
        )

    def record(self) -> dict[str, Any]:
        """What is written to JSON."""
        return {
            "id": self.id,
            "title": self.title,
            "classes": self.classes,
            "images": self.count,
            "folder": self.images[0],
            "list": self.test_list[0] if self.test_list else None,
            "templates": self.prompts,
            "parts": [list(part) for part in self.parts],
            "variants": [f"{self.id}/{name}" for name in self.filters],
        }


@cache
def catalogue() -> dict[str, Entry]:
    """Every set by its id.

    >>> catalogue()["dtd"].count
    1692
    """
    return {id: _entry(id, about) for id, about in packaged_json("datasets.json").items() if not id.startswith("_")}


def is_catalogued(source: str) -> bool:
    """Whether a name is that of a set, or of a variant of one."""
    return source.split("/")[0] in catalogue()


def find_entry(source: str) -> Entry:
    """The set of that name; what follows a slash chooses a variant, e.g. `imagenet_a/legacy`, `imagenet_c/fog/5`.

    >>> find_entry("imagenet_c/fog/5").images
    ('imagenet-c/fog/5',)
    """
    id, *chosen = source.split("/")
    if id not in catalogue():
        raise InvalidParameter(f"no dataset is called {id!r}; {nearest(id, catalogue())}")
    entry = catalogue()[id]
    if not chosen:
        return entry
    if entry.filters and len(chosen) == 1 and chosen[0] in entry.filters:
        return replace(entry, id=source, without=entry.filters[chosen[0]], count=None)
    if len(chosen) != len(entry.parts):
        raise InvalidParameter(f"{source}: {_how_to_choose(entry)}; for a folder write ./{source}")
    for name, known in zip(chosen, entry.parts, strict=True):
        if name not in known:
            raise InvalidParameter(f"{source}: {name!r} does not exist; {nearest(name, known)}")
    return entry.part(*chosen)


def _how_to_choose(entry: Entry) -> str:
    if entry.parts:
        return f"{entry.id} is chosen as {entry.id}/{'/'.join(known[-1] for known in entry.parts)}"
    if entry.filters:
        return f"{entry.id} has the variants {', '.join(f'{entry.id}/{name}' for name in entry.filters)}"
    return f"{entry.id} has no variants"


def _entry(id: str, about: dict[str, Any]) -> Entry:
    fixed = {key: tuple(value) if isinstance(value, list) else value for key, value in about.items()}
    return Entry(id=id, **fixed | {"parts": tuple(tuple(part) for part in about.get("parts", []))})


def _first_existing(root: Path, places: Sequence[str]) -> Path:
    """The first place that exists, else the first of all."""
    return next((root / place for place in places if (root / place).exists()), root / places[0])

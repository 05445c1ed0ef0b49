"""From an entry of the catalogue and a folder to the images of the set."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pta.datasets.catalogue import Entry
from pta.datasets.class_trees import list_index_tree, list_wnid_tree
from pta.datasets.images import FileImage
from pta.datasets.listing import Listing, Watch, unwatched
from pta.datasets.split_files import list_aircraft, list_split
from pta.errors import InvalidParameter

Reader = Callable[[Entry, dict[str, Path], Sequence[str] | None, Watch], Listing]


@dataclass(frozen=True)
class Layout:
    """What must be there, and how it is read."""

    needs: tuple[str, ...]
    read: Reader


LAYOUTS = {
    "split_file": Layout(("images", "test_list"), list_split),
    "aircraft": Layout(("images", "test_list", "names_file"), list_aircraft),
    "wnid_tree": Layout(("images",), list_wnid_tree),
    "index_tree": Layout(("images",), list_index_tree),
}

_WHAT = {"images": "folder of images", "test_list": "list of test images", "names_file": "list of class names"}


def list_images(
    entry: Entry, root: Path, class_names: Sequence[str] | None = None, watch: Watch = unwatched
) -> Listing:
    """The images of a set whose parts are all there; `class_names` are used instead of the set's."""
    if class_names is not None and len(class_names) != entry.classes:
        raise InvalidParameter(f"{entry.id} has {entry.classes} classes, but {len(class_names)} class names were given")
    places = {what: place for what in _WHAT if (place := entry.place(root, what)) is not None}
    return LAYOUTS[entry.layout].read(entry, places, class_names, watch)


def missing_places(entry: Entry, root: Path) -> list[str]:
    """What is not there at all, a sentence each: what it is, where it should be, where one gets it."""
    return [_absence(entry, root, what) for what in LAYOUTS[entry.layout].needs if entry.place(root, what) is None]


def missing_images(entry: Entry, listing: Listing, watch: Watch = unwatched) -> list[FileImage]:
    """Which of the images that a file lists are not there; a tree lists only what it has."""
    if not entry.test_list:
        return []
    missing = []
    for done, image in enumerate(listing.images, start=1):
        if not image.path.is_file():
            missing.append(image)
        watch(done, len(listing.images))
    return missing


def _absence(entry: Entry, root: Path, what: str) -> str:
    source = entry.images_from if what == "images" else entry.test_list_from
    first = getattr(entry, what)[0]
    above = root.absolute().parent
    if entry.place(above, what) is not None:
        return (
            f"no {_WHAT[what]} {root / first}; there is {entry.place(above, what)}, so give {above} as the data folder"
        )
    return f"no {_WHAT[what]} {root / first}; get it from {source}"

"""From an entry of the catalogue and a folder to the images of the set."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pta.datasets.catalogue import Entry
from pta.datasets.imagenet import list_index_tree, list_wnid_tree
from pta.datasets.listing import Listing, Watch, no_progress
from pta.datasets.split_files import list_aircraft, list_split
from pta.errors import InvalidParameter

Reader = Callable[[Entry, Path, Sequence[str] | None, Watch], Listing]
"""Takes a set, the folder of all datasets, class names of the user's own, and who wants to know of the progress."""


@dataclass(frozen=True)
class Layout:
    """How the images of a set are listed, and what must be there beside them."""

    read: Reader
    needs_test_list: bool = False
    needs_names_file: bool = False


LAYOUTS = {
    "split_file": Layout(list_split, needs_test_list=True),
    "aircraft": Layout(list_aircraft, needs_test_list=True, needs_names_file=True),
    "wnid_tree": Layout(list_wnid_tree),
    "index_tree": Layout(list_index_tree),
}


def list_images(
    entry: Entry, root: Path, class_names: Sequence[str] | None = None, watch: Watch = no_progress
) -> Listing:
    """The images of a set whose parts are all there; `class_names` are used instead of the set's."""
    if class_names is not None and len(class_names) != entry.classes:
        raise InvalidParameter(f"{entry.id} has {entry.classes} classes, but {len(class_names)} class names were given")
    return LAYOUTS[entry.layout].read(entry, root, class_names, watch)


def missing_places(entry: Entry, root: Path) -> list[str]:
    """What is not there at all, a sentence each: what it is, where it should be, where one gets it."""
    above = root.absolute().parent
    absences = []
    for what, place, source in _needs(entry):
        if place(root).exists():
            continue
        advice = f"get it from {source}"
        if place(above).exists():
            advice = f"there is {place(above)}, so give {above} as the data folder"
        absences.append(f"no {what} {place(root)}; {advice}")
    return absences


def _needs(entry: Entry) -> Iterator[tuple[str, Callable[[Path], Path], str]]:
    """Everything that must be there: what it is, its place below the folder of all datasets, where one gets it."""
    layout = LAYOUTS[entry.layout]
    yield "folder of images", entry.image_folder, entry.images_from
    if layout.needs_test_list:
        yield "list of test images", entry.test_list_file, entry.test_list_from
    if layout.needs_names_file:
        yield "list of class names", entry.class_names_file, entry.test_list_from

"""From an entry of the catalogue and a folder to the images of the set."""

from collections.abc import Sequence
from pathlib import Path

from pta.datasets.catalogue import Entry, Listing, Watch
from pta.datasets.imagenet import list_index_tree, list_wnid_tree
from pta.datasets.split_files import list_aircraft, list_split
from pta.errors import InvalidParameter

LAYOUTS = {
    "split_file": list_split,
    "aircraft": list_aircraft,
    "wnid_tree": list_wnid_tree,
    "index_tree": list_index_tree,
}
"""Each takes a set, the folder of all datasets, class names of the user's own, and who is told of the progress."""


def list_images(
    entry: Entry, root: Path, class_names: Sequence[str] | None = None, watch: Watch = lambda done, total: None
) -> Listing:
    """The images of a set whose parts are all there; `class_names` are used instead of the set's."""
    if class_names is not None and len(class_names) != entry.classes:
        raise InvalidParameter(f"{entry.id} has {entry.classes} classes, but {len(class_names)} class names were given")
    return LAYOUTS[entry.layout](entry, root, class_names, watch)


def missing_places(entry: Entry, root: Path) -> list[str]:
    """What is not there at all, a sentence each: what it is, where it should be, where one gets it."""
    needed = [("folder of images", entry.image_folder, entry.images_from)]
    if entry.test_list:
        needed.append(("list of test images", entry.test_list_file, entry.test_list_from))
    if entry.test_list and entry.names_file:
        needed.append(("list of class names", entry.class_names_file, entry.test_list_from))
    above = root.absolute().parent
    absences = []
    for what, place, source in needed:
        if not place(root).exists():
            moved = place(above).exists()
            advice = (
                f"there is {place(above)}, so give {above} as the data folder" if moved else f"get it from {source}"
            )
            absences.append(f"no {what} {place(root)}; {advice}")
    return absences

"""Sets that are a tree of class folders: ImageNet and its relatives, by wnid or, in V2, by number."""

from collections.abc import Sequence
from itertools import count
from pathlib import Path, PurePosixPath

from pta.datasets.catalogue import Entry, Listing, Watch
from pta.datasets.class_index import matching_name
from pta.datasets.sample_set import SampleFile
from pta.datasets.trees import loose_images, sample_files, sub_folders
from pta.errors import UnreadableFile
from pta.files import read_text


def list_wnid_tree(entry: Entry, root: Path, names: Sequence[str] | None, watch: Watch) -> Listing:
    """Folders called by wnid; a label is the place of the wnid among those of the set, sorted."""
    labels = {wnid: label for label, wnid in enumerate(entry.wnids)}
    return _listing(entry, root, labels, names, watch)


def list_index_tree(entry: Entry, root: Path, names: Sequence[str] | None, watch: Watch) -> Listing:
    """Folders called by the number of the class, which must not be sorted as text."""
    labels = {str(label): label for label in range(entry.classes)}
    return _listing(entry, root, labels, names, watch)


def _listing(entry: Entry, root: Path, labels: dict[str, int], names: Sequence[str] | None, watch: Watch) -> Listing:
    folder = entry.image_folder(root)
    loose = loose_images(folder)
    if loose:
        raise UnreadableFile(
            f"{len(loose):,} images ({loose[0]}, …) lie directly in {folder}; they belong into its class folders, "
            f"such as {next(iter(labels))}"
        )
    keys, remarks = _filtered(entry, _keys(entry, folder, labels, watch))
    if names is None:
        names, more = _class_names(entry, root)
        remarks += more
    images = [SampleFile(folder / key, key) for key in keys]
    return Listing(images, [labels[key.partition("/")[0]] for key in keys], tuple(names), remarks)


def _keys(entry: Entry, folder: Path, labels: dict[str, int], watch: Watch) -> list[str]:
    folders, entered = sub_folders(folder), count(1)

    def tell(path: str) -> None:
        if path.count("/") == 1:
            watch(next(entered), len(folders))

    keys = sample_files(folder, entered=tell)
    strange = sorted({key.partition("/")[0] for key in keys} - labels.keys())
    if strange:
        raise UnreadableFile(
            f"{folder / strange[0]} is none of the {len(labels)} class folders of {entry.id}; is it another dataset?"
        )
    return keys


def _filtered(entry: Entry, keys: list[str]) -> tuple[list[str], tuple[str, ...]]:
    """The files that the chosen filter leaves, and what each filter does or would do."""
    remarks = []
    for name, letters in entry.filters.items():
        passing = [key for key in keys if letters not in PurePosixPath(key).name]
        told = f"{len(keys) - len(passing):,} of {len(keys):,} images, those with {letters!r} in their file name"
        if entry.without == letters:
            return passing, (f"left out as the released program does: {told}; {len(passing):,} remain",)
        remarks.append(f"all {len(keys):,} images; {entry.id}/{name} would leave out {told}")
    return keys, tuple(remarks)


def _class_names(entry: Entry, root: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names from the user's file "<wnid> <name>" if there is one, and a remark if they are not ours."""
    ours = entry.class_names
    file = entry.class_names_file(root) if entry.names_file else None
    if file is None or not file.exists():
        return ours, ()
    lines = (line.split(maxsplit=1) for line in read_text(file, "class name").splitlines())
    theirs = {line[0]: line[1].strip() for line in lines if len(line) == 2}
    missing = [wnid for wnid in entry.wnids if wnid not in theirs]
    if missing:
        raise UnreadableFile(
            f"{file} has no name for {missing[0]} ({len(missing)} missing); it needs lines '<wnid> <name>', "
            "or take the file away to use pta's own names"
        )
    names = tuple(theirs[wnid] for wnid in entry.wnids)
    differing = [i for i, name in enumerate(names) if matching_name(name) != matching_name(ours[i])]
    if not differing:
        return names, ()
    first = differing[0]
    return names, (
        f"{len(differing)} class names of {file.name} are not those of pta, the first is {names[first]!r} instead of "
        f"{ours[first]!r}; the file's are used",
    )

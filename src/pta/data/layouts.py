"""From an entry of the catalogue and a folder to the samples of the set: of a list, of class folders, or of one file.

Lists are the JSON splits of CoOp and FGVC-Aircraft's own. Trees are ImageNet and its relatives, by wnid or, in V2, by
number.
"""

import json
from collections.abc import Sequence
from itertools import count
from pathlib import Path, PurePosixPath

import numpy as np

from pta.data.catalogue import CatalogueEntry, FoundSamples, Watch, find_entry, place_of
from pta.data.sample_set import SampleFile, SampleSet
from pta.data.sources.addresses import is_inside
from pta.data.sources.class_index import matching_name
from pta.data.sources.folder import loose_images, sample_files, sub_folders
from pta.data.sources.h5_clouds import read_clouds
from pta.door.files import read_json, read_text, understanding
from pta.errors import InvalidParameter, UnreadableFile

Row = tuple[str, int, str]
"""Path relative to the image folder, label, class name."""


def open_catalogued(source: str, root: Path | None, class_names: Sequence[str] | None) -> SampleSet:
    """A catalogued set, below the folder of all datasets."""
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
    if absent := missing_places(entry, root):
        raise UnreadableFile(f"{source}: {absent[0]}; {advice}")
    found = list_images(entry, root, class_names)
    count, occurring = len(found.images), len(set(found.labels))
    if found.missing:
        raise UnreadableFile(
            f"{source}: {len(found.missing):,} of {count:,} images, "
            f"the first is {found.missing[0].path}, are missing; {advice}"
        )
    if not count:
        raise UnreadableFile(f"{source}: no {entry.modality.name}s in {place_of(entry.images, root)}; {advice}")
    notes = list(found.notes)
    if entry.count not in (None, count):
        notes.append(f"{count:,} images, where the full set has {entry.count:,}")
    if occurring < entry.classes:
        absence = f"{entry.classes - occurring:,} of {entry.classes:,} classes"
        notes.append(f"{absence} have no {entry.modality.name}s here")
    labels = np.array(found.labels, np.int64)
    about = entry.prompts, tuple(notes), entry.modality
    return SampleSet(source, found.class_names, tuple(found.images), labels, *about)


def list_images(
    entry: CatalogueEntry, root: Path, class_names: Sequence[str] | None = None, watch: Watch = lambda done, total: None
) -> FoundSamples:
    """The images of a set whose parts are all there; `class_names` are used instead of the set's."""
    if class_names is not None and len(class_names) != entry.classes:
        raise InvalidParameter(f"{entry.id} has {entry.classes} classes, but {len(class_names)} class names were given")
    if entry.layout == "h5":
        return _in_h5(entry, root, class_names)
    return (_listed if entry.test_list else _in_folders)(entry, root, class_names, watch)


def missing_places(entry: CatalogueEntry, root: Path) -> list[str]:
    """What is not there at all, a sentence each: what it is, where it should be, where one gets it."""
    is_file = entry.layout == "h5" and not entry.parts
    what = f"{'file' if is_file else 'folder'} of {entry.modality.name}s"
    needed = [(what, entry.images, entry.images_from)]
    if entry.test_list:
        needed.append(("list of test images", entry.test_list, entry.test_list_from))
    if entry.test_list and entry.names_file:
        needed.append(("list of class names", entry.names_file, entry.test_list_from))
    above = root.absolute().parent
    absences = []
    for what, places, source in needed:
        here, there = place_of(places, root), place_of(places, above)
        if not here.exists():
            moved = f"there is {there}, so give {above} as the data folder"
            absences.append(f"no {what} {here}; {moved if there.exists() else f'get it from {source}'}")
    return absences


# -- lists -------------------------------------------------------------------------------------------------------------


def _listed(entry: CatalogueEntry, root: Path, names: Sequence[str] | None, watch: Watch) -> FoundSamples:
    rows = _aircraft_rows(entry, root) if entry.layout == "aircraft" else _split_rows(place_of(entry.test_list, root))
    _require_sound(entry, root, rows, names)
    folder, missing = place_of(entry.images, root), []
    images = [SampleFile(folder / path, path) for path, _, _ in rows]
    for done, image in enumerate(images, start=1):
        if image.stamp == (-1, -1):
            missing.append(image)
        watch(done, len(images))
    labels = [label for _, label, _ in rows]
    return FoundSamples(images, labels, tuple(entry.class_names if names is None else names), missing=tuple(missing))


def _split_rows(file: Path) -> list[Row]:
    """The rows under "test" of a JSON split."""
    with understanding(file, "split file"):
        content = read_json(file, "split")
        found = content.get("test") if isinstance(content, dict) else None
        if not isinstance(found, list):
            expected = "a split file has rows [path, label, class name] there"
            raise UnreadableFile(f'{file} has no list under "test"; {expected}')
        rows: list[Row] = []
        for number, row in enumerate(found):
            match row:
                case [str(path), int(label), str(name)] if label >= 0 and not isinstance(label, bool):
                    rows.append((path, label, name))
                case _:
                    given = json.dumps(row)[:60]
                    raise UnreadableFile(f"{file}: row {number} of test is {given}, expected [path, label, class name]")
        return rows


def _aircraft_rows(entry: CatalogueEntry, root: Path) -> list[Row]:
    """Lines "<id> <variant>"; a label is the variant's line in variants.txt."""
    file, names_file = place_of(entry.test_list, root), place_of(entry.names_file, root)
    variants = [line.strip() for line in read_text(names_file, "class name").splitlines() if line.strip()]
    labels = {variant: label for label, variant in enumerate(variants)}
    rows: list[Row] = []
    for number, line in enumerate(read_text(file, "test list").splitlines(), start=1):
        image, _, variant = (part.strip() for part in line.strip().partition(" "))
        if image and variant not in labels:
            raise UnreadableFile(f"{file}: line {number} names {variant!r}, which is not in {names_file}")
        if image:
            rows.append((f"{image}.jpg", labels[variant], variant))
    return rows


def _require_sound(entry: CatalogueEntry, root: Path, rows: Sequence[Row], names: Sequence[str] | None) -> None:
    file, folder, known = place_of(entry.test_list, root), place_of(entry.images, root), entry.class_names
    if not rows:
        raise UnreadableFile(f"{file} lists no images")
    for path, label, name in rows:
        if not is_inside(path):
            raise UnreadableFile(f"{file} points to {path!r}, outside of {folder}; it is damaged or malicious")
        if label >= len(known):
            raise UnreadableFile(f"{file}: label {label} of {path} does not exist; {entry.id} has {len(known)} classes")
        if names is None and matching_name(name) != matching_name(known[label]):
            raise UnreadableFile(
                f"{file} calls class {label} {name!r}, where {entry.id} has {known[label]!r}; "
                "is it the list of another dataset? (Class names of your own are used without this check.)"
            )


# -- files of clouds ---------------------------------------------------------------------------------------------------


def _in_h5(entry: CatalogueEntry, root: Path, names: Sequence[str] | None) -> FoundSamples:
    """The clouds of a file, if it has as many and with as many points as the published one."""
    path = place_of(entry.images, root)
    clouds, labels = read_clouds(path, entry.classes)
    found, published = (len(clouds), len(clouds[0].held)), (entry.count, entry.points)
    if found != published:
        what = "{} clouds of {} points".format
        raise UnreadableFile(f"{path} holds {what(*found)}; the published {entry.id} holds {what(*published)}")
    return FoundSamples(clouds, labels.tolist(), tuple(entry.class_names if names is None else names))


# -- trees of class folders --------------------------------------------------------------------------------------------


def _in_folders(entry: CatalogueEntry, root: Path, names: Sequence[str] | None, watch: Watch) -> FoundSamples:
    folder = place_of(entry.images, root)
    labels = {name: label for label, name in enumerate(entry.class_folders)}
    if loose := loose_images(folder):
        raise UnreadableFile(
            f"{len(loose):,} images ({loose[0]}, …) are directly in {folder}; move them into its class folders, "
            f"such as {next(iter(labels))}"
        )
    folders, entered = len(sub_folders(folder)), count(1)

    def tell(path: str) -> None:
        if path.count("/") == 1:
            watch(next(entered), folders)

    keys = sample_files(folder, entered=tell)
    if strange := sorted({key.partition("/")[0] for key in keys} - labels.keys()):
        raise UnreadableFile(
            f"{folder / strange[0]} is not one of the {len(labels)} class folders of {entry.id}; is it another dataset?"
        )
    keys, remarks = _filtered(entry, keys)
    if names is None:
        names, more = _class_names(entry, root)
        remarks += more
    images = [SampleFile(folder / key, key) for key in keys]
    return FoundSamples(images, [labels[key.partition("/")[0]] for key in keys], tuple(names), remarks)


def _filtered(entry: CatalogueEntry, keys: list[str]) -> tuple[list[str], tuple[str, ...]]:
    """The files that the chosen filter leaves, and what each filter does or would do."""
    remarks = []
    for name, letters in entry.filters.items():
        passing = [key for key in keys if letters not in PurePosixPath(key).name]
        told = f"{len(keys) - len(passing):,} of {len(keys):,} images, those with {letters!r} in their file name"
        if entry.without == letters:
            return passing, (f"left out as the released program does: {told}; {len(passing):,} remain",)
        remarks.append(f"all {len(keys):,} images; {entry.id}/{name} would leave out {told}")
    return keys, tuple(remarks)


def _class_names(entry: CatalogueEntry, root: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names from the user's file "<wnid> <name>" if there is one, and a remark if they are not ours."""
    ours = entry.class_names
    file = place_of(entry.names_file, root) if entry.names_file else None
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

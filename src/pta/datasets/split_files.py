"""Sets whose test images are listed in a file: the JSON splits of CoOp, and FGVC-Aircraft's own lists."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pta.datasets.catalogue import Entry, Listing, Watch
from pta.datasets.class_index import matching_name
from pta.datasets.sample_set import SampleFile
from pta.datasets.trees import is_inside
from pta.errors import UnreadableFile
from pta.files import read_json, read_text, understanding

Row = tuple[str, int, str]
"""Path relative to the image folder, label, class name."""


def list_split(entry: Entry, root: Path, names: Sequence[str] | None, watch: Watch) -> Listing:
    """The rows under "test" of a JSON split, in their order."""
    file = entry.test_list_file(root)
    with understanding(file, "split file"):
        rows = [_row(row, f"{file}: row {number} of test") for number, row in enumerate(_test_rows(file))]
    return _listing(entry, root, rows, names, watch)


def list_aircraft(entry: Entry, root: Path, names: Sequence[str] | None, watch: Watch) -> Listing:
    """Lines "<id> <variant>"; a label is the variant's line in variants.txt."""
    file, names_file = entry.test_list_file(root), entry.class_names_file(root)
    variants = [line.strip() for line in read_text(names_file, "class name").splitlines() if line.strip()]
    labels = {variant: label for label, variant in enumerate(variants)}
    rows: list[Row] = []
    for number, line in enumerate(read_text(file, "test list").splitlines(), start=1):
        image, _, variant = line.strip().partition(" ")
        if not image:
            continue
        if variant.strip() not in labels:
            raise UnreadableFile(f"{file}: line {number} names {variant.strip()!r}, which is not in {names_file}")
        rows.append((f"{image}.jpg", labels[variant.strip()], variant.strip()))
    return _listing(entry, root, rows, names, watch)


def _listing(entry: Entry, root: Path, rows: Sequence[Row], names: Sequence[str] | None, watch: Watch) -> Listing:
    _require_sound(entry, root, rows, names)
    folder = entry.image_folder(root)
    images = [SampleFile(folder / path, path) for path, _, _ in rows]
    labels = [label for _, label, _ in rows]
    missing = []
    for done, image in enumerate(images, start=1):
        if image.stamp == (-1, -1):
            missing.append(image)
        watch(done, len(images))
    return Listing(images, labels, tuple(entry.class_names if names is None else names), missing=tuple(missing))


def _require_sound(entry: Entry, root: Path, rows: Sequence[Row], names: Sequence[str] | None) -> None:
    file, folder, known = entry.test_list_file(root), entry.image_folder(root), entry.class_names
    if not rows:
        raise UnreadableFile(f"{file} lists no images")
    for path, label, name in rows:
        if not is_inside(path):
            raise UnreadableFile(f"{file} points to {path!r}, outside of {folder}; it is damaged or not to be trusted")
        if label >= len(known):
            raise UnreadableFile(f"{file}: label {label} of {path} does not exist; {entry.id} has {len(known)} classes")
        if names is None and matching_name(name) != matching_name(known[label]):
            raise UnreadableFile(
                f"{file} calls class {label} {name!r}, where {entry.id} has {known[label]!r}; "
                "is it the list of another dataset? (Class names of your own are used without this check.)"
            )


def _test_rows(file: Path) -> list[Any]:
    content = read_json(file, "split")
    rows = content.get("test") if isinstance(content, dict) else None
    if not isinstance(rows, list):
        raise UnreadableFile(f'{file} has no list under "test"; a split file has rows [path, label, class name] there')
    return rows


def _row(row: Any, where: str) -> Row:
    match row:
        case [str(path), int(label), str(name)] if label >= 0 and not isinstance(label, bool):
            return path, label, name
    raise UnreadableFile(f"{where} is {json.dumps(row)[:60]}, expected [path, label, class name]")

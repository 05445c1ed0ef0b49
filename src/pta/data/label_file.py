"""A CSV file of labels that a person gave: which sample, by path, id or sequence number, and its class.

The header has `label` and at least one of `path`, `id` and `sequence`; other columns are ignored, so a file that
`pta audit` wrote is one. The label `none` says that a sample belongs to none of the classes. Rows without a label are
left out. A text that begins like a formula may have `'` in front of it, as in the files that `pta predict` writes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from pta.core.labels import NONE, UNKNOWN, Labels
from pta.door.csv_rows import read_csv
from pta.door.safe_text import printable
from pta.errors import InvalidParameter, UnreadableFile, nearest, shown

NONE_OF_THEM = "none"
_PLACES = ("path", "id", "sequence")


@dataclass(frozen=True)
class LabelRow:
    """The label of a sample."""

    line: int
    label: str
    path: str | None = None
    id: str | None = None
    place: int = 0  # in the request with this id
    sequence: int | None = None

    @property
    def key(self) -> str | None:
        """What the sample is called in rows of answers."""
        return self.path or self.id


def read_label_file(file: Path, *, with_empty: bool = False) -> list[LabelRow]:
    """The rows that have a label, or all that name a sample."""
    given = list(read_csv(file, "label", "label", "|".join(_PLACES)))
    if given and "zero_shot_label" in given[0][1]:
        raise UnreadableFile(f"{file} has answers of pta, not a person's labels; pta audit and pta eval need those")
    rows = [_row(row, file, line) for line, row in given if row["label"] or with_empty]
    if not rows:
        raise UnreadableFile(f"{file} has no label")
    return rows


def _row(given: Mapping[str, str], file: Path, line: int) -> LabelRow:
    numbers = {}
    for name in ("place", "sequence"):
        if text := given.get(name):
            if not (text.isascii() and text.isdecimal() and len(text) < 19):
                raise UnreadableFile(f"{file}: line {line} has the {name} {text!r}, which is no whole number")
            numbers[name] = int(text)
    if not any(map(given.get, _PLACES)):
        raise UnreadableFile(f"{file}: line {line} names no sample ({', '.join(_PLACES)})")
    return LabelRow(line, given["label"], given.get("path") or None, given.get("id") or None, **numbers)


def as_in_csv(text: str) -> str:
    """The key of a sample, or the name of a class, as it is read from a CSV file."""
    return printable(text).strip()


def label_texts(labels: Labels, class_names: Sequence[str]) -> list[str]:
    """Labels as they stand in a file: a class, `none`, or nothing where unknown."""
    special = {NONE: NONE_OF_THEM, UNKNOWN: ""}
    return [special[label] if label < 0 else class_names[label] for label in labels.tolist()]


def rows_with_classes(
    file: Path, class_names: Sequence[str], advice: str = "rename it"
) -> Iterator[tuple[LabelRow, int]]:
    """The rows that have a label, each with the number of its class, or NONE; advice is for a class called `none`."""
    numbers = {NONE_OF_THEM: NONE} | {as_in_csv(name): number for number, name in enumerate(class_names)}
    for row in read_label_file(file):
        place = f"{file}: line {row.line} has the label {shown(row.label)}"
        if row.label == NONE_OF_THEM in class_names:
            raise InvalidParameter(f"{place}, but a class is called none, too; {advice}")
        if row.label not in numbers:
            raise UnreadableFile(f"{place}; {nearest(row.label, numbers)}")
        yield row, numbers[row.label]


def labels_by_key(file: Path, class_names: Sequence[str]) -> dict[str, int]:
    """The class numbers of samples, by path or id; NONE for none of the classes."""
    labels: dict[str, int] = {}
    for row, label in rows_with_classes(file, class_names):
        if row.key is None:
            raise UnreadableFile(f"{file}: line {row.line} names its sample by sequence number alone; a path is needed")
        if labels.setdefault(as_in_csv(row.key), label) != label:
            raise UnreadableFile(f"{file}: line {row.line} gives {row.key} a second label; keep one of them")
    return labels


def labels_of_paths(file: Path, class_names: Sequence[str], paths: Sequence[str]) -> Labels:
    """The labels of samples by their paths, of which either side may have more folders in front; UNKNOWN for the rest.

    A label that fits no sample is left out; one that fits several is refused, and so is a file that fits none.
    """
    paths, numbers = [as_in_csv(path) for path in paths], dict[str, list[int]]()
    for number, path in enumerate(paths):
        numbers.setdefault(PurePosixPath(path).name, []).append(number)
    labels = np.full(len(paths), UNKNOWN)
    for key, label in labels_by_key(file, class_names).items():
        alike = [number for number in numbers.get(PurePosixPath(key).name, []) if _is_end(key, paths[number])]
        found = [number for number in alike if paths[number] == key] or alike
        if len(found) > 1:
            raise UnreadableFile(f"{file}: {key} fits {paths[found[0]]} and {paths[found[1]]}; give more of its path")
        if found and labels[found[0]] not in (UNKNOWN, label):
            raise UnreadableFile(f"{file} gives {paths[found[0]]} two labels, the second as {key}; keep one of them")
        labels[found] = label
    if not (labels != UNKNOWN).any():
        raise UnreadableFile(f"{file} has no label for any of these samples, the first of which is {paths[0]}")
    return labels


def _is_end(one: str, other: str) -> bool:
    """Whether one path is the end of the other."""
    shorter, longer = sorted((PurePosixPath(one).parts, PurePosixPath(other).parts), key=len)
    return longer[-len(shorter) :] == shorter

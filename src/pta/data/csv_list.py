"""A CSV file that lists samples: a header `path,label` or `path`, then one row per sample.

A text that begins like a formula may have `'` in front of it, as in the files that `pta predict` writes.
"""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pta.data.class_index import ClassIndex, whole_number
from pta.data.sample_set import SampleFile, SampleSet
from pta.data.trees import is_inside
from pta.door.files import read_text
from pta.door.safe_text import from_csv_cell
from pta.errors import InvalidParameter, UnreadableFile

_LARGEST = 2**30
_MOST_ROWS = 2**24  # each takes half a kilobyte
Rows = list[tuple[int, str, str | None]]  # line number, path, label


def open_csv(file: Path, class_names: Sequence[str] | None = None) -> SampleSet:
    """Samples in the order of the rows. Labels are class names, or numbers where `class_names` say what they mean.

    Relative paths start at the file's folder and may not leave it. Whether the files exist shows when they are read.
    """
    rows = _rows(file)
    samples = tuple(SampleFile(file.parent / path, path) for _, path, _ in rows)
    labels = [(line, label) for line, _, label in rows if label is not None]
    if not labels:
        return SampleSet(file.stem, tuple(class_names or ()), samples, None)
    if class_names is not None:
        return SampleSet(file.stem, tuple(class_names), samples, _numbers(file, labels, class_names))
    if all(whole_number(label) is not None for _, label in labels):
        raise InvalidParameter(f"{file}: the labels are numbers; give their class names")
    names = sorted({label for _, label in labels})
    number = {name: number for number, name in enumerate(names)}
    return SampleSet(file.stem, tuple(names), samples, np.array([number[label] for _, label in labels], np.int64))


def _rows(file: Path) -> Rows:
    reader = csv.reader(io.StringIO(read_text(file, "CSV", _LARGEST), newline=""), strict=True)
    rows: Rows = []
    try:
        header = [cell.strip().lower() for cell in next(reader, [])]
        if "path" not in header:
            raise UnreadableFile(
                f"{file}: the first line must be the header 'path,label' or 'path', found {','.join(header)[:60]!r}"
            )
        for cells in reader:
            if any(cell.strip() for cell in cells):
                if len(rows) == _MOST_ROWS:
                    raise UnreadableFile(f"{file} lists more than {_MOST_ROWS:,} samples; give a part of it")
                rows.append(_row(file, reader.line_num, dict(zip(header, cells, strict=False)), "label" in header))
    except csv.Error as error:
        raise UnreadableFile(f"{file}: line {reader.line_num} is not CSV: {error}") from None
    if not rows:
        raise UnreadableFile(f"{file} lists no samples")
    return rows


def _row(file: Path, line: int, cells: dict[str, str], labelled: bool) -> tuple[int, str, str | None]:
    path, label = (from_csv_cell(cells.get(name, "").strip()) for name in ("path", "label"))
    if not path or (labelled and not label):
        raise UnreadableFile(f"{file}: line {line} has no {'label' if path else 'path'}")
    if "\0" in path or not (path.startswith("/") or is_inside(path)):
        raise UnreadableFile(f"{file}: line {line} points to {path!r}, which leaves the folder of the CSV")
    return line, path, label if labelled else None


def _numbers(file: Path, labels: Sequence[tuple[int, str]], names: Sequence[str]) -> NDArray[np.int64]:
    index = ClassIndex(names)
    numbers = []
    for line, label in labels:
        number = None if label in index else whole_number(label)
        if number is None:
            number = index.label(label, f"{file}, line {line}: the label")
        if number >= len(names):
            raise InvalidParameter(f"{file}, line {line}: label {label} does not exist; classes are 0…{len(names) - 1}")
        numbers.append(number)
    return np.array(numbers, np.int64)

"""A CSV file that lists samples: a header `path,label` or `path`, then one row per sample.

A text that begins like a formula may have `'` in front of it, as in the files that `pta predict` writes.
"""

import io
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from pta.core.modality import Modality
from pta.data.sample_set import Listed, SampleFile, SampleSet
from pta.data.sources.addresses import is_remote, read_listed, resolve
from pta.data.sources.class_index import number_labels
from pta.door.csv_rows import csv_rows
from pta.errors import InvalidParameter, UnreadableFile

_LARGEST = 2**30
_MOST_ROWS = 2**24  # each takes half a kilobyte


def open_csv(file: str, class_names: Sequence[str] | None, modality: Modality) -> SampleSet:
    """Samples in the order of the rows. Labels are class names, or numbers where `class_names` say what they mean.

    Relative paths start at the file's folder and may not leave it. Whether the files exist shows when they are read.
    """
    name, samples, labels = Path(file).stem, list[SampleFile](), list[str]()
    where: dict[str, str] = {}  # each label is first
    for row in list_csv(file, modality):
        if row.label == "":
            raise UnreadableFile(f"{file}: line {row.line} has no label")
        samples.append(_file(file, row))
        if row.label is not None:
            labels.append(row.label)
            where.setdefault(row.label, f"{file}, line {row.line}: ")
    if not labels:
        return SampleSet(name, tuple(class_names or ()), tuple(samples), None, modality=modality)
    names, number = number_labels(where, class_names, file)
    numbers = np.array([number[label] for label in labels], np.int64)
    return SampleSet(name, names, tuple(samples), numbers, modality=modality)


def listed_files(file: str, modality: Modality) -> list[SampleFile]:
    """The samples in the order of the rows, whatever their labels."""
    return [_file(file, row) for row in list_csv(file, modality)]


def _file(file: str, row: Listed) -> SampleFile:
    if is_remote(row.place):
        raise UnreadableFile(f"{file}: line {row.line} is an address, {row.key!r}; only --cluster reads those")
    return SampleFile(Path(row.place), row.key)


def list_csv(address: str, modality: Modality, by: str | None = None) -> Iterator[Listed]:
    """The rows that are not blank; a label that is left out is empty, where the header has labels."""
    count = 0
    lines = io.StringIO(read_listed(address, "CSV", _LARGEST), newline="")
    for count, (line, row) in enumerate(csv_rows(lines, address, "path"), 1):
        if by is not None and by.lower() not in row:
            raise InvalidParameter(f"--by {by}: {address} has the columns {', '.join(row)}")
        if count > _MOST_ROWS:
            raise UnreadableFile(f"{address} lists more than {_MOST_ROWS:,} samples; give a part of it")
        yield Listed(
            key=row["path"],
            place=resolve(address, row["path"], line),
            label=row.get("label"),
            stream=None if by is None else row[by.lower()] or None,
            number=row.get("number"),
            line=line,
        )
    if not count:
        raise UnreadableFile(f"{address} lists no samples")

"""Answers as rows: JSON lines or CSV. A file name that is not UTF-8 is written with escapes: `caf\\xe9.jpg`."""

import csv
import json
from typing import Any, TextIO

from pta.inference.answers import Answer
from pta.safe_text import csv_cell, to_json

_COLUMNS = ("path", "label", "probability", "zero_shot_label", "zero_shot_probability", "entropy")


def columns(top: int) -> list[str]:
    """The columns of a CSV file with so many answers per sample.

    >>> columns(2)[-3:]
    ['entropy', 'label_2', 'probability_2']
    """
    return [*_COLUMNS, *(name for rank in range(2, top + 1) for name in (f"label_{rank}", f"probability_{rank}"))]


def path_as_written(key: str, suffix: str) -> str:
    """What is read back from the `path` of a row in a `.csv` or `.jsonl` file, given the key of its sample.

    >>> path_as_written("-1.jpg", ".csv"), path_as_written("-1.jpg", ".jsonl")
    ("'-1.jpg", '-1.jpg')
    """
    return str(csv_cell(key) if suffix == ".csv" else json.loads(to_json(key)))


class JsonLines:
    """One JSON object per line; with several answers per sample, they are in `top`."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, path: str, answer: Answer) -> None:
        """Write the answer for one sample."""
        row: dict[str, Any] = dict(zip(_COLUMNS, _values(path, answer), strict=True))
        if len(answer.top) > 1:
            row["top"] = [{"label": label, "probability": round(value, 6)} for label, value in answer.top]
        self._file.write(to_json(row) + "\n")


class CsvRows:
    """Comma-separated values; with several answers per sample, the second is in `label_2` and `probability_2`."""

    def __init__(self, file: TextIO, top: int, *, header: bool = True) -> None:
        self._writer = csv.writer(file, lineterminator="\n")
        if header:
            self._writer.writerow(columns(top))

    def write(self, path: str, answer: Answer) -> None:
        """Write the answer for one sample."""
        more = [field for label, value in answer.top[1:] for field in (label, round(value, 6))]
        self._writer.writerow(map(csv_cell, [*_values(path, answer), *more]))


def _values(path: str, answer: Answer) -> tuple[Any, ...]:
    adapted = (answer.label, round(answer.probability, 6))
    zero_shot = (answer.zero_shot_label, round(answer.zero_shot_probability, 6))
    return (path, *adapted, *zero_shot, round(answer.entropy, 6))

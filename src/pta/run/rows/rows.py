"""Answers as rows: JSON lines or CSV. A file name that is not UTF-8 is written with escapes: `caf\\xe9.jpg`.

A batch is formatted column by column, because a Python call for each cell would take longer than a GPU needs for the
answer.
"""

import csv
import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, TextIO

from pta.door.safe_text import csv_cell, to_json
from pta.run.answers import Answers

_COLUMNS = ("path", "label", "probability", "zero_shot_label", "zero_shot_probability", "entropy")
_JSON_ROW = "{" + ", ".join(f'"{name}": %s' for name in _COLUMNS) + "%s}\n"
_JSON_ANSWER = '{"label": %s, "probability": %s}'
_NAMES_KEPT = 2**16

_name_to_json = lru_cache(_NAMES_KEPT)(to_json)
_name_to_cell = lru_cache(_NAMES_KEPT)(csv_cell)


def columns(top: int, *, rejects: bool = False) -> list[str]:
    """The columns of a CSV file with `top` answers per sample, some of which may be rejected.

    >>> columns(2)[-3:]
    ['entropy', 'label_2', 'probability_2']
    """
    ranks = (name for rank in range(2, top + 1) for name in (f"label_{rank}", f"probability_{rank}"))
    return [*_COLUMNS, *ranks, *(["rejected"] if rejects else [])]


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

    def write(self, paths: Sequence[str], answers: Answers) -> None:
        """Write the answers for samples."""
        if not paths:
            return
        labels = [list(map(_name_to_json, names)) for names in answers.labels]
        values = [_json_numbers(column) for column in answers.probabilities]
        zero_shot = (map(_name_to_json, answers.zero_shot_labels), _json_numbers(answers.zero_shot_probabilities))
        more: Iterable[str] = [""] * len(paths)
        if len(labels) > 1:
            ranks = [map(_JSON_ANSWER.__mod__, zip(*rank, strict=True)) for rank in zip(labels, values, strict=True)]
            more = (f', "top": [{", ".join(ranked)}]' for ranked in zip(*ranks, strict=True))
        if answers.rejected is not None:
            more = map('{}, "rejected": {}'.format, more, map(to_json, answers.rejected))
        first = (map(to_json, paths), labels[0], values[0], *zero_shot, _json_numbers(answers.entropies))
        self._file.write("".join(map(_JSON_ROW.__mod__, zip(*first, more, strict=True))))


class CsvRows:
    """Comma-separated values; with several answers per sample, the second is in `label_2` and `probability_2`."""

    def __init__(self, file: TextIO, top: int, *, rejects: bool = False, header: bool = True) -> None:
        self._writer = csv.writer(file, lineterminator="\n")
        if header:
            self._writer.writerow(columns(top, rejects=rejects))

    def write(self, paths: Sequence[str], answers: Answers) -> None:
        """Write the answers for samples."""
        ranks: list[Iterable[Any]] = []
        for names, values in zip(answers.labels, answers.probabilities, strict=True):
            ranks += [map(_name_to_cell, names), _rounded(values)]
        zero_shot = (map(_name_to_cell, answers.zero_shot_labels), _rounded(answers.zero_shot_probabilities))
        rejected = [] if answers.rejected is None else [map(to_json, answers.rejected)]
        cells = (map(csv_cell, paths), *ranks[:2], *zero_shot, _rounded(answers.entropies), *ranks[2:], *rejected)
        self._writer.writerows(zip(*cells, strict=True))


def _rounded(values: Iterable[float]) -> list[float]:
    return [round(value, 6) for value in values]


def _json_numbers(values: Iterable[float]) -> list[str]:
    return json.dumps(_rounded(values))[1:-1].split(", ")

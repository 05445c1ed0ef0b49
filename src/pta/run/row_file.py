"""Rows of answers, as JSON lines or CSV, and a file of them that can be truncated to where a state was saved.

A file name that is not UTF-8 is written with escapes: `caf\\xe9.jpg`. A batch is formatted column by column, because a
Python call for each cell would take longer than a GPU needs for the answer.
"""

import csv
import hashlib
import io
import json
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from pta.door.safe_text import csv_cell, to_json
from pta.errors import explaining, family, reason
from pta.run.classifier import AnswerBatch

REASON = "reason"
"""The last column of a CSV file with rows that have no answer; it says why."""

_USUAL = ("path", "label", "probability", "zero_shot_label", "zero_shot_probability", "entropy")
_JSON_ROW = "{" + ", ".join(f'"{name}": %s' for name in _USUAL) + "%s}\n"
_JSON_ANSWER = '{"label": %s, "probability": %s}'
_NAMES_KEPT = 2**16
_LONGEST_HEADER = 2**16

_name_to_json = lru_cache(_NAMES_KEPT)(to_json)
_name_to_cell = lru_cache(_NAMES_KEPT)(csv_cell)


def columns(top: int, more: Sequence[str] = ()) -> list[str]:
    """The columns of a CSV file with `top` answers per sample, and with more columns (`classifier.MORE`).

    >>> columns(2)[-3:]
    ['entropy', 'label_2', 'probability_2']
    """
    ranks = (name for rank in range(2, top + 1) for name in (f"label_{rank}", f"probability_{rank}"))
    return [*_USUAL, *ranks, *more]


def path_as_written(key: str, suffix: str) -> str:
    """What is read back from the `path` of a row in a `.csv` or `.jsonl` file, given the key of its sample.

    >>> path_as_written("-1.jpg", ".csv"), path_as_written("-1.jpg", ".jsonl")
    ("'-1.jpg", '-1.jpg')
    """
    return str(csv_cell(key) if suffix == ".csv" else json.loads(to_json(key)))


class JsonLines:
    """One JSON object per line; with several answers per sample, they are in `top`."""

    def __init__(self, file: TextIO, more: Sequence[str] = ()) -> None:
        self._file, self._nothing = file, dict.fromkeys((*_USUAL, *more))

    def write(self, paths: Sequence[str], answers: AnswerBatch) -> None:
        """Write the answers for samples, and the rows of samples without one."""
        rows = self._answered(paths, answers) if paths else []
        for place, (path, why) in answers.given_up.items():
            rows.insert(place, f"{to_json(self._nothing | {'path': path, REASON: why})}\n")
        self._file.write("".join(rows))

    def _answered(self, paths: Sequence[str], answers: AnswerBatch) -> list[str]:
        held = answers.columns
        labels = [list(map(_name_to_json, names)) for names in held.labels]
        values = [_json_numbers(column) for column in held.probabilities]
        zero_shot = (map(_name_to_json, held.zero_shot_labels), _json_numbers(held.zero_shot_probabilities))
        more: Iterable[str] = [""] * len(paths)
        if len(labels) > 1:
            ranks = [map(_JSON_ANSWER.__mod__, zip(*rank, strict=True)) for rank in zip(labels, values, strict=True)]
            more = (f', "top": [{", ".join(ranked)}]' for ranked in zip(*ranks, strict=True))
        for name, cells in held.more.items():
            more = map((f'{{}}, "{name}": {{}}').format, more, map(_value_to_json, cells))
        first = (map(to_json, paths), labels[0], values[0], *zero_shot, _json_numbers(held.entropies))
        return list(map(_JSON_ROW.__mod__, zip(*first, more, strict=True)))


class CsvRows:
    """Comma-separated values; with several answers per sample, the second is in `label_2` and `probability_2`."""

    def __init__(self, file: TextIO, top: int, more: Sequence[str] = (), *, header: bool = True) -> None:
        self._writer = csv.writer(file, lineterminator="\n")
        self._columns = columns(top, more)
        if header:
            self._writer.writerow(self._columns)

    def write(self, paths: Sequence[str], answers: AnswerBatch) -> None:
        """Write the answers for samples, and the rows of samples without one."""
        held = answers.columns
        ranks: list[Iterable[Any]] = []
        for names, values in zip(held.labels, held.probabilities, strict=True):
            ranks += [map(_name_to_cell, names), _rounded(values)]
        zero_shot = (map(_name_to_cell, held.zero_shot_labels), _rounded(held.zero_shot_probabilities))
        more = [map(_flag_or_name, cells) for cells in held.more.values()]
        cells = (map(csv_cell, paths), *ranks[:2], *zero_shot, _rounded(held.entropies), *ranks[2:], *more)
        blank = [[""] * len(paths)] * (REASON in self._columns)
        rows = list(zip(*cells, *blank, strict=True))
        for place, (path, why) in answers.given_up.items():
            given = {"path": csv_cell(path), REASON: csv_cell(why)}
            rows.insert(place, tuple(given.get(column) for column in self._columns))
        self._writer.writerows(rows)


def _value_to_json(cell: bool | float | str | None) -> str:
    return _name_to_json(cell) if isinstance(cell, str) else to_json(cell)  # a cache takes 1.0 for True


def _flag_or_name(cell: bool | float | str | None) -> str:
    return "" if cell is None else _name_to_cell(cell) if isinstance(cell, str) else to_json(cell)


def _rounded(values: Iterable[float]) -> list[float]:
    return [round(value, 6) for value in values]


def _json_numbers(values: Iterable[float]) -> list[str]:
    return json.dumps(_rounded(values))[1:-1].split(", ")


_TAIL = 4096  # bytes before a mark that are compared


@dataclass(frozen=True)
class RowMark:
    """A place in a file of rows."""

    file: str  # its name, without the folder
    bytes: int  # before the place
    tail: str  # sha256 of the last of them, by which the file is known again
    unwritten: str = ""  # rows that belong after the place and could not be written

    def __post_init__(self) -> None:
        texts = all(isinstance(text, str) for text in (self.file, self.tail, self.unwritten))
        if not texts or not isinstance(self.bytes, int) or self.bytes < 0:
            raise TypeError("not a place in a file")

    def is_in(self, path: Path) -> bool:
        """Whether a file is the one that the mark was made in, however much was added since."""
        if not self.bytes:  # nothing that it could be known by but its name
            return path.name == self.file
        if not path.is_file() or path.stat().st_size < self.bytes:
            return False
        with path.open("rb") as file:
            return _tail(file, self.bytes) == self.tail

    def keys_after(self, path: Path) -> list[str | None]:
        """The first column of each row after the mark; None for a row that is not whole."""
        if not path.is_file():
            return []
        with path.open("rb") as file:
            file.seek(self.bytes)
            keys = [_key(line, path.suffix) for line in file]
        return keys[1:] if path.suffix == ".csv" and not self.bytes else keys  # without the header

    def keys_unwritten(self) -> list[str | None]:
        """The same for the rows that could not be written."""
        return [_key(line, Path(self.file).suffix) for line in _encoded(self.unwritten).splitlines(keepends=True)]


class RowFile:
    """A `.csv` or `.jsonl` file, open to be added to.

    A batch is in it whole or, if it cannot be written, not at all. With `after`, what comes after that mark is cut off.
    """

    def __init__(self, path: Path, top: int, after: RowMark | None = None, more: Sequence[str] = ()) -> None:
        self._name, self._unwritten = path.name, ""
        self._pending = io.StringIO()
        with explaining(f"cannot write {path}"):
            self._file = path.open("a+b", buffering=0)
            self._size = self._file.seek(0, os.SEEK_END)
            if after is not None:
                self._cut(after.bytes)
                self._append(after.unwritten)
            if self._size and _last(self._file, 1, self._size) != b"\n":
                self._append("\n")  # a kill cut the last row off
        is_csv, is_new = path.suffix == ".csv", not self._size
        if is_csv and not is_new:  # it may have been begun before anything was given up, or after
            has_reason = _header(self._file).endswith(f",{REASON}")
            more = [*(name for name in more if name != REASON), *[REASON] * has_reason]
        self._rows = CsvRows(self._pending, top, more, header=is_new) if is_csv else JsonLines(self._pending, more)

    def write(self, paths: Sequence[str], answers: AnswerBatch) -> None:
        """Append the rows of a batch; after a failed write they are kept in memory, to be written later in order."""
        self._rows.write(paths, answers)
        if self._unwritten:
            self._unwritten += self._take_pending()
        else:
            self.finish()

    def finish(self) -> None:
        """Write at least the header."""
        text = self._take_pending()
        try:
            self._append(text)
        except OSError as error:
            self._unwritten += text
            with suppress(OSError):
                self._cut(self._size)
            raise family(error)(f"rows cannot be written: {reason(error)}") from None

    def mark(self) -> RowMark:
        """Where the rows end now, after they have reached the disk."""
        with explaining("rows cannot be written"):
            os.fsync(self._file.fileno())
            return RowMark(self._name, self._size, _tail(self._file, self._size), self._unwritten)

    def close(self) -> None:
        """Close the file; what was written is in it."""
        self._file.close()

    def _take_pending(self) -> str:
        text = self._pending.getvalue()
        self._pending.seek(0)
        self._pending.truncate()
        return text

    def _append(self, text: str) -> None:
        rest = memoryview(_encoded(text))
        while rest:
            rest = rest[self._file.write(rest) :]
        self._size = self._file.seek(0, os.SEEK_END)

    def _cut(self, size: int) -> None:
        self._file.truncate(size)
        self._size = size


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _header(file: BinaryIO) -> str:
    file.seek(0)
    return file.readline(_LONGEST_HEADER).decode("utf-8", "surrogateescape").rstrip("\r\n")


def _tail(file: BinaryIO, end: int) -> str:
    return hashlib.sha256(_last(file, _TAIL, end)).hexdigest()


def _last(file: BinaryIO, count: int, end: int) -> bytes:
    """The last bytes before a place in a file."""
    start = max(0, end - count)
    file.seek(start)
    return file.read(end - start)


def _key(line: bytes, suffix: str) -> str | None:
    if not line.endswith(b"\n"):
        return None
    text = line.decode("utf-8", "surrogateescape")
    try:
        return next(csv.reader([text]))[0] if suffix == ".csv" else json.loads(text)["path"]
    except (ValueError, csv.Error, LookupError, TypeError, StopIteration):
        return None

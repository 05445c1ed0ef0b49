"""Changes as rows of a file: each once, also if the process is killed and finds some of them again."""

import csv
import errno
import io
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pta.door.safe_text import csv_cell, from_csv_cell, to_json
from pta.errors import UnreadableFile, explaining
from pta.run.watch.change import COLUMNS, AnswerChange, RegionName

_LONGEST_ROW = 2**16


@dataclass(frozen=True)
class RowPlace:
    """A place in a file of changes; a state covers those before it."""

    file: str  # its name, without the folder
    bytes: int

    def __post_init__(self) -> None:
        if not isinstance(self.file, str) or not isinstance(self.bytes, int) or self.bytes < 0:
            raise TypeError("not a place in a file")


class ChangeRows:
    """A `.csv` or `.jsonl` file that changes are added to.

    `places` is where the file ended when the state of each region was saved. What stands after that was written before
    a kill. A change of such a number is not written again.
    """

    def __init__(self, path: Path, places: Mapping[RegionName, RowPlace]) -> None:
        self._name, self._is_csv = path.name, path.suffix == ".csv"
        with explaining(f"cannot write {path}"):
            self._file = path.open("a+b", buffering=0)
            self._require_own(path)
            self._cut_half_a_row()
            if self._is_csv and not self._end:
                self._append(",".join(COLUMNS) + "\n")
            numbers = dict(self._after(places))
        self.covered: tuple[RowPlace, Mapping[RegionName, int]] = RowPlace(self._name, self._end), numbers
        """The end of the file, and the number of the last change of each region before it, if it was written here or
        after the region's place. It is replaced as one, because other threads read it."""

    def deliver(self, change: AnswerChange) -> None:
        """Add the row of a change, and flush it to the disk."""
        place, numbers = self.covered
        if change.number > numbers.get(change.place, 0):
            with explaining("a row cannot be written"):
                self._append(formatted(change, is_csv=self._is_csv))
            self.covered = RowPlace(place.file, self._end), {**numbers, change.place: change.number}

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @property
    def _end(self) -> int:
        return self._file.seek(0, os.SEEK_END)

    def _append(self, text: str) -> None:
        content, end = text.encode("utf-8", "surrogateescape"), self._end
        try:
            if self._file.write(content) < len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file.fileno())
        except OSError:
            with suppress(OSError):
                self._file.truncate(end)
            raise

    def _require_own(self, path: Path) -> None:
        """Refuse a file that does not begin as one of changes."""
        own = ",".join(COLUMNS) if self._is_csv else f'{{"{COLUMNS[0]}": '
        self._file.seek(0)
        if not own.encode().startswith(self._file.read(len(own))):
            self._file.close()
            raise UnreadableFile(f"{path} has other rows than changes; choose another --out")

    def _cut_half_a_row(self) -> None:
        end = self._end
        start = self._file.seek(max(0, end - _LONGEST_ROW))
        if last := self._file.read(end - start):
            self._file.truncate(start + last.rfind(b"\n") + 1)

    def _after(self, places: Mapping[RegionName, RowPlace]) -> Iterator[tuple[RegionName, int]]:
        """The changes that stand after the places of their regions.

        A file that is shorter than a place was begun anew, as by logrotate: all its rows came after the state.
        """
        end = self._end
        starts = {name: one.bytes if one.bytes <= end else 0 for name, one in places.items() if one.file == self._name}
        at = self._file.seek(min(starts.values(), default=end))
        for line in self._file.read(end - at).splitlines(keepends=True):
            with suppress(ValueError, LookupError, TypeError, csv.Error):  # a row that something else has written
                name, number = _name_and_number(line.decode("utf-8", "surrogateescape"), is_csv=self._is_csv)
                if at >= starts.get(name, end):
                    yield name, number
            at += len(line)


def formatted(change: AnswerChange, *, is_csv: bool) -> str:
    """The row of a change.

    >>> formatted(AnswerChange("12.500", "yard", "gate", "open", 0.75, None, 1), is_csv=True)
    '12.500,yard,gate,open,0.75,,1,\\n'
    """
    if not is_csv:
        return f"{to_json(change.as_dict())}\n"
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(map(csv_cell, change.as_dict().values()))
    return text.getvalue()


def _name_and_number(line: str, *, is_csv: bool) -> tuple[RegionName, int]:
    if is_csv:
        row = dict(zip(COLUMNS, next(csv.reader([line])), strict=True))
        return RegionName(from_csv_cell(row["camera"]), from_csv_cell(row["region"])), int(row["number"])
    found = json.loads(line)
    return RegionName(found["camera"], found["region"]), int(found["number"])

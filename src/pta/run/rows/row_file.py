"""RowFile: a file of rows, appended in batches, that can be truncated to where a state was saved."""

import csv
import hashlib
import io
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from pta.errors import explaining, family, reason
from pta.run.answers import Answers
from pta.run.rows.rows import CsvRows, JsonLines

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

    def __init__(self, path: Path, top: int, after: RowMark | None = None, *, rejects: bool = False) -> None:
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
        is_csv, how = path.suffix == ".csv", {"rejects": rejects, "header": not self._size}
        self._rows = CsvRows(self._pending, top, **how) if is_csv else JsonLines(self._pending)

    def write(self, paths: Sequence[str], answers: Answers) -> None:
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

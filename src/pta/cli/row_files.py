"""Where rows go that are written one after the other: a new file, one that is added to, or standard output."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from pta.cli.output import STDOUT
from pta.errors import InvalidParameter, UnreadableFile, reason
from pta.files import require_writable
from pta.inference.predict import Predicted
from pta.inference.rows import CsvRows, JsonLines, Rows, columns


def require_row_file(out: Path, append: bool, csv: bool, top: int) -> None:
    """Refuse a place that rows cannot be written to, before any work is done for them."""
    if str(out) == STDOUT:
        if append or sys.stdout is None:
            raise InvalidParameter("--append adds to a file; say which with --out" if append else "there is no stdout")
        return
    if csv:
        raise InvalidParameter("--csv is for standard output; the format of a file follows from its name")
    if out.suffix not in (".jsonl", ".csv"):
        raise UnreadableFile(f"--out {out}: rows go to a file that ends in .jsonl or .csv")
    require_writable(out)
    if out.exists():
        if not append:
            raise UnreadableFile(f"{out} exists; --append adds to it, or choose another --out")
        if not os.access(out, os.W_OK):
            raise UnreadableFile(f"cannot write {out}: permission denied")
        _require_same_rows(out, top)


def _require_same_rows(out: Path, top: int) -> None:
    with out.open(encoding="utf-8", errors="surrogateescape") as file:
        first = file.readline().rstrip("\r\n")
    if out.suffix == ".csv" and first not in ("", ",".join(columns(top))):
        raise UnreadableFile(f"{out} has other columns ({first[:200]}); use the same --top, or choose another --out")
    if out.suffix == ".jsonl" and first and not first.startswith("{"):
        raise UnreadableFile(f"{out} does not hold JSON lines; choose another --out")


@contextmanager
def open_row_file(out: Path, csv: bool, top: int) -> Iterator[tuple[Rows, TextIO]]:
    """Something to write rows to; names of files in them may hold bytes that are not text."""
    if str(out) == STDOUT:
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]
        yield (CsvRows(sys.stdout, top) if csv else JsonLines(sys.stdout)), sys.stdout
        return
    ending = _last_byte(out)
    with out.open("a", encoding="utf-8", errors="surrogateescape", newline="") as file:
        if ending not in (b"", b"\n"):  # a kill cut the last row off
            file.write("\n")
        yield (CsvRows(file, top, header=not ending) if out.suffix == ".csv" else JsonLines(file)), file


def write_batches(batches: Iterable[Predicted], rows: Rows, file: TextIO) -> Iterator[Predicted]:
    """The batches, each after its rows are written; they end early where nobody reads them any more."""
    for part in batches:
        try:
            for path, answer in part.answers:
                rows.write(path, answer)
            file.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return
        except OSError as error:
            raise UnreadableFile(f"rows cannot be written: {reason(error)}") from None
        yield part


def _last_byte(path: Path) -> bytes:
    if not path.exists() or not path.stat().st_size:
        return b""
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read()

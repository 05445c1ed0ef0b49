"""The output of `pta predict`: a new file of rows, a file to append to, or standard output."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pta.cli.messages import writing_stdout
from pta.cli.output import STDOUT
from pta.errors import InvalidParameter, UnreadableFile
from pta.run.answers import Answers
from pta.run.rows.row_file import RowFile, RowMark
from pta.run.rows.row_thread import RowSink, RowThread
from pta.run.rows.rows import CsvRows, JsonLines, columns

_REJECTS = ('"rejected": true}', '"rejected": false}')  # how a row ends


def require_row_file(out: Path, append: bool, replace: bool, csv: bool, top: int, *, rejects: bool = False) -> None:
    """Refuse an output that rows cannot be written to, before any work."""
    if str(out) == STDOUT:
        if append or sys.stdout is None:
            raise InvalidParameter("--append adds to a file; name it with --out" if append else "there is no stdout")
        return
    if csv:
        raise InvalidParameter("--csv is for standard output; the suffix of --out decides the format of a file")
    if out.suffix not in (".jsonl", ".csv"):
        raise UnreadableFile(f"--out {out}: the file must end in .jsonl or .csv")
    if append and replace:
        raise InvalidParameter("--append keeps the rows of a file, and --replace does not; leave one of them out")
    if out.is_file():
        if not append and not replace:
            raise UnreadableFile(f"{out} exists; --append adds to it, --replace overwrites it, or choose another --out")
        if not os.access(out, os.R_OK | os.W_OK):
            raise UnreadableFile(f"cannot write {out}: permission denied")
        if append:
            _require_same_rows(out, top, rejects)


def _require_same_rows(out: Path, top: int, rejects: bool) -> None:
    with out.open(encoding="utf-8", errors="surrogateescape") as file:
        first = file.readline().rstrip("\r\n")
    if out.suffix == ".csv" and first not in ("", ",".join(columns(top, rejects=rejects))):
        same = "use the same --top and --reject-below as before"
        raise UnreadableFile(f"{out} has other columns ({first[:200]}); {same}, or choose another --out")
    if out.suffix == ".jsonl" and first and not first.startswith("{"):
        raise UnreadableFile(f"{out} does not hold JSON lines; choose another --out")
    if out.suffix == ".jsonl" and first.endswith("}") and first.endswith(_REJECTS) != rejects:
        raise UnreadableFile(
            f"{out} was written with{'out' * rejects} --reject-below; do the same, or choose another --out"
        )


@contextmanager
def open_rows(
    out: Path, csv: bool, top: int, after: RowMark | None = None, *, rejects: bool = False
) -> Iterator[RowSink]:
    """A sink for rows; a file is first cut off after the mark."""
    if str(out) == STDOUT:
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]
        yield _StandardOutput(CsvRows(sys.stdout, top, rejects=rejects) if csv else JsonLines(sys.stdout))
        return
    file = RowFile(out, top, after, rejects=rejects)
    thread = RowThread(file)
    try:
        yield thread
    finally:
        thread.close()
        file.close()


class _StandardOutput:
    """Rows on standard output, which cannot be resumed."""

    def __init__(self, rows: CsvRows | JsonLines) -> None:
        self._rows = rows

    def write(self, paths: Sequence[str], answers: Answers) -> None:
        with writing_stdout():
            self._rows.write(paths, answers)

    def finish(self) -> None:
        with writing_stdout():
            pass

    def mark(self) -> None:
        return None

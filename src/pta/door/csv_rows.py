"""The rows of a CSV file that has a header."""

import csv
import io
from collections.abc import Iterable, Iterator
from pathlib import Path

from pta.door.files import read_text
from pta.door.safe_text import from_csv_cell
from pta.errors import UnreadableFile


def read_csv(file: Path, kind: str, *needed: str) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of a file of moderate size."""
    return csv_rows(io.StringIO(read_text(file, kind), newline=""), str(file), *needed)


def csv_rows(lines: Iterable[str], name: str, *needed: str) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows that are not blank, each with its line number; cells go by names in lower case, missing ones are empty.

    A text that begins like a formula may have `'` in front of it. The header must have the needed columns, of which
    `path|id` is either.
    """
    reader = csv.reader(lines, strict=True)
    try:
        header = [cell.strip().lower() for cell in next(reader, [])]
        if not all(set(one.split("|")) & set(header) for one in needed):
            wanted = " and ".join(needed).replace("|", " or ")
            raise UnreadableFile(f"{name}: the first line must name {wanted}, found {','.join(header)[:60]!r}")
        if twice := [one for one in header if one and header.count(one) > 1]:
            raise UnreadableFile(f"{name}: the first line names {twice[0]} twice")
        for cells in reader:
            if any(given := [from_csv_cell(cell.strip()) for cell in cells]):
                yield reader.line_num, dict.fromkeys(header, "") | dict(zip(header, given, strict=False))
    except csv.Error as error:
        raise UnreadableFile(f"{name}: line {reader.line_num} is not CSV: {error}") from None

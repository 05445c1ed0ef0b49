"""A CSV file of the ids that requests had, perhaps with the paths of their samples: `id`, `place` and `path`."""

import csv
import io
from pathlib import Path
from typing import NamedTuple

from pta.door.files import read_text
from pta.door.safe_text import from_csv_cell
from pta.errors import UnreadableFile

_LARGEST = 2**28  # bytes


class IdRow(NamedTuple):
    """A sample of a request."""

    id: str
    place: int = 0  # in its request
    path: str | None = None


def read_id_file(file: Path) -> list[IdRow]:
    """The rows that have an id."""
    reader = csv.reader(io.StringIO(read_text(file, "CSV of ids", _LARGEST), newline=""), strict=True)
    rows = []
    try:
        header = [cell.strip().lower() for cell in next(reader, [])]
        if "id" not in header:
            raise UnreadableFile(f"{file}: the first line must name the column id, found {','.join(header)[:60]!r}")
        for cells in reader:
            given = dict(zip(header, (from_csv_cell(cell.strip()) for cell in cells), strict=False))
            place = given.get("place") or "0"
            if not (place.isascii() and place.isdecimal() and len(place) < 19):
                raise UnreadableFile(f"{file}: line {reader.line_num} has the place {place!r}, not a whole number")
            if given.get("id"):
                rows.append(IdRow(given["id"], int(place), given.get("path") or None))
    except csv.Error as error:
        raise UnreadableFile(f"{file}: line {reader.line_num} is not CSV: {error}") from None
    return rows

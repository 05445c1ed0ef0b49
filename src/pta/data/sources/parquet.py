"""Parquet files that list samples by their paths, or hold them. They are read by pyarrow, and only for a cluster."""

import posixpath
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pta.core.limits import USUAL_LIMITS
from pta.data.sources.addresses import open_binary, open_whole, resolve
from pta.door.files import require_short, understanding
from pta.errors import InvalidParameter, UnreadableFile, UnreadableSample, UnreadSample, first_line

COLUMNS = pa.schema(
    [
        ("number", pa.int64()),  # null in every row where the source gives none
        ("key", pa.string()),
        ("place", pa.string()),  # the file that holds the sample
        ("offset", pa.int64()),  # of a member of a tar archive, with its size
        ("size", pa.int64()),
        ("row", pa.int64()),  # of a parquet file that holds the samples themselves
        ("label", pa.string()),  # as the source has it
        ("stream", pa.string()),  # whose stream the sample belongs to, with --by
        ("stamp", pa.string()),  # what changes when the sample does, if that is known
    ]
)
"""Of a table of samples that are listed and not read; rows are in the order of the source."""

_PATH = pa.field("path", pa.string())
_IMAGES = ("image", "jpg", "png", "bytes")  # columns that hold encoded samples


def list_parquet(address: str, by: str | None, stamp: str | None) -> pa.Table:
    """The samples of a file; `stamp` is of the file."""
    with understanding(address, "parquet file"), open_binary(address) as opened:
        file = pq.ParquetFile(opened)
        names = file.schema_arrow.names
        if "path" not in names and not any(name in names for name in _IMAGES):
            raise UnreadableFile(f"{address} has no column path, nor one of {', '.join(_IMAGES)} that holds the files")
        if by is not None and by not in names:
            raise InvalidParameter(f"--by {by}: {address} has the columns {', '.join(names)}")
        wanted = [name for name in ("number", "key", "path", "label", by) if name in names]
        table, rows = file.read(columns=wanted), file.metadata.num_rows
        given = {name: table[name] for name in wanted}  # a name that is there twice is refused
    columns: dict[str, Any] = {"number": given.get("number"), "label": given.get("label"), "stream": given.get(by)}
    if "path" in given:
        paths = _as(_PATH, given["path"], rows, address).to_pylist()
        columns["place"] = [resolve(address, path or "", line) for line, path in enumerate(paths)]
    else:
        columns |= {"place": [address] * rows, "row": range(rows), "stamp": [stamp] * rows}
    name = posixpath.basename(address)
    columns["key"] = given.get("key", given.get("path", [f"{name}/{row}" for row in range(rows)]))
    return pa.table({one.name: _as(one, columns.get(one.name), rows, address) for one in COLUMNS}, COLUMNS)


def _as(column: pa.Field, values: Any, rows: int, address: str) -> Any:
    try:
        if values is None:
            return pa.nulls(rows, column.type)
        return values.cast(column.type) if isinstance(values, pa.ChunkedArray) else pa.array(values, column.type)
    except pa.ArrowException as error:
        raise UnreadableFile(f"{address}: the column {column.name} must be {column.type}: {error}") from None


class ParquetCell(NamedTuple):
    """A sample that a parquet file holds, as bytes or as a struct with `bytes`."""

    place: str
    key: str
    row: int

    def read(self, most: int = USUAL_LIMITS.max_bytes) -> bytes:
        """The content, still encoded."""
        try:
            starts = _row_groups(self.place)
            group = int(np.searchsorted(starts, self.row, side="right")) - 1
            cell = _cells(self.place, group)[self.row - int(starts[group])].as_py()
            content = cell.get("bytes") if isinstance(cell, dict) else cell
        except UnreadSample:
            raise
        except Exception as error:  # whatever pyarrow raises on damaged bytes, which came whole
            raise UnreadableSample(f"{self.key} cannot be read: {first_line(error)}") from error
        if not isinstance(content, bytes):
            raise UnreadableSample(f"{self.key} does not hold bytes")
        require_short(self.key, len(content), most)
        return content


@lru_cache(16)
def _row_groups(place: str) -> NDArray[np.int64]:
    with open_whole(place) as file:
        metadata = pq.ParquetFile(file).metadata
        sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    return np.cumsum([0, *sizes])[:-1]


@lru_cache(2)
def _cells(place: str, group: int) -> Any:
    with open_whole(place) as opened:
        file = pq.ParquetFile(opened)
        name = next(name for name in file.schema_arrow.names if name in _IMAGES)
        return file.read_row_group(group, columns=[name])[name].combine_chunks()

"""Parquet files that list samples by their paths, or hold them. They are read by pyarrow, and only for a cluster.

They are listed by reference: where their row groups are, not what is in them. Workers read the rows that they need.
"""

import hashlib
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import IO, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pta.core.limits import USUAL_LIMITS
from pta.data.sources.addresses import open_whole, resolve, stamp_of
from pta.door.files import require_short, understanding
from pta.door.foreign import in_words
from pta.door.patience import USUAL_PATIENCE
from pta.errors import InvalidParameter, UnreadableFile, UnreadableSample, UnreadSample, first_line

COLUMNS = pa.schema(
    [
        ("number", pa.int64()),  # null in every row where the source gives none
        ("key", pa.string()),
        ("place", pa.string()),  # the file that holds the sample
        ("offset", pa.int64()),  # of a member of a tar archive, with its size; or the row group of the row
        ("size", pa.int64()),
        ("row", pa.int64()),  # in a row group of a parquet file that holds the samples themselves
        ("label", pa.string()),  # as the source has it
        ("stream", pa.string()),  # whose stream the sample belongs to, with --by
        ("stamp", pa.string()),  # what changes when the sample does, if that is known
    ]
)
"""Of a table of samples that are listed and not read; rows are in the order of the source."""

_IMAGES = ("image", "jpg", "png", "bytes")  # columns that hold encoded samples
FEATURES = ("image_features", "features", "embedding")  # columns that hold features
_AT_ONCE = 16  # files whose footers are read


@dataclass(frozen=True)
class RowGroups:
    """The rows of parquet files by reference, counted through all files in their order."""

    places: tuple[str, ...]  # of the files
    footers: tuple[str, ...]  # the sha256 of what each file says about its row groups
    stamps: tuple[str, ...]  # what changes when a file does
    groups: NDArray[np.int64]  # of each row group: its file, its number in it, its first row in it, and of all rows
    count: int
    names: tuple[str, ...]  # of the columns, which all files have
    by: str | None = None
    classes: Mapping[str, int] | None = None  # of each label

    def __len__(self) -> int:
        return self.count

    @property
    def features(self) -> str | None:
        """The column that holds features, if the files hold no samples."""
        has_samples = "path" in self.names or any(name in self.names for name in _IMAGES)
        return None if has_samples else next((name for name in FEATURES if name in self.names), None)

    def column(self, name: str) -> Iterator[Any]:
        """What the source says in a column of `COLUMNS`, one row group after another; nothing if it has no such."""
        there = self.by if name == "stream" else name
        if there in self.names:
            for group, table in self._read(range(len(self.groups)), [there]):
                place = self.places[self.groups[group, 0]]
                if name == "stream" and table[there].null_count:
                    raise InvalidParameter(f"--by {there}: {place} has rows without it")
                yield _as(COLUMNS.field(name), table[there], table.num_rows, place)

    def rows(self, rows: NDArray[np.int64], value: str | None = None) -> pa.Table:
        """Some rows as a table of `COLUMNS`, in the order that is asked for; a further column is its `value`."""
        names = [name for name in ("number", "key", "path", "label", self.by, value) if name in self.names]
        owners = np.searchsorted(self.groups[:, 3], rows, side="right") - 1
        order = np.argsort(owners, kind="stable")
        wanted, starts = np.unique(owners[order], return_index=True)
        parts = []
        for own, (group, table) in zip(np.split(order, starts[1:]), self._read(wanted, names), strict=True):
            listed = self._listed(group, table)
            listed = listed if value is None else listed.append_column("value", table[value])
            parts.append(listed.take(rows[own] - self.groups[group, 3]))
        return pa.concat_tables(parts).take(np.argsort(order)).combine_chunks()

    def _read(self, groups: Sequence[int] | NDArray[np.int64], names: list[str]) -> Iterator[tuple[int, pa.Table]]:
        """Columns of row groups; a file that has changed since it was listed is refused."""
        for file, own in groupby(map(int, groups), key=lambda group: int(self.groups[group, 0])):
            place = self.places[file]
            with understanding(place, "parquet file"), open_whole(place) as opened:
                if _footer(opened) != self.footers[file]:
                    raise UnreadableFile(f"{place} has changed since it was listed; start again in another folder")
                content = pq.ParquetFile(opened)
                for group in own:
                    yield group, content.read_row_group(int(self.groups[group, 1]), columns=names)

    def _listed(self, group: int, table: pa.Table) -> pa.Table:
        file, number, first, before = map(int, self.groups[group])
        place, rows, by = self.places[file], range(first, first + table.num_rows), self.by
        given = {name: table[name] for name in table.column_names}
        columns: dict[str, Any] = {"label": given.get("label"), "stream": None if by is None else given.get(by)}
        numbers = given.get("number")
        columns["number"] = range(before, before + len(rows)) if numbers is None or numbers.null_count else numbers
        name = posixpath.basename(place)
        columns["key"] = given.get("key", given.get("path", [f"{name}/{row}" for row in rows]))
        if "path" in given:
            paths = zip(rows, _as(COLUMNS.field("place"), given["path"], len(rows), place).to_pylist(), strict=True)
            columns["place"] = [resolve(place, path or "", row) for row, path in paths]
        else:
            columns |= {"place": [place] * len(rows), "offset": [number] * len(rows), "row": range(len(rows))}
        return pa.table({one.name: _as(one, columns.get(one.name), len(rows), place) for one in COLUMNS}, COLUMNS)


def list_row_groups(places: Sequence[str], by: str | None) -> RowGroups:
    """The row groups of files; no row is read."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(pool.map(lambda place: USUAL_PATIENCE.ask(lambda: _row_groups_of(place, by)), places))
    names = [name for name in found[0][0] if all(name in there for there, _, _ in found)]
    sizes = np.array([size for _, _, own in found for size in own], np.int64)
    inside = [np.cumsum([0, *own[:-1]]) if own else () for _, _, own in found]
    groups = [(file, number) for file, (_, _, own) in enumerate(found) for number in range(len(own))]
    columns = (*np.array(groups, np.int64).reshape(-1, 2).T, np.concatenate(inside), np.cumsum(sizes) - sizes)
    stamps = tuple(stamp_of(place) or "" for place in places)
    footers = tuple(footer for _, footer, _ in found)
    table = np.stack([np.asarray(column, np.int64) for column in columns], axis=1)[sizes > 0]
    return RowGroups(tuple(places), footers, stamps, table, int(sizes.sum()), tuple(names), by)


def _row_groups_of(place: str, by: str | None) -> tuple[list[str], str, list[int]]:
    """The columns of a file, a digest of its footer, and how many rows each row group has."""
    with understanding(place, "parquet file"), open_whole(place) as opened:
        footer, file = _footer(opened), pq.ParquetFile(opened)
        schema, metadata = file.schema_arrow, file.metadata
    names: list[str] = schema.names
    if not any(name in names for name in ("path", *_IMAGES, *FEATURES)):
        raise UnreadableFile(f"{place} has no column path, nor one of {', '.join(_IMAGES)} that holds the files")
    if by is not None and by not in names:
        raise InvalidParameter(f"--by {by}: {place} has the columns {', '.join(names)}")
    for name, wanted in (("number", "number"), ("key", "key"), ("path", "place"), ("label", "label"), (by, "stream")):
        if name in names:
            if names.count(name) > 1:
                raise UnreadableFile(f"{place} has the column {name} twice")
            _as(pa.field(name, COLUMNS.field(wanted).type), pa.chunked_array([], schema.field(name).type), 0, place)
    return names, footer, [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]


def _footer(file: IO[bytes]) -> str:
    """The sha256 of the end of a parquet file, which has the place, size and statistics of every column."""
    end = file.seek(0, 2)
    file.seek(max(end - 8, 0))
    length = int.from_bytes(file.read(4), "little") + 8
    file.seek(max(end - length, 0))
    return hashlib.sha256(file.read(min(length, end))).hexdigest()


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
    group: int
    row: int  # of the row group

    def read(self, most: int = USUAL_LIMITS.max_bytes) -> bytes:
        """The content, still encoded."""

        def said(error: Exception) -> UnreadableSample:  # whatever pyarrow raises on damaged bytes, which came whole
            return UnreadableSample(f"{self.key} cannot be read: {first_line(error)}")

        with in_words(said, passing=UnreadSample):
            cell = _cells(self.place, self.group)[self.row].as_py()
            content = cell.get("bytes") if isinstance(cell, dict) else cell
        if not isinstance(content, bytes):
            raise UnreadableSample(f"{self.key} does not hold bytes")
        require_short(self.key, len(content), most)
        return content


@lru_cache(2)
def _cells(place: str, group: int) -> Any:
    with open_whole(place) as opened:
        file = pq.ParquetFile(opened)
        name = next(name for name in file.schema_arrow.names if name in _IMAGES)
        return file.read_row_group(group, columns=[name])[name].combine_chunks()

"""The listing: which sample has which number, fixed before the work and written to `listing.parquet`.

One row group per block, so that a worker reads its own rows and no others. A sample's number is part of the data, never
taken from the order of arrival. With streams (`--by`) rows are sorted by stream and then by number.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pta.cluster.ray.sources import is_sample_column
from pta.cluster.ray.storage import Folder, filesystem, is_remote
from pta.data.class_index import ClassIndex, whole_number
from pta.data.sample_set import SampleFile, SampleReference, TarMember
from pta.door.files import require_short
from pta.door.limits import USUAL_LIMITS
from pta.errors import InvalidParameter, InvalidSamples, UnreadableSample, family, first_line

NAME = "listing.parquet"


@dataclass(frozen=True)
class Listing:
    """Numbered samples, cut into blocks of rows."""

    table: pa.Table
    blocks: Sequence[range]  # rows, consecutive
    class_names: tuple[str, ...] = ()  # that the labels are positions in

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @cached_property
    def digest(self) -> str:
        """The sha256 of everything but the places, which may move."""
        digest = hashlib.sha256(str(self.class_names).encode())
        for batch in self.table.drop_columns(["place"]).combine_chunks().to_batches(2**16):
            digest.update(batch.serialize())
        return digest.hexdigest()

    def write(self, folder: Folder) -> None:
        """Write `listing.parquet`."""
        content = BytesIO()
        with pq.ParquetWriter(content, self.table.schema) as writer:
            for rows in self.blocks:
                writer.write_table(self.table.slice(rows.start, len(rows)), row_group_size=len(rows))
        folder.write(NAME, content.getvalue())


def number_samples(table: pa.Table, block: int, class_names: Sequence[str] | None, *, labelled: bool) -> Listing:
    """The listing of a source's samples; its own numbers must be 0, 1, 2, …, each once.

    `labelled`: keep the labels, as positions in the class names, which are the sorted labels if none are given.
    Where samples belong to streams, a block holds whole streams: one, or several of together at most `block` samples.
    """
    numbers = _numbers(table)
    names, labels = _labels(table, class_names) if labelled else (tuple(class_names or ()), None)
    table = table.set_column(0, "number", numbers).set_column(
        table.schema.get_field_index("label"), "label", labels or pa.nulls(table.num_rows, pa.int64())
    )
    keys = [("stream", "ascending"), ("number", "ascending")]
    table = table.take(pc.sort_indices(table, keys)).combine_chunks()
    return Listing(table, _blocks(table, block), names)


def _blocks(table: pa.Table, size: int) -> list[range]:
    count, streams = table.num_rows, table["stream"].combine_chunks()
    if streams.null_count:
        return [range(start, min(start + size, count)) for start in range(0, count, size)]
    new = pc.not_equal(streams[1:], streams[:-1]).to_numpy(zero_copy_only=False)
    ends = [*(np.flatnonzero(new) + 1).tolist(), count]
    blocks, start = list[range](), 0
    for end, following in zip(ends, [*ends[1:], None], strict=True):
        if following is None or following - start > size:
            blocks.append(range(start, end))
            start = end
    return blocks


def _numbers(table: pa.Table) -> pa.Array:
    given, count = table["number"], table.num_rows
    if given.null_count == count:
        return pa.array(np.arange(count), pa.int64())
    if given.null_count:
        row = given.is_null().index(True).as_py()
        raise InvalidSamples(f"{table['key'][row]} has no number, others have; either all or none need one")
    ordered = np.sort(given.to_numpy())
    wrong = np.flatnonzero(ordered != np.arange(count))
    if len(wrong):
        first = int(wrong[0])
        if ordered[first] < first:
            number = int(ordered[first])
            said = f"number {number} is negative" if number < 0 else f"number {number} is there twice"
        else:
            said = f"number {first} is missing"
        raise InvalidSamples(f"samples must be numbered 0…{count - 1:,}, each once: {said}")
    return given.combine_chunks()


def _labels(table: pa.Table, class_names: Sequence[str] | None) -> tuple[tuple[str, ...], pa.Array | None]:
    given = table["label"]
    if given.null_count == table.num_rows:
        return tuple(class_names or ()), None
    if given.null_count:
        row = given.is_null().index(True).as_py()
        raise InvalidSamples(f"{table['key'][row]} has no label, others have; either all or none need one")
    known = sorted(given.unique().to_pylist())
    if class_names is None:
        if all(whole_number(label) is not None for label in known):
            raise InvalidParameter("the labels are numbers; give the class names that they stand for: --classes FILE")
        number = {name: position for position, name in enumerate(known)}
        names = tuple(known)
    else:
        index, names = ClassIndex(class_names), tuple(class_names)
        number = {label: _label(label, index, names) for label in known}
    positions = pa.array([number[label] for label in known], pa.int64())
    return names, positions.take(pc.index_in(given.combine_chunks(), pa.array(known, pa.string())))


def _label(label: str, index: ClassIndex, names: Sequence[str]) -> int:
    number = None if label in index else whole_number(label)
    if number is None:
        return index.label(label, "the label")
    if number >= len(names):
        raise InvalidParameter(f"label {label} does not exist; classes are 0…{len(names) - 1}")
    return number


@dataclass(frozen=True)
class Rows:
    """The samples of one block."""

    numbers: NDArray[np.int64]
    samples: list[SampleReference]
    labels: NDArray[np.int64] | None
    streams: list[str | None]


def read_rows(folder: Folder, block: int) -> Rows:
    """The samples of a block, by its place in the listing."""
    with folder.open(NAME) as file:
        table = pq.ParquetFile(file).read_row_group(block)
    columns = [table[name].to_pylist() for name in ("key", "place", "offset", "size", "row")]
    labels = None if table["label"].null_count else table["label"].to_numpy()
    samples = [_sample(*one) for one in zip(*columns, strict=True)]
    return Rows(table["number"].to_numpy(), samples, labels, table["stream"].to_pylist())


def _sample(key: str, place: str, offset: int | None, size: int | None, row: int | None) -> SampleReference:
    if row is not None:
        return ParquetCell(place, key, row)
    if is_remote(place):
        return RemoteSample(place, key, offset, size)
    if offset is not None and size is not None:
        return TarMember(Path(place), key, offset, size)
    return SampleFile(Path(place), key)


@dataclass(frozen=True)
class RemoteSample:
    """A file at an address, or a part of one."""

    place: str
    key: str
    offset: int | None
    size: int | None

    def read(self, most: int = USUAL_LIMITS.max_bytes) -> bytes:
        """The content, still encoded."""
        try:
            system, path = filesystem(self.place)
            size = int(system.size(path)) if self.size is None else self.size
            require_short(self.key, size, most)
            start = self.offset or 0
            content: bytes = system.cat_file(path, start=start, end=start + size)
        except UnreadableSample:
            raise
        except Exception as error:  # whatever the filesystem raises
            raise family(error, UnreadableSample)(f"{self.key} cannot be read: {first_line(error)}") from error
        if len(content) < size:
            raise UnreadableSample(f"{self.key} cannot be read: {self.place} ends too early")
        return content


@dataclass(frozen=True)
class ParquetCell:
    """A sample that a parquet file holds, as bytes or as a struct with `bytes`."""

    place: str
    key: str
    row: int

    def read(self, most: int = USUAL_LIMITS.max_bytes) -> bytes:
        """The content, still encoded."""
        try:
            first, cells = _row_group(self.place, self.row)
            cell = cells[self.row - first].as_py()
            content = cell.get("bytes") if isinstance(cell, dict) else cell
        except Exception as error:  # whatever pyarrow raises on damaged bytes
            raise family(error, UnreadableSample)(f"{self.key} cannot be read: {first_line(error)}") from error
        if not isinstance(content, bytes):
            raise UnreadableSample(f"{self.key} holds no bytes")
        require_short(self.key, len(content), most)
        return content


def _row_group(place: str, row: int) -> tuple[int, Any]:
    starts = _row_groups(place)
    group = int(np.searchsorted(starts, row, side="right")) - 1
    return int(starts[group]), _cells(place, group)


@lru_cache(16)
def _row_groups(place: str) -> NDArray[np.int64]:
    system, path = filesystem(place)
    with system.open(path, "rb") as file:
        metadata = pq.ParquetFile(file).metadata
        sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    return np.cumsum([0, *sizes])[:-1]


@lru_cache(2)
def _cells(place: str, group: int) -> Any:
    system, path = filesystem(place)
    with system.open(path, "rb") as opened:
        file = pq.ParquetFile(opened)
        name = next(name for name in file.schema_arrow.names if is_sample_column(name))
        return file.read_row_group(group, columns=[name])[name].combine_chunks()

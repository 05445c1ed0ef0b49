"""The listing: which sample has which number, fixed before the work and written to `listing.parquet`.

One row group per block, so that a worker reads its own rows and no others. A sample's number is part of the data, never
taken from the order of arrival. With streams (`--by`) rows are sorted by stream and then by number.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pta.cluster.ray.storage import Folder
from pta.data.sample_set import SampleReference
from pta.data.sources.class_index import number_labels
from pta.data.sources.listed import reference
from pta.errors import InvalidSamples

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
    _require_all(table, "number")
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
    _require_all(table, "label")
    known = sorted(given.unique().to_pylist())
    names, number = number_labels(dict.fromkeys(known, ""), class_names, "the source")
    positions = pa.array([number[label] for label in known], pa.int64())
    return names, positions.take(pc.index_in(given.combine_chunks(), pa.array(known, pa.string())))


def _require_all(table: pa.Table, column: str) -> None:
    if table[column].null_count:
        row = table[column].is_null().index(True).as_py()
        raise InvalidSamples(f"{table['key'][row]} has no {column}, others have; either all or none need one")


@dataclass(frozen=True)
class BlockRows:
    """The samples of one block."""

    numbers: NDArray[np.int64]
    samples: list[SampleReference]
    labels: NDArray[np.int64] | None
    streams: list[str | None]


def read_rows(folder: Folder, block: int) -> BlockRows:
    """The samples of a block, by its place in the listing."""
    with folder.open(NAME) as file:
        table = pq.ParquetFile(file).read_row_group(block)
    columns = [table[name].to_pylist() for name in ("key", "place", "offset", "size", "row")]
    labels = None if table["label"].null_count else table["label"].to_numpy()
    samples = [reference(*one) for one in zip(*columns, strict=True)]
    return BlockRows(table["number"].to_numpy(), samples, labels, table["stream"].to_pylist())

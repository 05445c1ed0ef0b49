"""The listing: which sample has which number, fixed before the work and written beside its results.

A sample's number is part of the data, never taken from the order of arrival. With streams (`--by`) samples are sorted
by stream and then by number. Samples that a source lists one by one are a table in `listing.parquet`, with one row
group per block, so that a worker reads its own rows and no others. Of parquet files `listing.parquet` holds the row
groups, and `order.parquet` which row comes when, unless it is the order of the files; workers read the files.
"""

import hashlib
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pta.cluster.blocks.block import USUAL_SIZE, in_blocks
from pta.cluster.ray.storage import Folder
from pta.data.sample_set import SampleFile, SampleReference, TarMember
from pta.data.sources.addresses import RemoteSample, is_remote, stamp_of
from pta.data.sources.class_index import number_labels
from pta.data.sources.parquet import ParquetCell, RowGroups
from pta.door.patience import USUAL_PATIENCE, reading
from pta.errors import InvalidParameter, InvalidSamples, UnreadSample

NAME, ORDER = "listing.parquet", "order.parquet"
_FEWEST = 64  # samples per block, unless --block says otherwise: what the overhead of a task is small for
_PER_WORKER = 4  # blocks, so that workers end at about the same time
_STREAM_FILES = 4096  # streams that have a file each
_MOST_STREAMS = 2**24  # each takes about 200 bytes while they are sorted


@dataclass(frozen=True)
class Listing:
    """Numbered samples, which are cut into blocks of rows."""

    source: pa.Table | RowGroups  # a table is in the order of the listing
    order: NDArray[Any] | None  # the rows of a source by reference, unless they are in the order of the listing
    ends: NDArray[np.int64] | None  # the row after the last of each stream, with --by
    class_names: tuple[str, ...] = ()  # that the labels are positions in
    blocks: Sequence[range] = ()  # rows, consecutive

    def __len__(self) -> int:
        return len(self.source)

    def reader(self, folder: Folder) -> "BlockReader":
        """What workers read with, once the listing is written to the folder."""
        return BlockReader(folder, self.source if isinstance(self.source, RowGroups) else None, self.order is not None)

    @property
    def holds_features(self) -> bool:
        """Whether there are features in the place of samples."""
        return isinstance(self.source, RowGroups) and self.source.features is not None

    @cached_property
    def digest(self) -> str:
        """The sha256 of everything but the places, which may move: of parquet files what identifies each."""
        digest = hashlib.sha256(str(self.class_names).encode())
        if isinstance(self.source, RowGroups):
            names = map(posixpath.basename, self.source.places)
            said = [self.source.by, *zip(names, self.source.footers, self.source.stamps, strict=True)]
            digest.update(repr(said).encode())
        else:
            for batch in self.source.drop_columns(["place"]).combine_chunks().to_batches(2**16):
                digest.update(batch.serialize())
        return digest.hexdigest()

    def block_size(self, workers: int) -> int:
        """The size of blocks that keeps so many workers busy.

        With streams it is the most samples of several streams that share a file: 1 if every stream has its own.
        """
        if self.ends is not None:
            workers = max(workers, _STREAM_FILES // _PER_WORKER)
            if len(self.ends) <= workers * _PER_WORKER:
                return 1
        return usual_block(len(self), workers)

    def cut(self, size: int) -> "Listing":
        """The same in blocks of so many rows; with streams, in whole streams of together at most so many, or one."""
        if self.ends is None:
            return replace(self, blocks=in_blocks(len(self), size))
        blocks, start, ends = [], 0, self.ends.tolist()
        for end, following in zip(ends, [*ends[1:], None], strict=True):
            if following is None or following - start > size:
                blocks.append(range(start, end))
                start = end
        return replace(self, blocks=blocks)

    def known_to(self, folder: Folder) -> "Listing":
        """The same as an earlier start has listed it there, where one of both did not see a file: it may be away now.

        A file that was not seen at first counts as unchanged.
        """
        if isinstance(self.source, RowGroups):
            return self
        former = folder.parquet(NAME, lambda file: file.read())
        if former is None or former.schema != self.source.schema or not former["key"].equals(self.source["key"]):
            return self
        now, before = self.source["stamp"], former["stamp"]
        stamps = pc.if_else(pc.or_(pc.is_null(now), pc.is_null(before)), before, now)
        return replace(self, source=self.source.set_column(former.schema.get_field_index("stamp"), "stamp", stamps))

    def write(self, folder: Folder) -> None:
        """Write `listing.parquet`, and `order.parquet` if workers need it."""
        source = self.source
        if not isinstance(source, RowGroups):
            _write(folder, NAME, self.blocks, lambda rows: source.slice(rows.start, len(rows)))
            return
        columns = dict(zip(("place", "row_group", "row", "first"), source.groups.T, strict=True))
        columns["place"] = pa.array(source.places).take(pa.array(columns["place"]))
        _write(folder, NAME, [range(len(columns["row"]))], lambda rows: pa.table(columns))
        if (order := self.order) is not None:
            _write(folder, ORDER, self.blocks, lambda rows: pa.table({"row": order[rows.start : rows.stop]}))


def usual_block(count: int, workers: int) -> int:
    """The size of blocks of so many samples that keeps so many workers busy."""
    return min(max(-(-count // (_PER_WORKER * workers)), _FEWEST), USUAL_SIZE)


def _write(folder: Folder, name: str, blocks: Sequence[range], rows_of: Callable[[range], pa.Table]) -> None:
    """Write a table with one row group per block."""
    content = BytesIO()
    with pq.ParquetWriter(content, rows_of(blocks[0]).schema) as writer:
        for rows in blocks:
            writer.write_table(rows_of(rows), row_group_size=len(rows))
    folder.write(name, content.getvalue())


def number_samples(source: pa.Table | RowGroups, class_names: Sequence[str] | None, *, labelled: bool) -> Listing:
    """The listing of a source's samples; its own numbers must be 0, 1, 2, …, each once.

    `labelled`: keep the labels, as positions in the class names, which are the sorted labels if none are given.
    """
    names, classes = _labels(source, class_names) if labelled else (tuple(class_names or ()), None)
    numbers = _numbers(source)
    order = None if numbers is None else _inverse(numbers)
    if isinstance(source, RowGroups):
        del numbers  # which workers read
        order, ends = _by_stream(source, order)
        return Listing(replace(source, classes=classes), order, ends, names)
    order, ends = _by_stream(source, order)
    labels = pa.nulls(len(source), pa.int64())
    if classes is not None:
        own = pc.index_in(source["label"].combine_chunks(), pa.array(list(classes), pa.string()))
        labels = pa.array(list(classes.values()), pa.int64()).take(own)
    numbered = pa.array(np.arange(len(source)) if numbers is None else numbers, pa.int64())
    table = source.set_column(0, "number", numbered).set_column(source.schema.get_field_index("label"), "label", labels)
    return Listing(table if order is None else table.take(order).combine_chunks(), None, ends, names)


def _given(source: pa.Table | RowGroups, name: str) -> Iterator[tuple[int, Any]]:
    """The parts of a column, each with its first row; none if no sample has a value. All or none need one."""
    first, before = 0, None
    for part in source.column(name) if isinstance(source, RowGroups) else source[name].chunks:
        nulls = part.null_count
        if 0 < nulls < len(part) or before not in (None, nulls > 0):
            row = first + part.is_null().index(True).as_py() if nulls else 0
            said = f"row {row}" if isinstance(source, RowGroups) else source["key"][row]
            raise InvalidSamples(f"{said} has no {name}, others have; either all or none need one")
        if not nulls:
            yield first, part
        first, before = first + len(part), nulls > 0


def _numbers(source: pa.Table | RowGroups) -> NDArray[np.int64] | None:
    """The samples' own numbers, unless they are those of the source's order."""
    count, numbers = len(source), None
    for first, part in _given(source, "number"):
        numbers = np.empty(count, np.int64) if numbers is None else numbers
        numbers[first : first + len(part)] = part.to_numpy()
    if numbers is None or ((numbers[1:] > numbers[:-1]).all() and numbers[0] == 0 and numbers[-1] == count - 1):
        return None
    seen = np.zeros(count, np.bool_)
    if numbers.min() >= 0 and numbers.max() < count:
        seen[numbers] = True
    if not seen.all():
        ordered = np.sort(numbers)
        first = int(np.flatnonzero(ordered != np.arange(count))[0])
        number = int(ordered[first])
        wrong = "is negative" if number < 0 else "is there twice" if number < first else "is missing"
        said = f"number {first if number > first else number} {wrong}"
        raise InvalidSamples(f"samples must be numbered 0…{count - 1:,}, each once: {said}")
    return numbers


def _inverse(numbers: NDArray[np.int64]) -> NDArray[Any]:
    """Where each number is, with few bytes for each and while it is made."""
    places = np.empty(len(numbers), np.min_scalar_type(len(numbers)))
    for rows in in_blocks(len(numbers), 2**20):
        places[numbers[rows.start : rows.stop]] = rows
    return places


def _by_stream(
    source: pa.Table | RowGroups, order: NDArray[Any] | None
) -> tuple[NDArray[Any] | None, NDArray[np.int64] | None]:
    """The order by stream and then as it was, and the row after the last of each stream."""
    codes, known = np.empty(0, np.uint32), dict[str, int]()
    for first, part in _given(source, "stream"):
        codes = codes if len(codes) else np.empty(len(source), np.uint32)
        found = pa.chunked_array(part.dictionary_encode()).combine_chunks()
        code_of = [known.setdefault(name, len(known)) for name in found.dictionary.to_pylist()]
        codes[first : first + len(part)] = np.array(code_of, np.uint32)[found.indices.to_numpy()]
        if len(known) > _MOST_STREAMS:
            raise InvalidParameter(f"--by: there are more than {_MOST_STREAMS:,} streams; give a part of the source")
    if not known:
        return order, None
    ranks = np.empty(len(known), np.min_scalar_type(len(known)))
    ranks[[known[name] for name in sorted(known)]] = np.arange(len(known))
    parts = [slice(rows.start, rows.stop) for rows in in_blocks(len(source), 2**20)]
    ranked = ranks[codes] if order is None else ranks[codes[order]]
    del codes
    ends = np.cumsum(np.bincount(ranked))
    free = np.append(0, ends[:-1])
    places = np.empty(len(ranked), np.min_scalar_type(len(ranked)))
    for rows in parts:  # a counting sort: `argsort` would take three times the memory
        own: NDArray[Any] = np.argsort(ranked[rows], kind="stable")
        streams, starts, sizes = np.unique(ranked[rows][own], return_index=True, return_counts=True)
        new = np.repeat(free[streams] - starts, sizes) + np.arange(len(own))
        places[new] = own + rows.start if order is None else order[rows][own]
        free[streams] += sizes
    return places, ends


def _labels(
    source: pa.Table | RowGroups, class_names: Sequence[str] | None
) -> tuple[tuple[str, ...], Mapping[str, int] | None]:
    """The class names, and the class of each label, if the source has labels."""
    known = set[str]()
    for _, part in _given(source, "label"):
        known.update(part.unique().to_pylist())
    if not known:
        return tuple(class_names or ()), None
    return number_labels(dict.fromkeys(sorted(known), ""), class_names, "the source")


@dataclass(frozen=True)
class BlockRows:
    """The samples of one block."""

    numbers: NDArray[np.int64]
    samples: list[SampleReference]
    labels: NDArray[np.int64] | None
    streams: list[str | None]
    archives: Mapping[str, str | None]  # the files that hold several samples, each with its stamp when it was listed

    def require_unchanged(self) -> None:
        """Refuse what was read of archives of which some have changed since, and perhaps before it was read."""
        for place, stamp in self.archives.items():
            with reading(place):
                if stamp and stamp_of(place) != stamp:
                    raise UnreadSample(f"{place} is away, or has changed since it was listed")


@dataclass(frozen=True)
class BlockReader:
    """Reads the samples of a block, on any machine."""

    folder: Folder  # of the listing
    groups: RowGroups | None  # of a source by reference
    is_ordered: bool  # otherwise than the source

    def values(self, block: int, rows: range) -> tuple[NDArray[np.int64], list[str], NDArray[Any]]:
        """Numbers, keys and features of a block of a source by reference, in rows of equal length if they are."""
        assert self.groups is not None
        table = self._listed(block, rows, self.groups.features)
        values, flat = table["value"], table["value"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
        if len(lengths := set(pc.list_value_length(values).to_pylist())) == 1 and None not in lengths:
            flat = flat.reshape(len(values), -1)
        return table["number"].to_numpy(), table["key"].to_pylist(), flat

    def read(self, block: int, rows: range) -> BlockRows:
        """The samples of a block, by its place in the listing and its rows."""
        if self.groups is None:
            table = self._read(NAME, block)
            labels = None if table["label"].null_count else table["label"].to_numpy()
        else:
            table, classes = self._listed(block, rows), self.groups.classes
            labels = None if classes is None else np.array([classes[one] for one in table["label"].to_pylist()])
        columns = [table[name].to_pylist() for name in ("key", "place", "offset", "size", "row")]
        samples = [_reference(*one) for one in zip(*columns, strict=True)]
        held = table.filter(table["offset"].is_valid())  # in archives
        stamps = dict(zip(held["place"].to_pylist(), held["stamp"].to_pylist(), strict=True))
        if self.groups is not None:
            known = dict(zip(self.groups.places, self.groups.stamps, strict=True))
            stamps = {place: known[place] for place in stamps}
        return BlockRows(table["number"].to_numpy(), samples, labels, table["stream"].to_pylist(), stamps)

    def _listed(self, block: int, rows: range, value: str | None = None) -> pa.Table:
        assert self.groups is not None
        groups = self.groups
        wanted = self._read(ORDER, block)["row"].to_numpy() if self.is_ordered else np.arange(rows.start, rows.stop)
        return USUAL_PATIENCE.ask(lambda: groups.rows(wanted, value))

    def _read(self, name: str, block: int) -> pa.Table:
        if (table := self.folder.parquet(name, lambda file: file.read_row_group(block))) is None:
            raise UnreadSample(f"{self.folder.path(name)} cannot be read: it is damaged or not there")
        return table


def _reference(key: str, place: str, offset: int | None, size: int | None, row: int | None) -> SampleReference:
    """A listed sample, to be read on demand; `row` is of a parquet file that holds it, in the row group `offset`."""
    if row is not None and offset is not None:
        return ParquetCell(place, key, offset, row)
    if is_remote(place):
        return RemoteSample(place, key, offset, size)
    if offset is not None and size is not None:
        return TarMember(Path(place), key, offset, size)
    return SampleFile(Path(place), key)

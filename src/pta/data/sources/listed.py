"""`Listed`: a sample of a source as it is listed, without being read."""

from pathlib import Path
from typing import NamedTuple

from pta.data.sample_set import SampleFile, SampleReference, TarMember
from pta.data.sources.addresses import RemoteSample, is_remote


class Listed(NamedTuple):
    """Where a sample is, and what its source says about it."""

    key: str  # what users see and tables hold
    place: str  # the file that holds it
    label: str | None = None  # as the source has it
    stream: str | None = None  # whose stream it belongs to, where streams are asked for
    number: str | None = None  # as the source has it
    line: int | None = None  # of the list that names it
    offset: int | None = None  # of a member of a tar archive, with its size
    size: int | None = None
    stamp: str | None = None  # what changes when the sample does, if the listing knows it


def reference(key: str, place: str, offset: int | None, size: int | None, row: int | None) -> SampleReference:
    """A listed sample, to be read on demand; `row` is of a parquet file that holds it, in the row group `offset`."""
    if row is not None and offset is not None:
        from pta.data.sources.parquet import ParquetCell  # needs an extra

        return ParquetCell(place, key, offset, row)
    if is_remote(place):
        return RemoteSample(place, key, offset, size)
    if offset is not None and size is not None:
        return TarMember(Path(place), key, offset, size)
    return SampleFile(Path(place), key)

"""The list of kinds of sources: how each is recognised by its address, listed, and opened."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import NoReturn

from pta.core.modality import Modality
from pta.data.sample_set import SampleSet
from pta.data.sources.addresses import is_folder
from pta.data.sources.csv_list import list_csv, open_csv
from pta.data.sources.folder import list_folder, open_folder
from pta.data.sources.h5_clouds import open_h5
from pta.data.sources.listed import Listed
from pta.data.sources.webdataset import is_shards, list_shards, open_shards
from pta.errors import UnreadableFile


def ending(address: str) -> str:
    """What a file's name ends in, in lower case.

    >>> ending("s3://bucket/LIST.CSV")
    '.csv'
    """
    return PurePosixPath(address).suffix.lower()


def is_parquet(address: str) -> bool:
    """Whether an address is written like parquet files."""
    return ending(address) == ".parquet"


def refuse_parquet(source: str, class_names: Sequence[str] | None, modality: Modality) -> NoReturn:
    """Say what reads these files: pyarrow, which is not needed elsewhere."""
    raise UnreadableFile(f"{source}: only --cluster reads .parquet files; give a folder, a .csv or .tar shards")


@dataclass(frozen=True)
class Kind:
    """A kind of places that hold samples."""

    takes: Callable[[str], bool]  # an address
    open: Callable[[str, Sequence[str] | None, Modality], SampleSet]  # with class names, if they are given
    list: Callable[[str, Modality, str | None], Iterator[Listed]] | None  # for a cluster, perhaps by streams


KINDS = (
    Kind(is_folder, open_folder, list_folder),
    Kind(is_shards, open_shards, list_shards),
    Kind(lambda address: ending(address) == ".csv", open_csv, list_csv),
    Kind(lambda address: ending(address) == ".h5", open_h5, None),
    Kind(is_parquet, refuse_parquet, None),  # the table for a cluster is made from their columns
)
"""In the order in which they are tried."""


def kind_of(address: str) -> Kind | None:
    """The kind of an address, if it is one."""
    return next((kind for kind in KINDS if kind.takes(address)), None)

"""All samples of a source as a table, for a cluster: listed, not read."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from pta.core.modality import Modality
from pta.data.open import is_parquet, kind_of
from pta.data.sources.addresses import filesystem, find_files, is_folder, is_remote
from pta.data.sources.listed import Listed
from pta.data.sources.parquet import COLUMNS, list_parquet
from pta.door.files import as_path, understanding
from pta.door.patience import Unread
from pta.errors import InvalidParameter, UnreadableFile

_MOST = 2**24  # rows that are listed one by one


def list_samples(source: str, modality: Modality, by: str | None = None, *, give_up_unread: bool = False) -> pa.Table:
    """The samples of a source; `by` is the column, the key in `KEY.json` beside a tar's members, or `folder`.

    Where some files are there and others are not, the listing would be another one later; so that ends here, unless
    samples are given up. Where none is there, workers may see what this machine does not.
    """
    address = source if is_remote(source) else str(as_path(source).absolute())
    kind = kind_of(address)
    if files := _parquet_files(address):
        table = pa.concat_tables([list_parquet(file, by, _stamp(file)) for file in files]).combine_chunks()
    elif kind is not None and kind.list is not None:
        table = _table(source, kind.list(address, modality, by), give_up_unread)
    else:
        raise UnreadableFile(
            f"no such source: {source}; --cluster reads a folder, a .csv, .tar shards or .parquet files, "
            "here or at an address such as s3://BUCKET/FOLDER"
        )
    if not table.num_rows:
        raise UnreadableFile(f"{source} holds no {modality.name}s ({modality.endings})")
    if by is not None and table["stream"].null_count:
        row = table["stream"].is_null().index(True).as_py()
        raise InvalidParameter(f"--by {by}: {table['key'][row]} has no {by}")
    return table


def _parquet_files(address: str) -> list[str]:
    """The files of a path or pattern, or those that lie directly in a folder, sorted."""
    if is_folder(address):
        system, path = filesystem(address)
        with understanding(address, "folder"):
            names = sorted(name.rstrip("/").rpartition("/")[2] for name in system.ls(path, detail=False))
        return [f"{address}/{name}" for name in names if name.endswith(".parquet")]
    return find_files(address, "file", str) if is_parquet(address) else []


def _table(source: str, listed: Iterable[Listed], give_up_unread: bool) -> pa.Table:
    rows, place, stamp = list[dict[str, Any]](), "", None  # of the file before: members of an archive share one
    for one in listed:
        if len(rows) == _MOST:
            raise UnreadableFile(f"{source} lists more than {_MOST:,} samples; give parquet files, or a part of it")
        if one.place != place:
            place, stamp = one.place, one.stamp or _stamp(one.place)
        rows.append({**one._asdict(), "number": _whole(one, source), "label": one.label or None, "stamp": stamp})
    absent = [row["key"] for row in rows if row["stamp"] is None and not is_remote(row["place"])]
    if 0 < len(absent) < len(rows) and not give_up_unread:
        raise Unread.of(f"{key} cannot be read: it is not there" for key in absent).error()
    try:
        return pa.Table.from_pylist(rows, COLUMNS)
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError) as error:
        raise UnreadableFile(f"{source} has a name that is not text: {error}") from None


def _whole(listed: Listed, source: str) -> int | None:
    text = listed.number
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        wanted = "numbers are whole and begin at 0"
        raise UnreadableFile(f"{source}: line {listed.line} has the number {text!r}; {wanted}")
    return int(text)


def _stamp(place: str) -> str | None:
    """Size and time of last change of a file of this machine."""
    if is_remote(place):
        return None
    try:
        status = Path(place).stat()
    except OSError:
        return None
    return f"{status.st_size} {status.st_mtime_ns}"

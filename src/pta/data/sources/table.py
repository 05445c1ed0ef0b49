"""All samples of a source as a table, for a cluster: listed, not read."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from pta.core.modality import Modality
from pta.data.open import is_parquet, kind_of
from pta.data.sample_set import Listed
from pta.data.sources.addresses import ask, find_files, is_folder, is_remote, require_no_password, stamp_of
from pta.data.sources.parquet import COLUMNS, RowGroups, list_row_groups
from pta.door.files import as_path
from pta.door.patience import Unread
from pta.errors import InvalidParameter, UnreadableFile

_MOST = 2**24  # rows that are listed one by one


def list_samples(
    source: str, modality: Modality, by: str | None = None, *, give_up_unread: bool = False
) -> pa.Table | RowGroups:
    """The samples of a source: a table, or parquet files by reference.

    `by` is the column, the key in `KEY.json` beside a tar's members, or `folder`.

    Where some files are there and others are not, the listing would be another one later; so that ends here, unless
    samples are given up. Where none is there, workers may see what this machine does not.
    """
    require_no_password(source)
    address = source if is_remote(source) else str(as_path(source).absolute())
    kind = kind_of(address)
    if files := _parquet_files(address):
        if not len(groups := list_row_groups(files, by)):
            raise UnreadableFile(f"{source} holds no rows")
        return groups
    if source.lower().endswith((".npz", ".safetensors")):
        raise UnreadableFile(f"{source} is a feature file, which needs no extraction; pta predict and pta eval take it")
    if kind is not None and kind.list is not None:
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
        found = ask(address, "listed", lambda system, path: system.ls(path, detail=False))
        names = sorted(name.rstrip("/").rpartition("/")[2] for name in found)
        return [f"{address}/{name}" for name in names if name.endswith(".parquet")]
    return find_files(address, "file", str) if is_parquet(address) else []


def _table(source: str, listed: Iterable[Listed], give_up_unread: bool) -> pa.Table:
    rows, place, stamp = list[dict[str, Any]](), "", None  # of the file before: members of an archive share one
    for one in listed:
        if len(rows) == _MOST:
            raise UnreadableFile(f"{source} lists more than {_MOST:,} samples; give parquet files, or a part of it")
        if one.place != place:
            is_listed_alone = is_remote(one.place) and one.offset is None  # asking for each would take long
            place, stamp = one.place, one.stamp or (None if is_listed_alone else stamp_of(one.place))
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

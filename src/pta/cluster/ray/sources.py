"""Sources on one disk or at any fsspec address: parquet, webdataset tars, a folder, a CSV; listed, not read.

A table of samples has the columns of `COLUMNS`. Rows are in the source's own order: paths of a folder sorted, files of
a pattern sorted with their rows or members in order.
"""

import csv
import io
import json
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pta.cluster.ray.storage import filesystem, is_remote
from pta.core.modality import Modality
from pta.data.trees import is_inside, sample_files
from pta.data.webdataset import expand_range, is_shards, labels_and_samples, members
from pta.door.files import as_path, understanding
from pta.door.safe_text import from_csv_cell
from pta.errors import InvalidParameter, UnreadableFile

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
FOLDER = "folder"
_PATH = pa.field("path", pa.string())
_MOST = 2**24  # rows that are listed one by one
_LARGEST_CSV = 2**30
_LARGEST_JSON = 2**16
_IMAGES = ("image", "jpg", "png", "bytes")  # columns that hold encoded samples
Row = dict[str, Any]


def list_samples(source: str, modality: Modality, by: str | None = None) -> pa.Table:
    """The samples of a source; `by` is the column, the key in `KEY.json` beside a tar's members, or `folder`."""
    address = source if is_remote(source) else str(as_path(source).absolute())
    system, path = filesystem(address)
    ending = PurePosixPath(path).suffix.lower()
    if ending == ".parquet":
        table = _parquet(_matching(address), by)
    elif is_shards(path):
        table = _listed(source, _tars(_matching(address), modality, by))
    elif ending == ".csv":
        table = _listed(source, _csv(address, by))
    elif system.isdir(path):
        inside = [f"{address}/{name}" for name in _names(address) if name.endswith(".parquet")]
        table = _parquet(inside, by) if inside else _listed(source, _folder(address, modality, by))
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


def _listed(source: str, rows: Iterable[Row]) -> pa.Table:
    kept: list[Row] = []
    for row in rows:
        if len(kept) == _MOST:
            raise UnreadableFile(f"{source} lists more than {_MOST:,} samples; give parquet files, or a part of it")
        kept.append(row)
    try:
        return pa.Table.from_pylist(kept, COLUMNS)
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError) as error:
        raise UnreadableFile(f"{source} has a name that is not text: {error}") from None


def _names(address: str) -> list[str]:
    system, path = filesystem(address)
    with understanding(address, "folder"):
        return sorted(posixpath.basename(name.rstrip("/")) for name in system.ls(path, detail=False))


def _matching(address: str) -> list[str]:
    """The addresses that a path, a pattern or a range stands for."""
    system, path = filesystem(address)
    found = [match for text in expand_range(path) for match in sorted(system.glob(text))]
    if not found:
        raise UnreadableFile(f"no such file: {address}")
    return [system.unstrip_protocol(match) if is_remote(address) else match for match in found]


def _stamp(place: str) -> str | None:
    if is_remote(place):
        return None
    try:
        status = Path(place).stat()
    except OSError:
        return None
    return f"{status.st_size} {status.st_mtime_ns}"


def _folder(address: str, modality: Modality, by: str | None) -> Iterator[Row]:
    if by not in (None, FOLDER):
        raise InvalidParameter(f"--by {by}: samples of a folder have no columns; --by folder is one stream per folder")
    if is_remote(address):
        system, path = filesystem(address)
        files: Mapping[str, Any] = system.find(path, detail=True)
        inside = {name.removeprefix(path).lstrip("/"): about for name, about in files.items()}
        shown = [name for name in sorted(inside) if not any(part.startswith(".") for part in name.split("/"))]
        taken = [name for name in shown if modality.takes(posixpath.basename(name))]
        stamps: list[str | None] = [_remote_stamp(inside[name]) for name in taken]
    else:
        taken = sample_files(Path(address), modality)
        stamps = [_stamp(f"{address}/{name}") for name in taken]
    for key, stamp in zip(taken, stamps, strict=True):
        label, nested, _ = key.partition("/")
        stream = posixpath.dirname(key) if by else None
        place = f"{address.rstrip('/')}/{key}"
        yield {"key": key, "place": place, "label": label if nested else None, "stream": stream, "stamp": stamp}


def _remote_stamp(about: Mapping[str, Any]) -> str:
    return " ".join(str(about[name]) for name in ("size", "ETag", "etag", "mtime", "LastModified") if about.get(name))


def _csv(address: str, by: str | None) -> Iterator[Row]:
    system, path = filesystem(address)
    with understanding(address, "CSV file"):
        if system.size(path) > _LARGEST_CSV:
            raise UnreadableFile(f"{address} has more than {_LARGEST_CSV:,} bytes; give parquet files")
        text = system.cat_file(path).decode("utf-8-sig")
        reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        names = {(name or "").strip().lower(): name for name in reader.fieldnames or ()}
        if "path" not in names:
            raise UnreadableFile(f"{address}: the first line must be a header with the column 'path'")
        if by is not None and by.lower() not in names:
            raise InvalidParameter(f"--by {by}: {address} has the columns {', '.join(names)}")
        for cells in reader:
            row = {name: from_csv_cell((cells.get(own) or "").strip()) for name, own in names.items()}
            place = _resolved(address, row["path"], reader.line_num)
            yield {
                "number": _whole(row.get("number"), address, reader.line_num),
                "key": row["path"],
                "place": place,
                "label": row.get("label") or None,
                "stream": None if by is None else row[by.lower()] or None,
                "stamp": _stamp(place),
            }


def _resolved(address: str, path: str, line: int) -> str:
    """Where a path of a list points to; a list from elsewhere may not name files of this machine."""
    if is_remote(path) or (path.startswith("/") and not is_remote(address)):
        return path
    if not path or not is_inside(path):
        raise UnreadableFile(f"{address}: line {line} points to {path!r}, which leaves the folder of the list")
    return f"{posixpath.dirname(address)}/{path}"


def _whole(text: str | None, address: str, line: int) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise UnreadableFile(f"{address}: line {line} has the number {text!r}; numbers are whole and begin at 0")
    return int(text)


def _tars(archives: list[str], modality: Modality, by: str | None) -> Iterator[Row]:
    above = posixpath.commonpath([posixpath.dirname(archive) for archive in archives])
    for archive in archives:
        system, path = filesystem(archive)
        prefix = posixpath.relpath(archive, above)
        with understanding(archive, "tar archive"), system.open(path, "rb") as file:
            found = labels_and_samples(Path(path), prefix, file, modality)
            streams = {} if by is None else dict(_json_values(file, by))
        stamp = _stamp(archive)
        for sample, label in found:
            stem = posixpath.join(posixpath.dirname(sample.key), posixpath.basename(sample.key).partition(".")[0])
            stream = streams.get(posixpath.relpath(stem, prefix))
            yield {
                "key": sample.key,
                "place": archive,
                "offset": sample.offset,
                "size": sample.size,
                "label": None if label is None else str(label),
                "stream": stream,
                "stamp": stamp,
            }


def _json_values(file: Any, by: str) -> Iterator[tuple[str, str]]:
    """The value of `by` in each `KEY.json` of an archive, by key."""
    file.seek(0)
    for member in list(members(file)):
        if member.name.endswith(".json") and member.size <= _LARGEST_JSON:
            file.seek(member.offset_data)
            content = json.loads(file.read(member.size))
            if isinstance(content, dict) and by in content:
                yield member.name.removesuffix(".json"), str(content[by])


def _parquet(files: list[str], by: str | None) -> pa.Table:
    return pa.concat_tables([_one_parquet(file, by) for file in files]).combine_chunks()


def _one_parquet(address: str, by: str | None) -> pa.Table:
    system, path = filesystem(address)
    with understanding(address, "parquet file"), system.open(path, "rb") as opened:
        file = pq.ParquetFile(opened)
        names = file.schema_arrow.names
        held = next((name for name in _IMAGES if name in names), None)
        if "path" not in names and held is None:
            raise UnreadableFile(f"{address} has no column path, nor one of {', '.join(_IMAGES)} that holds the files")
        if by is not None and by not in names:
            raise InvalidParameter(f"--by {by}: {address} has the columns {', '.join(names)}")
        wanted = [name for name in ("number", "key", "path", "label", by) if name in names]
        table = file.read(columns=wanted)
        rows = file.metadata.num_rows
        given_columns = {name: table[name] for name in wanted}  # a name that is there twice is refused
    columns: dict[str, Any] = {"number": given_columns.get("number"), "label": given_columns.get("label")}
    columns["stream"] = given_columns.get(by)
    if "path" in wanted:
        paths = _as(_PATH, given_columns["path"], rows, address).to_pylist()
        columns["place"] = [_resolved(address, path or "", line) for line, path in enumerate(paths)]
    else:
        columns |= {"place": [address] * rows, "row": range(rows), "stamp": [_stamp(address)] * rows}
    name = posixpath.basename(address)
    given = next((given_columns[one] for one in ("key", "path") if one in wanted), None)
    columns["key"] = [f"{name}/{row}" for row in range(rows)] if given is None else given
    made = {one.name: _as(one, columns.get(one.name), rows, address) for one in COLUMNS}
    return pa.table(made, COLUMNS)


def _as(column: pa.Field, values: Any, rows: int, address: str) -> Any:
    try:
        if values is None:
            return pa.nulls(rows, column.type)
        if isinstance(values, pa.ChunkedArray | pa.Array):
            return values.cast(column.type)
        return pa.array(values, column.type)
    except pa.ArrowException as error:
        raise UnreadableFile(f"{address}: the column {column.name} must be {column.type}: {error}") from None


def is_sample_column(name: str) -> bool:
    """Whether a column of a parquet file is taken for one that holds encoded samples."""
    return name in _IMAGES

"""Rows of `pta predict`, of `--cluster` and of a service's export, as the population of an audit."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from pta.door.csv_rows import csv_rows
from pta.door.files import understanding
from pta.door.safe_text import printable
from pta.errors import MissingPackage, UnreadableFile, explaining, how_to_install
from pta.measure.audit.population import NAMING, ChangedRow, Population

_LONGEST_LINE = 2**20
_BLOCKS = "*.parquet"
_COLUMNS_OF_BLOCKS = ("key", "label", "zero_shot_label", "learned_label", "adapted_label")
Row = Mapping[str, Any]


def read_population(source: Path) -> Population:
    """The answered rows of a `.jsonl` or `.csv` file, or of a folder that `--cluster` wrote."""
    if source.is_dir():
        files, rows = sorted(source.glob(_BLOCKS)), _rows_of_blocks
        if not files:
            raise UnreadableFile(f"{source} holds no {_BLOCKS} files, which pta predict --cluster writes")
    else:
        readers = {".jsonl": _rows_of_json_lines, ".csv": _rows_of_csv}
        if source.suffix not in readers:
            raise UnreadableFile(f"{source}: rows are a .jsonl or .csv file of pta predict, or a folder of --cluster")
        if not source.is_file():
            raise UnreadableFile(f"no such file of rows: {source}")
        files, rows = [source], readers[source.suffix]
    digest = _digest_of(files)
    population = _population(str(source), digest, (row for file in files for row in rows(file)))
    if not population.answered + population.unanswered + population.learned:
        raise UnreadableFile(f"{source} holds no rows")
    return population


def _digest_of(files: list[Path]) -> str:
    found = []
    for path in files:
        with explaining(f"{path} cannot be read"), path.open("rb") as file:
            found.append(hashlib.file_digest(file, "sha256").hexdigest())
    return found[0] if len(found) == 1 else hashlib.sha256("\n".join(found).encode()).hexdigest()


def _population(source: str, digest: str, rows: Iterable[tuple[str, Row]]) -> Population:
    answered = unanswered = learned = 0
    changed, names = list[ChangedRow](), set[str]()
    for place, row in rows:
        adapted = _text(place, row, "adapted_label") or _text(place, row, "label")
        if not adapted:
            unanswered += 1
            continue
        if _text(place, row, "learned_label"):
            learned += 1
            continue
        zero_shot = _text(place, row, "zero_shot_label")
        if not zero_shot:
            raise UnreadableFile(
                f"{place} has no zero_shot_label: an audit compares both answers; run pta predict anew"
            )
        answered += 1
        names |= {adapted, zero_shot}
        if adapted != zero_shot:
            changed.append(ChangedRow(_naming(place, row), adapted, zero_shot))
    return Population(source, digest, answered, tuple(changed), tuple(sorted(names)), unanswered, learned)


def _naming(place: str, row: Row) -> tuple[tuple[str, str], ...]:
    columns = {name: _text(place, row, name) for name in NAMING if name in row}
    columns |= {"path": _text(place, row, "key")} if "key" in row else {}
    if not (columns.get("path") or columns.get("id")):
        raise UnreadableFile(f"{place} has neither a path nor an id")
    return tuple(columns.items())


def _text(place: str, row: Row, column: str) -> str:
    value = row.get(column)
    if column in ("place", "sequence"):
        value = str(value or 0) if isinstance(value, int | None) else value
        if not (isinstance(value, str) and value.isascii() and (value or "0").isdecimal() and len(value) < 19):
            raise UnreadableFile(f"{place}: {column} must be a whole number")
    if value is not None and not isinstance(value, str):
        raise UnreadableFile(f"{place}: {column} must be a text")
    return value or ""


def _rows_of_json_lines(path: Path) -> Iterator[tuple[str, Row]]:
    with explaining(f"{path} cannot be read"), path.open("rb") as file:
        for number, line in enumerate(_lines(path, file), 1):
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                raise UnreadableFile(f"{path}, line {number} is not a row of pta predict: not a JSON object")
            yield f"{path}, line {number}", row


def _rows_of_csv(path: Path) -> Iterator[tuple[str, Row]]:
    with explaining(f"{path} cannot be read"), path.open("rb") as file:
        for line, row in csv_rows(_lines(path, file), str(path), "label", "zero_shot_label"):
            yield f"{path}, line {line}", row


def _lines(path: Path, file: IO[bytes]) -> Iterator[str]:
    """The lines of a file, none of which may be so long that it would fill the memory."""
    number = 0
    while line := file.readline(_LONGEST_LINE):
        number += 1
        if len(line) == _LONGEST_LINE:
            raise UnreadableFile(f"{path}, line {number} is not a row: it has more than {_LONGEST_LINE:,} bytes")
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            raise UnreadableFile(f"{path}, line {number} is not UTF-8 text") from None
        yield text


def _rows_of_blocks(path: Path) -> Iterator[tuple[str, Row]]:
    try:
        import pyarrow.parquet as parquet
    except ModuleNotFoundError:
        raise MissingPackage(f"reading {path} needs pyarrow; {how_to_install('ray')}") from None
    with understanding(path, "block of labels"), path.open("rb") as opened:
        file = parquet.ParquetFile(opened)
        columns = [name for name in _COLUMNS_OF_BLOCKS if name in file.schema_arrow.names]
        for batch in file.iter_batches(columns=columns):
            yield from ((f"{path}: {printable(str(row.get('key')))}", row) for row in batch.to_pylist())

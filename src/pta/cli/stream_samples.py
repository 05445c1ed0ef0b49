"""`pta stream label` and `pta stream rows`: the samples of a stream, one by one or as CSV files."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from pta.cli.messages import say, warn
from pta.cli.output import require_place, write_json
from pta.cli.stream_options import SERVER, Json, Name, Server, TokenFile, Yes, confirm, connect
from pta.core.labels import NONE
from pta.data.label_file import rows_with_classes
from pta.door.csv_rows import read_csv
from pta.door.files import write_atomically
from pta.errors import InvalidParameter, UnreadableFile
from pta.measure.texts import csv_text
from pta.serve.client import Client
from pta.serve.requests import id_hash

_PER_REQUEST = 1024  # labels, which then have room for long names
_COLUMNS = (
    *("id", "place", "sequence", "path", "time", "label", "probability", "zero_shot_label", "zero_shot_probability"),
    *("adapted_label", "entropy", "source", "learned_label", "id_hash"),
)


def label(
    name: Name,
    file: Annotated[Path | None, "A CSV file: sequence, or id and place, and label.", Argument()] = None,
    sequence: Annotated[int | None, "The sample, by its number.", Option(min=1)] = None,
    id: Annotated[str | None, "The sample, by the id of its request."] = None,
    place: Annotated[int | None, "Its place in that request.", Option(min=0, show_default="0")] = None,
    label: Annotated[str | None, "Its class."] = None,
    none: Annotated[bool, "It belongs to none of the classes."] = False,
    token_file: TokenFile = None,
    server: Server = SERVER,
    json: Json = None,
    yes: Yes = False,
) -> None:
    """Say what learned samples are, as if it had been known when they came."""
    require_place(json)
    given = [sequence is not None, id is not None, label is not None, none]
    if file is None:
        if given[:2].count(True) != 1 or given[2:].count(True) != 1:
            raise InvalidParameter("give a CSV file, or --sequence or --id with --label or --none")
    elif any(given) or place is not None:
        raise InvalidParameter("give either a CSV file, or the options of one sample")
    with connect(server, token_file) as client:
        if file is not None:
            entries = _entries(file, [one["name"] for one in client.show(name)["classes"]])
        else:
            sample = {"sequence": sequence, "id": id, "place": place}
            entries = [{**{key: value for key, value in sample.items() if value is not None}, "label": label}]
        sentence = "label {stream}: {samples:,} samples concerned, {replayed:,} are replayed"
        counted = _send(client, name, entries, dry_run=True)
        if not yes:
            confirm(sentence.format_map(counted))
        done = _send(client, name, entries, dry_run=False)
    if write_json(json, done):
        say(sentence.format_map(done))


def _entries(file: Path, class_names: list[str]) -> list[dict[str, Any]]:
    """The labels of a file as a request has them."""
    entries, advice = [], "use --label none for the class, --none for none of the classes"
    for row, number in rows_with_classes(file, class_names, advice):
        if row.sequence is None and row.id is None:
            raise UnreadableFile(f"{file}: line {row.line} needs a sequence or an id")
        by_id = {"id": row.id, "place": row.place}
        sample = by_id if row.sequence is None else {"sequence": row.sequence}
        entries.append({**sample, "label": None if number == NONE else class_names[number]})
    return entries


def _send(client: Client, name: str, entries: list[dict[str, Any]], *, dry_run: bool) -> dict[str, Any]:
    """What all requests together did, or would do; what waits is one replay."""
    requests = [entries[start : start + _PER_REQUEST] for start in range(0, len(entries), _PER_REQUEST)]
    parts = [client.operate(name, "label", dry_run=dry_run, labels=labels) for labels in requests]
    samples, replayed = (sum(part["samples"] for part in parts), max(part["replayed"] for part in parts))
    return {**parts[-1], "samples": samples, "replayed": replayed}


def rows(
    name: Name,
    out: Annotated[Path, "A .csv file, as pta audit reads it."],
    ids: Annotated[Path | None, "A CSV file with the column id, and perhaps path and place, to fill in."] = None,
    token_file: TokenFile = None,
    server: Server = SERVER,
) -> None:
    """Write the learned samples of a stream with their answers to a file; the journal has hashes of ids alone."""
    require_place(out)
    known, paths = _read_ids(ids) if ids is not None else ({}, {})
    counts = {"rows": 0, "left_out": 0}
    with connect(server, token_file) as client:
        write_atomically(out, _lines(client, name, known, paths, counts))
    say(f"wrote {counts['rows']:,} rows of {name} to {out}")
    if counts["left_out"]:
        warn(f"{counts['left_out']:,} rows were left out: a killed process did not write their answers")


def _read_ids(file: Path) -> tuple[dict[str, str], dict[tuple[str, str], str]]:
    """The ids of a CSV file by their hashes, and the paths of samples by these and their places in their requests."""
    ids, paths = {}, {}
    for _, row in read_csv(file, "CSV of ids", "id"):
        hashed = id_hash(row["id"]).hex()
        ids[hashed] = row["id"]
        if row.get("path"):
            paths[hashed, row.get("place") or "0"] = row["path"]
    return ids, paths


def _lines(
    client: Client,
    name: str,
    ids: Mapping[str, str],
    paths: Mapping[tuple[str, str], str],
    counts: dict[str, int],
) -> Iterator[bytes]:
    """The lines of the file, page by page; counts them."""
    after: int | None = 0
    yield csv_text(_COLUMNS).encode()
    while after is not None:
        page = client.rows(name, after)
        for row in page["rows"]:
            row |= {"id": ids.get(row["id_hash"]), "path": paths.get((row["id_hash"], str(row["place"])))}
        yield csv_text(*([row[column] for column in _COLUMNS] for row in page["rows"])).encode()
        after = page["next"]
        counts["rows"] += len(page["rows"])
        counts["left_out"] += page["left_out"]

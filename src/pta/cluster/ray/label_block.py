"""Labels as parquet: of every sample of a block its number, its key, and what a row of one process says about it.

Where labels were learned, `learned_label` says which.

A sample that could not be decoded or read has its row, with nothing but its number, its key and the reason.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from pta.cluster.blocks.replay import BlockAnswers
from pta.cluster.ray.storage import Folder
from pta.door.patience import NO_UNREAD, Unread
from pta.errors import UnreadableFile

_COLUMNS = (
    ("number", pa.int64()),
    ("key", pa.string()),
    ("label", pa.string()),
    ("probability", pa.float64()),
    ("zero_shot_label", pa.string()),
    ("zero_shot_probability", pa.float64()),
    ("entropy", pa.float64()),
)
Answered = Sequence[Any]
"""Columns of samples that were answered: number, and what `_COLUMNS` has after the key."""
Failed = tuple[int, str, str]
"""Number and key of a sample that could not be decoded or read, and why."""


@dataclass(frozen=True)
class DoneBlock:
    """What a block of features or labels holds, in numbers."""

    samples: int  # with features, or with a label
    failed: Sequence[Failed] = ()
    encoded: int = 0  # now; of features
    changed: int = 0  # with another label than zero-shot's
    taught: int = 0  # whose label was learned, or that were not learned because they are of none of the classes
    unread: Unread = NO_UNREAD  # samples because of which the block was not written
    given_up: Sequence[int] = ()  # numbers of those that could not be read, among those that failed


def write_labels(
    folder: Folder,
    name: str,
    about: Mapping[str, str],
    numbers: NDArray[np.int64],
    keys: Sequence[str],
    said: Answered,
    failed: Sequence[Failed],
    streams: Sequence[str | None] | None = None,
    learned: Sequence[str] | None = None,
) -> DoneBlock:
    """Write the rows of a block in the order of its numbers and keys.

    `streams` are those of the rows, and `learned` the labels that are given for them.
    """
    rows = pc.index_in(pa.array(numbers), pa.array(said[0], pa.int64()))  # null where nothing was answered
    held = (pa.array(values, kind).take(rows) for values, (_, kind) in zip(said[1:], _COLUMNS[2:], strict=True))
    table = dict(zip((column for column, _ in _COLUMNS), (numbers, pa.array(keys, pa.string()), *held), strict=True))
    if streams is not None:
        table["stream"] = pa.array(streams, pa.string())
    if learned is not None:
        table["learned_label"] = pc.if_else(rows.is_valid(), pa.array(learned, pa.string()), "")
    reasons = {number: complaint for number, _, complaint in failed}
    table["reason"] = pa.array(map(reasons.get, numbers.tolist()) if failed else [None] * len(numbers), pa.string())
    written, content = pa.table(table, metadata={**about, "failed": json.dumps(failed)}), BytesIO()
    pq.write_table(written, content)
    folder.write(name, content.getvalue())
    return _counted(written)


def write_answers(
    folder: Folder,
    name: str,
    about: Mapping[str, str],
    answers: BlockAnswers,
    keys: Sequence[str],
    failed: Sequence[Failed],
    class_names: Sequence[str],
    learned: Sequence[str] | None = None,
) -> DoneBlock:
    """The same for the answers to a block of one stream, sorted by number; `keys` are of the samples with answers."""
    names = pa.array(class_names, pa.string())
    said = [getattr(answers, field.name).numpy() for field in fields(answers)]
    said[1], said[3] = names.take(said[1]), names.take(said[3])
    numbers = np.concatenate([said[0], np.array([number for number, _, _ in failed], np.int64)])
    order = numbers.argsort()
    every = pa.array([*keys, *(key for _, key, _ in failed)], pa.string()).take(order)
    told = None if learned is None else pa.array([*learned, *[""] * len(failed)], pa.string()).take(order)
    return write_labels(folder, name, about, numbers[order], every, said, failed, learned=told)


def labelled(folder: Folder, name: str, run: str, version: int | None = None) -> DoneBlock | None:
    """What is known about a block of labels, if it is there, whole, of this run and after this round of repair."""
    found = _read(folder, name, run, ["label", "zero_shot_label", "learned_label"])
    if found is None or (version is not None and found.schema.metadata.get(b"round") != str(version).encode()):
        return None
    return _counted(found)


def read_answers(folder: Folder, name: str, run: str, class_names: Sequence[str]) -> BlockAnswers:
    """What `write_answers` wrote."""
    table = _read(folder, name, run, [column for column, _ in _COLUMNS])
    if table is None:
        raise UnreadableFile(f"{folder.path(name)} was removed or changed meanwhile; run the same command again")
    table = table.filter(pc.is_valid(table["label"]))
    names = pa.array(class_names, pa.string())

    def column(name: str) -> torch.Tensor:
        return torch.from_numpy(table[name].to_numpy().copy())

    labels, zero_shot = (
        torch.from_numpy(pc.index_in(table[name], names).to_numpy().astype(np.int64))
        for name in ("label", "zero_shot_label")
    )
    alone, entropies = column("zero_shot_probability"), column("entropy")
    return BlockAnswers(column("number"), labels, column("probability"), zero_shot, alone, entropies)


def _read(folder: Folder, name: str, run: str, columns: Sequence[str]) -> Any:
    """The columns that a file has, if it is there, whole and of this run."""

    def take(file: pq.ParquetFile) -> Any:
        if (file.schema_arrow.metadata or {}).get(b"run") != run.encode():
            return None
        return file.read([name for name in columns if name in file.schema_arrow.names])

    return folder.parquet(name, take)


def _counted(table: Any) -> DoneBlock:
    label, about = table["label"], table.schema.metadata
    failed: list[Failed] = [tuple(one) for one in json.loads(about[b"failed"])]
    changed = pc.sum(pc.not_equal(label, table["zero_shot_label"])).as_py() or 0
    taught = 0
    if "learned_label" in table.column_names:
        taught = pc.sum(pc.not_equal(table["learned_label"], "")).as_py() or 0
    given_up = json.loads(about.get(b"given_up", "[]"))
    samples = len(label) - label.null_count
    return DoneBlock(samples, failed, changed=changed, taught=taught, given_up=given_up)

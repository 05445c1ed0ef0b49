"""Labels as parquet: of every sample of a block its number, its key, and what a row of one process says about it.

Where labels were learned, `learned_label` says which.

A sample that could not be decoded or read has its row, with nothing but its number, its key and the reason.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch

from pta.cluster.blocks.replay import BlockAnswers
from pta.cluster.ray.storage import Folder
from pta.door.patience import NO_UNREAD, Unread
from pta.errors import PtaError, UnreadableFile

_COLUMNS = (
    ("number", pa.int64()),
    ("key", pa.string()),
    ("label", pa.string()),
    ("probability", pa.float64()),
    ("zero_shot_label", pa.string()),
    ("zero_shot_probability", pa.float64()),
    ("entropy", pa.float64()),
)
LabelRow = tuple[str, float, str, float, float]
"""Label, probability, zero-shot label and its probability, and entropy of a sample."""
Failed = tuple[int, str, str]
"""Number and key of a sample that could not be decoded or read, and why."""


@dataclass(frozen=True)
class Labelled:
    """What a block of labels holds, in numbers."""

    samples: int  # with a label
    changed: int  # with another label than zero-shot's
    failed: list[Failed]
    taught: int = 0  # whose label was learned, or that were not learned because they are of none of the classes
    unread: Unread = NO_UNREAD  # samples because of which the block was not written
    given_up: bool = False  # whether there are others among those that failed


def write_labels(
    folder: Folder,
    name: str,
    run: str,
    keys: Mapping[int, str],
    said: Mapping[int, LabelRow],
    failed: Sequence[Failed],
    streams: Sequence[str | None] | None = None,
    learned: Sequence[str] | None = None,
    *,
    given_up: bool = False,
) -> Labelled:
    """Write the rows of a block in the order of `keys`, both by number.

    `streams` are those of the rows, and `learned` the labels that are given for them.
    """
    nothing = (None,) * (len(_COLUMNS) - 2)
    rows = [(number, key, *said.get(number, nothing)) for number, key in keys.items()]
    arrays = [pa.array(values, kind) for values, (_, kind) in zip(zip(*rows, strict=True), _COLUMNS, strict=True)]
    if learned is not None:  # what could not be read was not learned
        learned = [label if number in said else "" for number, label in zip(keys, learned, strict=True)]
    reasons = {number: complaint for number, _, complaint in failed}
    table = _table(arrays, stream=streams, learned_label=learned, reason=[reasons.get(number) for number in keys])
    return _write(folder, name, {"run": run} | ({"given_up": "true"} if given_up else {}), table, failed)


def write_answers(
    folder: Folder,
    name: str,
    run: str,
    version: int,
    answers: BlockAnswers,
    keys: Sequence[str],
    failed: Sequence[Failed],
    class_names: Sequence[str],
    learned: Sequence[str] | None = None,
) -> Labelled:
    """Write the answers to a block from its states after some round of repair; `keys` and `learned` are as they are."""
    names, lost = pa.array(class_names, pa.string()), len(failed)
    said = [names.take(answers.labels.numpy()), pa.array(answers.probabilities.numpy())]
    said.append(names.take(answers.zero_shot.numpy()))
    said += [pa.array(one.numpy()) for one in (answers.zero_shot_probabilities, answers.entropies)]
    numbers = np.concatenate([answers.numbers.numpy(), np.array([number for number, _, _ in failed], np.int64)])
    arrays = [pa.array(numbers), pa.array([*keys, *(key for _, key, _ in failed)], pa.string())]
    arrays += [pa.concat_arrays([column, pa.nulls(lost, column.type)]) if lost else column for column in said]
    told = None if learned is None else [*learned, *[""] * lost]
    why = [*[None] * len(keys), *(complaint for _, _, complaint in failed)]
    table = _table(arrays, learned_label=told, reason=why)
    about = {"run": run, "round": str(version)}
    return _write(folder, name, about, table.sort_by("number") if lost else table, failed)


def _table(arrays: Sequence[Any], **more: Sequence[str | None] | None) -> Any:
    columns = dict(zip((column for column, _ in _COLUMNS), arrays, strict=True))
    return pa.table(columns | {name: pa.array(texts, pa.string()) for name, texts in more.items() if texts is not None})


def _write(folder: Folder, name: str, about: Mapping[str, str], table: Any, failed: Sequence[Failed]) -> Labelled:
    table, content = table.replace_schema_metadata({**about, "failed": json.dumps(failed)}), BytesIO()
    pq.write_table(table, content)
    folder.write(name, content.getvalue())
    return _counted(table)


def labelled(folder: Folder, name: str, run: str, version: int | None = None) -> Labelled | None:
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
    """The columns that a file has, if it is whole and of this run."""
    try:
        with folder.open(name) as opened:
            file = pq.ParquetFile(opened)
            if (file.schema_arrow.metadata or {}).get(b"run") != run.encode():
                return None
            return file.read([name for name in columns if name in file.schema_arrow.names])
    except (PtaError, pa.ArrowException, OSError):
        return None


def _counted(table: Any) -> Labelled:
    label, about = table["label"], table.schema.metadata
    failed: list[Failed] = [tuple(one) for one in json.loads(about[b"failed"])]
    changed = pc.sum(pc.not_equal(label, table["zero_shot_label"])).as_py() or 0
    taught = 0
    if "learned_label" in table.column_names:
        taught = pc.sum(pc.not_equal(table["learned_label"], "")).as_py() or 0
    return Labelled(len(label) - label.null_count, changed, failed, taught, given_up=b"given_up" in about)

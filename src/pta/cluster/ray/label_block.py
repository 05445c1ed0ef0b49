"""Labels as parquet: of every sample of a block its number, its key, and what a row of one process says about it.

Where labels were learned, `learned_label` says which.

A sample that could not be read has its row, with nothing but its number and key.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pta.cluster.ray.storage import Folder
from pta.errors import PtaError

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
"""Number and key of a sample that could not be read, and why."""


@dataclass(frozen=True)
class Labelled:
    """What a block of labels holds, in numbers."""

    samples: int  # with a label
    changed: int  # with another label than zero-shot's
    failed: list[Failed]
    taught: int = 0  # whose label was learned, or that were not learned because they are of none of the classes


def write_labels(
    folder: Folder,
    name: str,
    run: str,
    keys: Mapping[int, str],
    said: Mapping[int, LabelRow],
    failed: Sequence[Failed],
    streams: Sequence[str | None] | None = None,
    learned: Sequence[str] | None = None,
) -> Labelled:
    """Write the rows of a block in the order of `keys`, both by number.

    `streams` are those of the rows, and `learned` the labels that are given for them.
    """
    nothing = (None,) * (len(_COLUMNS) - 2)
    rows = [(number, key, *said.get(number, nothing)) for number, key in keys.items()]
    arrays = [pa.array(values, kind) for values, (_, kind) in zip(zip(*rows, strict=True), _COLUMNS, strict=True)]
    names = [column for column, _ in _COLUMNS]
    if learned is not None:  # what could not be read was not learned
        learned = [label if number in said else "" for number, label in zip(keys, learned, strict=True)]
    for column, texts in (("stream", streams), ("learned_label", learned)):
        if texts is not None:
            arrays, names = [*arrays, pa.array(texts, pa.string())], [*names, column]
    content = BytesIO()
    about = {"run": run, "failed": json.dumps(failed)}
    pq.write_table(pa.table(arrays, names).replace_schema_metadata(about), content)
    folder.write(name, content.getvalue())
    changed = sum(label != alone for label, _, alone, *_ in said.values())
    return Labelled(len(said), changed, list(failed), sum(map(bool, learned or ())))


def labelled(folder: Folder, name: str, run: str) -> Labelled | None:
    """What is known about a block of labels, if it is there, whole and of this run."""
    try:
        with folder.open(name) as opened:
            file = pq.ParquetFile(opened)
            about = file.schema_arrow.metadata or {}
            if about.get(b"run") != run.encode():
                return None
            columns = ["label", "zero_shot_label", "learned_label"]
            table = file.read([name for name in columns if name in file.schema_arrow.names])
    except (PtaError, pa.ArrowException, OSError):
        return None
    label, alone = table["label"], table["zero_shot_label"]
    changed = pc.sum(pc.not_equal(label, alone)).as_py() or 0
    taught = sum(map(bool, table["learned_label"].to_pylist())) if "learned_label" in table.column_names else 0
    failed = [tuple(one) for one in json.loads(about[b"failed"])]
    return Labelled(len(label) - label.null_count, changed, failed, taught)

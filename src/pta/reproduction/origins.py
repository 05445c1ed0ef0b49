"""Where the numbers of a cell come from: what its records say, each thing once."""

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

from pta.evaluation.record import Record
from pta.reproduction.table import Cell

_BYTES = 1e3  # of a kilobyte


def measured(record: Record, metric: str) -> float | None:
    """What a record holds of a metric, if it does.

    >>> measured({"worst_class": {"name": "boot", "accuracy": 12.5}}, "worst_class")
    12.5
    """
    if metric == "worst_class":
        value = record.get(metric, {}).get("accuracy")
    elif metric == "state_kb":
        value = record["state_bytes"] / _BYTES if "state_bytes" in record else None
    elif metric == "classes":
        value = len(record["class_accuracies"]) if "class_accuracies" in record else None
    else:
        value = record.get(metric)
    return None if value is None else float(value)


def mean_of(records: Sequence[Record], metric: str) -> float | None:
    """The mean of a metric over records, if all of them have it."""
    values = [measured(record, metric) for record in records]
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def by_seed(records: Sequence[Record], metric: str) -> dict[str, float | None]:
    """The metric of each seed."""
    return {str(record.get("seed", "")): measured(record, metric) for record in records}


def records_of(cell: Cell) -> Iterator[Record]:
    """All records of a cell."""
    for source in cell.sources:
        yield from source.records


def said(records: Sequence[Record], key: str) -> list[Any]:
    """The different values that records have under a key, in order."""
    return _different(record[key] for record in records if record.get(key) not in (None, ""))


def made(records: Sequence[Record], key: str) -> list[str]:
    """The different things that records say about how they were made, in order."""
    return _different(record["made"][key] for record in records if record.get("made", {}).get(key))


def _different(values: Iterator[Any]) -> list[Any]:
    kept: list[Any] = []
    for value in values:
        if value not in kept:
            kept.append(value)
    return kept

"""What the records behind a cell say: its metric, and where they come from."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from pta.evaluation.record import Record

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


def said(records: Sequence[Record], key: str) -> list[Any]:
    """The different values that records have under a key, in order."""
    kept: list[Any] = []
    for record in records:
        if record.get(key) not in (None, "", *kept):
            kept.append(record[key])
    return kept


def made(records: Sequence[Record], key: str) -> list[str]:
    """The different things that records say about how they were made, in order."""
    return said([record.get("made", {}) for record in records], key)

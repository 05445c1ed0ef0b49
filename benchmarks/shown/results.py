"""Numbers of the committed results, found by what they are of, and written as the documents write them."""

import csv
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = (ROOT / "benchmarks" / "results", ROOT / "docs" / "results")
Table = list[list[str]]
"""The head of a table, then its rows."""

FILES = {
    "Caltech101": "caltech101_test_sub",
    "ImageNet train": "imagenet_train_7shot",
    "Cars": "stanford_cars_val",
    "UCF101": "ucf101_test_sub_nounproxy",
}
"""Feature files by the name of their dataset."""


@cache
def rows(name: str) -> list[dict[str, str]]:
    """All rows of NAME.csv."""
    path = next(path for folder in FOLDERS if (path := folder / f"{name}.csv").exists())
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def found(name: str, **where: str) -> list[dict[str, str]]:
    """The rows of NAME.csv whose cells are these."""
    return [row for row in rows(name) if where.items() <= row.items()]


def one(name: str, **where: str) -> dict[str, str]:
    """The row of NAME.csv whose cells are these."""
    (row,) = found(name, **where)
    return row


def only(name: str, column: str, **where: str) -> str:
    """What NAME.csv has in a column, in all rows whose cells match these patterns."""
    matching = (row for row in rows(name) if all(fnmatchcase(row[key], value) for key, value in where.items()))
    values = {row[column] for row in matching}
    if len(values) != 1:
        raise ValueError(f"{column} of {name}.csv where {where}: {sorted(values)}; one value is needed")
    return values.pop()


def written(value: str | float, form: str | None = None) -> str:
    """A number in a format of Python, with the signs of print."""
    text = str(value) if form is None else format(float(value), form)
    return text.replace("%", " %").replace("-", "−") if form else text

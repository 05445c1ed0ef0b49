"""Fill in the tables and numbers of the documents from the committed results.

    python benchmarks/fill_tables.py          or `make tables`

A mark in Markdown says what stands between it and `<!-- end -->`. The mark of one number is

    <!-- n: FILE COLUMN FORMAT KEY=PATTERN … -->

The number is what FILE.csv has in COLUMN where each KEY matches its PATTERN, in Python's FORMAT. A text needs no
FORMAT. The mark of a table holds its head and the template of a line:

    <!-- table: engine-cpu d=512 B=256 by=implementation
    | relative to zero-shot | C = 10 | of the loop's time |
    | {label} | {cost[C=10]:.2f} | {us[C=10]/us[C=10 implementation=loop]:.1%} |
    loop
    chunk*: in chunks
    -->

* The table has a line for each value of the column after `by=`, or for each combination if several columns are named,
  with commas. Without `by=` it has a line for each row of the file. Several files are read as one.
* Which lines are shown, and in which order, may be listed below the template: patterns of the columns of `by=`, with
  ` | ` between them, and after a colon what `{label}` is. Another template with its own lines may follow.
* `{COLUMN:FORMAT}` is the value of the line's rows. `{COLUMN[KEY=PATTERN …]:FORMAT}` chooses among them; a KEY of `by=`
  or of the mark itself is replaced, so that a line can be compared with another. `/` divides by a value or a number.
* Several rows that match must agree, or the mark says what is shown of them: `several=mean` or `several=sum`.
* In a pattern, * stands for anything, and a|b for either.
* A cell without a value is empty. A line without a row and a column without a value are errors.
"""

import csv
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from glob import escape
from pathlib import Path
from statistics import fmean

ROOT = Path(__file__).parents[1]
FOLDERS = (ROOT / "benchmarks" / "results", ROOT / "docs" / "results")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "docs" / "results" / "README.md"]
MARKED = re.compile(r"(<!-- (table|n): (.+?)\s-->)(.*?)(<!-- end -->)", flags=re.DOTALL)
OPERAND = r"([\w.]+)(?:\[(.*?)\])?"
FIELD = re.compile(rf"{{{OPERAND}(?:/{OPERAND})?(?::([^}}]*))?}}")
Row = dict[str, str]
Patterns = dict[str, str]


@cache
def rows(name: str) -> list[Row]:
    """All rows of NAME.csv. `acceptance` are the published accuracies that `pta verify` compares with."""
    if name == "acceptance":
        published = json.loads((ROOT / "src" / "pta" / "assets" / "acceptance.json").read_text(encoding="utf-8"))
        return [
            {**row, "dataset": dataset, "accuracy": str(accuracy)}
            for row in published["rows"]
            for dataset, accuracy in row["accuracies"].items()
        ]
    path = next(path for folder in FOLDERS if (path := folder / f"{name}.csv").exists())
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def one(name: str, **where: str) -> Row:
    """The row of NAME.csv whose cells match these patterns."""
    (row,) = _matching(rows(name), where)
    return row


def filled(text: str) -> str:
    """A page with everything between marks made anew."""
    return MARKED.sub(lambda found: found[1] + (_table if found[2] == "table" else _number)(found[3]) + found[5], text)


def _number(mark: str) -> str:
    (name, column, *form), where = _arguments(mark)
    values = {row[column] for row in _matching(rows(name), where)}
    if len(values) != 1:
        raise ValueError(f"{mark}: {sorted(values)}; one value is needed")
    return _written(values.pop(), *form)


def _table(mark: str) -> str:
    first, head, *rest = mark.splitlines()
    names, where = _arguments(first)
    data = _Data([row for name in names for row in rows(name)], where.pop("several", None))
    by = [key for key in where.pop("by", ",".join(data.rows[0])).split(",") if key]
    lines = [
        data.line(_cells(template), label, where | own)
        for template, chosen in _templates(rest)
        for label, own in ([_choice(line, by) for line in chosen] or data.every(by, where))
    ]
    if not all(any(column) for column in zip(*lines, strict=True)):
        raise ValueError(f"table: {mark}: a column is empty")
    titles = _cells(head)
    return "\n" + "".join(f"| {' | '.join(line)} |\n" for line in (titles, ["---"] * len(titles), *lines))


@dataclass(frozen=True)
class _Data:
    """The rows that a table shows, and what it shows of several that match: their mean or sum."""

    rows: list[Row]
    several: str | None

    def every(self, by: list[str], where: Patterns) -> list[tuple[str, Patterns]]:
        """A line for each combination of values, in the order of the file."""
        kinds = dict.fromkeys(tuple(row[key] for key in by) for row in _matching(self.rows, where))
        return [("", dict(zip(by, map(escape, kind), strict=True))) for kind in kinds]

    def line(self, template: list[str], label: str, where: Patterns) -> list[str]:
        """A line of the table."""
        if not _matching(self.rows, where):
            raise ValueError(f"no row of the file matches {where}")
        return [self._cell(cell, label, where) for cell in template]

    def _cell(self, template: str, label: str, where: Patterns) -> str:
        fields = [label if field[1] == "label" else self._field(field, where) for field in FIELD.finditer(template)]
        values = iter(fields)
        return FIELD.sub(lambda _: next(values), template) if all(fields) else ""

    def _field(self, field: re.Match[str], where: Patterns) -> str:
        column, own, divisor, of_divisor, form = field.groups()
        value = self._value(column, where | _arguments(own or "")[1])
        if divisor and value:
            below = divisor if divisor[0].isdigit() else self._value(divisor, where | _arguments(of_divisor or "")[1])
            value = str(float(value) / float(below))
        return _written(value, form) if value else ""

    def _value(self, column: str, where: Patterns) -> str:
        values = [value for row in _matching(self.rows, where) if (value := row.get(column, ""))]
        if values and self.several == "sum":
            return str(sum(map(float, values)))
        if len(set(values)) < 2:
            return values[0] if values else ""
        if self.several != "mean":
            raise ValueError(f"{column} where {where}: {sorted(set(values))}; one value is needed, or several=mean")
        return str(fmean(map(float, values)))


def _arguments(text: str) -> tuple[list[str], Patterns]:
    """The words of a mark, and its patterns by their keys."""
    words = shlex.split(text)
    return [word for word in words if "=" not in word], dict(word.split("=", 1) for word in words if "=" in word)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip()[1:-1].split(" | ")]


def _templates(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Each template of a line, with the lines that it makes."""
    starts = [at for at, line in enumerate(lines) if line.startswith("|")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield lines[start], lines[start + 1 : end]


def _choice(line: str, by: list[str]) -> tuple[str, Patterns]:
    patterns, _, label = line.partition(": ")
    return label or patterns, dict(zip(by, patterns.split(" | "), strict=True))


def _matching(rows: list[Row], where: Patterns) -> list[Row]:
    def fits(cell: str, pattern: str) -> bool:
        return any(fnmatchcase(cell, either) for either in pattern.split("|"))

    return [row for row in rows if all(fits(row.get(key, ""), pattern) for key, pattern in where.items())]


def _written(value: str, form: str | None = None) -> str:
    """A number in a format of Python, with the signs of print."""
    return format(float(value), form).replace("%", " %").replace("-", "−") if form else value


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")

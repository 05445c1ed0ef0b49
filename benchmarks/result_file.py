"""The tables in benchmarks/results: every row with the version of the code that measured it.

A version is the package's, and a digest of all Python files of package and benchmarks. Rows older than this column have
the version at the commit that brought them, and name it.
"""

import csv
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import pta
from pta.measure.provenance import code_version

HERE = Path(__file__).parent
RESULTS = HERE / "results"
Row = dict[str, object]


def write(path: Path, rows: Iterable[Row]) -> None:
    """Write and print rows as they come; a table without rows is left as it was."""
    rows = iter(rows)
    first = next(rows, None)
    if first is None:
        return
    version = code_version([*Path(pta.__file__).parent.rglob("*.py"), *HERE.rglob("*.py")])
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*first, "version"], lineterminator="\n")
        writer.writeheader()
        for row in chain([first], rows):
            writer.writerow(row | {"version": version})
            file.flush()
            print(*row.values(), sep="\t", flush=True)

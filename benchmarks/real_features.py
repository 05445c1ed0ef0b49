"""The table of docs/methods.md from the records of `pta eval`: mean and deviation over seeds, speed, size of state.

    pta eval --features A.npz --features B.npz --method all --seed 1 … --seed 5 --device cuda --json records.json
    python benchmarks/real_features.py records.json     writes benchmarks/results/real-features.csv, prints a table

Several records files are joined, so that methods with other options can be measured apart.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from engine import RESULTS, write

from pta.evaluation.machine import hardware

Records = list[dict[str, Any]]


def title(record: dict[str, Any]) -> str:
    """What a row is called: the method, and what it stands on."""
    base = record["params"].get("base")
    return f"pta on {base}" if record["method"] == "combined" else str(record["method"])


def rows_of(records: Records, hardware: str) -> list[dict[str, object]]:
    """One row for each dataset and method."""
    groups: dict[tuple[str, str], Records] = defaultdict(list)
    for record in records:
        groups[record["dataset"], title(record)].append(record)
    rows: list[dict[str, object]] = []
    for (dataset, method), own in groups.items():
        found = [record["accuracy"] for record in own]
        rows.append(
            {
                "dataset": dataset,
                "method": method,
                "seeds": " ".join(str(record["seed"]) for record in own),
                "samples": own[0]["n"],
                "accuracy": round(fmean(found), 2),
                "deviation": round(stdev(found), 2) if len(found) > 1 else "",
                "zero_shot": round(own[0]["zero_shot_accuracy"], 2),
                "gain": round(fmean(found) - own[0]["zero_shot_accuracy"], 2),
                "samples_per_second": round(sum(r["n"] for r in own) / sum(r["seconds"] for r in own)),
                "state_bytes": own[0]["state_bytes"],
                "batch": own[0]["stream"]["batch"],
                "parameters": json.dumps(own[0]["params"]),
                "hardware": hardware,
            }
        )
    return rows


def table_of(rows: list[dict[str, object]]) -> str:
    """Accuracies as a Markdown table, a method a row, a dataset a column, the best of a column in bold."""
    datasets = list(dict.fromkeys(row["dataset"] for row in rows))
    cells = {(row["dataset"], row["method"]): row for row in rows}
    best = {data: max(row["accuracy"] for row in rows if row["dataset"] == data) for data in datasets}  # type: ignore[type-var]
    lines = [f"| method | {' | '.join(map(str, datasets))} |", "|---|" + "---|" * len(datasets)]
    for method in dict.fromkeys(row["method"] for row in rows):
        line = []
        for data in datasets:
            row = cells.get((data, method))
            text = "" if row is None else f"{row['accuracy']:.2f} ± {row['deviation'] or 0:.2f}"
            line.append(f"**{text}**" if row is not None and row["accuracy"] == best[data] else text)
        lines.append(f"| {method} | {' | '.join(line)} |")
    return "\n".join(lines)


def main() -> None:
    """Read the records, write the CSV, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=RESULTS / "real-features.csv")
    parser.add_argument("--hardware", default=hardware(), help="where the records were made, if not here")
    arguments = parser.parse_args()
    records = [record for path in arguments.records for record in json.loads(path.read_text())]
    rows = rows_of(records, arguments.hardware)
    write(arguments.out, rows)
    print(table_of(rows))


if __name__ == "__main__":
    main()

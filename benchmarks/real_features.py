"""The table of docs/methods.md from the records of `pta eval`: mean and deviation over seeds, speed, size of state.

    pta eval --features A.npz --features B.npz --method all --seed 1 … --seed 5 --device cuda --json records.json
    python benchmarks/real_features.py records.json     writes benchmarks/results/real-features.csv

Several records files are joined, so that methods with other options can be measured apart.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from result_file import RESULTS, Row, write

from pta.measure.provenance import hardware

Records = list[dict[str, Any]]


def title(record: dict[str, Any]) -> str:
    """What a row is called: the method, and what it stands on."""
    base = record["params"].get("base")
    return f"pta on {base}" if record["method"] == "combined" else str(record["method"])


def rows_of(records: Records, hardware: str) -> list[Row]:
    """One row for each dataset and method."""
    groups: dict[tuple[str, str], Records] = defaultdict(list)
    for record in records:
        groups[record["dataset"], title(record)].append(record)
    rows: list[Row] = []
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


def main() -> None:
    """Read the records, write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=RESULTS / "real-features.csv")
    parser.add_argument("--hardware", default=hardware(), help="where the records were made, if not here")
    arguments = parser.parse_args()
    records = [record for path in arguments.records for record in json.loads(path.read_text())]
    write(arguments.out, rows_of(records, arguments.hardware))


if __name__ == "__main__":
    main()

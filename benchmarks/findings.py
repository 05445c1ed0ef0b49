"""What we found when checking the paper, measured: the tables behind docs/findings.md.

    python benchmarks/findings.py FOLDER                      FOLDER holds feature files (.npz)
    python benchmarks/findings.py FOLDER --only collapse      one finding

`one-class` reads CoOp's split_zhou_*.json in FOLDER, `views` reads nothing there. Writes results/findings-NAME.csv for
each finding that FOLDER has something for.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from finding import anchor, collapse, forgetting, half, one_class, poison, streams, switches, views
from result_file import RESULTS, Row, write

FINDINGS: dict[str, Callable[[Path], Iterator[Row]]] = {
    "collapse": collapse.measure,
    "one-class": one_class.measure,
    "switches": switches.measure,
    "anchor": anchor.measure,
    "views": views.measure,
    "half": half.measure,
    "poison": poison.measure,
    "streams": streams.measure,
    "forgetting": forgetting.measure,
}


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", choices=FINDINGS, nargs="+", default=list(FINDINGS))
    parser.add_argument("--out", type=Path, default=RESULTS, help="the folder for the tables")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name in arguments.only:
        write(arguments.out / f"findings-{name}.csv", FINDINGS[name](arguments.folder))


if __name__ == "__main__":
    main()

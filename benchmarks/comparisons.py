"""The commands of docs/compare.md, and what they give: benchmarks/results/compare.csv and sweep.csv.

python benchmarks/comparisons.py FOLDER      FOLDER holds feature files of Caltech101 and Stanford Cars (.npz)
"""

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from result_file import RESULTS, Row, write

CALTECH, CARS = "caltech101_test_sub.npz", "stanford_cars_val.npz"
SEEDS = [option for seed in (1, 2, 3) for option in ("--seed", str(seed))]


def run(folder: Path, *command: str) -> None:
    """One call of pta, in a folder."""
    subprocess.run([sys.executable, "-m", "pta", *command], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def compared(folder: Path, *command: str) -> Iterator[Row]:
    """What `pta compare` says, a row for each dataset."""
    run(folder, "compare", *command, "--json", "compared.json")
    for one in json.loads((folder / "compared.json").read_text(encoding="utf-8")):
        yield {
            "dataset": one["dataset"],
            "a": one["a"]["label"],
            "b": one["b"]["label"],
            "accuracy_a": f"{one['a']['accuracy']:.2f}",
            "accuracy_b": f"{one['b']['accuracy']:.2f}",
            "difference": f"{one['difference']:.2f}",
            "low": f"{one['interval'][0]:.2f}",
            "high": f"{one['interval'][1]:.2f}",
            "fixed": f"{one['fixed']:.1f}",
            "broken": f"{one['broken']:.1f}",
            "verdict": one["verdict"],
        }


def main() -> None:
    """Run the commands and write both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features", type=Path)
    caltech, cars = (str(parser.parse_args().features.resolve() / name) for name in (CALTECH, CARS))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        methods = ("--method", "tda", "--method", "pta")
        run(folder, "eval", "--features", caltech, "--features", cars, *methods, *SEEDS, "--json", "results.json")
        grid = ("--set", "pta.h=1,5,20,50,100", "--set", "pta.w=0.001,0.01,0.1")
        run(folder, "sweep", "--features", caltech, *grid, *SEEDS, "--json", "swept.json", "--csv", "swept.csv")
        with (folder / "swept.csv").open(newline="", encoding="utf-8") as file:
            write(RESULTS / "sweep.csv", csv.DictReader(file))
        of_methods = compared(folder, "results.json", "--a", "tda", "--b", "pta")
        of_values = compared(folder, "swept.json", "--a", "pta:h=20,w=0.01", "--b", "pta:h=5,w=0.1")
        write(RESULTS / "compare.csv", [*of_methods, *of_values])


if __name__ == "__main__":
    main()

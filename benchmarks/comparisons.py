"""The commands of docs/compare.md, and what they give: compare.csv, compare-overall.csv and sweep.csv in results.

python benchmarks/comparisons.py FOLDER      FOLDER holds feature files (.npz), those of Caltech101 and Cars among them
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
OVERALL = ("tda", "bca", "sca", "onzeta", "pta", "wpta")
FIGURE = RESULTS.parents[1] / "docs" / "images" / "overall.svg"
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


def overall(folder: Path) -> Iterator[Row]:
    """What `pta compare --overall` says, a row for each method."""
    run(folder, "compare", "all.json", "--overall", "--a", "clip", "--plot", str(FIGURE), "--json", "overall.json")
    kept = ("a", "b", "sets", "wins", "ties", "losses")
    for one in json.loads((folder / "overall.json").read_text(encoding="utf-8")):
        low, high = one["interval"]
        measured = {"difference": one["difference"], "low": low, "high": high}
        chances = {name: f"{one[name]:.2g}" for name in ("p_value", "corrected")}
        yield {name: one[name] for name in kept} | {name: f"{value:.2f}" for name, value in measured.items()} | chances


def main() -> None:
    """Run the commands and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features", type=Path)
    features = parser.parse_args().features.resolve()
    caltech, cars = (str(features / name) for name in (CALTECH, CARS))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        every = [option for name in ("clip", *OVERALL) for option in ("--method", name)]
        run(folder, "eval", "--features", str(features), *every, *SEEDS, "--json", "all.json")
        write(RESULTS / "compare-overall.csv", overall(folder))
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

"""The demo on every shift and severity, with nothing chosen: what a user of `pta demo` may expect.

python benchmarks/demo.py            writes benchmarks/results/demo.csv
"""

import csv
from pathlib import Path

from pta.corruptions.shifts import SHIFTS
from pta.demo import run_demo

SEEDS = (1, 2, 3)


def main() -> None:
    """Run them all."""
    with (Path(__file__).parent / "results" / "demo.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["shift", "severity", "seed", "zero_shot", "pta", "gain", "fixed", "broken"])
        for shift in SHIFTS:
            for severity in range(1, 6):
                for seed in SEEDS:
                    result = run_demo(shift, severity, seed)
                    before, after = result.before, result.after
                    counts = len(result.fixed), len(result.broken)
                    writer.writerow(
                        [shift, severity, seed, f"{before:.2f}", f"{after:.2f}", f"{result.gain:+.2f}", *counts]
                    )
                    print(f"{shift:15} {severity} seed {seed}: {before:.2f} → {after:.2f}", flush=True)


if __name__ == "__main__":
    main()

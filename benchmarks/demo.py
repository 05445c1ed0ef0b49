"""The demo on every shift and severity, with nothing chosen: what a user of `pta demo` may expect.

python benchmarks/demo.py            writes benchmarks/results/demo.csv
"""

from collections.abc import Iterator
from itertools import product

from result_file import RESULTS, Row, write

from pta.data.shifts.images import SHIFTS
from pta.measure.demo.run_demo import run_demo

SEEDS = (1, 2, 3)


def rows() -> Iterator[Row]:
    """One for each shift, severity and seed."""
    for shift, severity, seed in product(SHIFTS, range(1, 6), SEEDS):
        difference = run_demo(shift, severity, seed).difference
        before, after = difference.accuracies
        yield {
            "shift": shift,
            "severity": severity,
            "seed": seed,
            "zero_shot": f"{before:.2f}",
            "pta": f"{after:.2f}",
            "gain": f"{difference.difference:+.2f}",
            "fixed": int(difference.fixed),
            "broken": int(difference.broken),
        }


if __name__ == "__main__":
    write(RESULTS / "demo.csv", rows())

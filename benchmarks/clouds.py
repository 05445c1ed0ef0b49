"""PTA against others on the packaged point clouds, with intervals: benchmarks/results/clouds.csv.

python benchmarks/clouds.py FOLDER [--severity 2]     FOLDER is where `pta reproduce … --offline --out FOLDER` wrote

The same clouds come under seven corruptions, so what is resampled are clouds: for each, the mean over corruptions and
seeds of how often PTA is right minus how often the other is. Results that FOLDER holds are not made again.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from result_file import RESULTS, Row, write

from pta.evaluation.bits import read_bits
from pta.evaluation.compare import Resampling
from pta.evaluation.result_store import ResultStore
from pta.reproduction.declaration import load_experiment
from pta.reproduction.library import Library
from pta.reproduction.measure import measure
from pta.reproduction.plan import place
from pta.reproduction.world import load_world

TABLES = ("table12", "table13", "table3", "table14", "table15")  # by severity
SECTIONS = {"procedural": "ModelNet-C", "furniture": "Furniture (ours)"}
OTHERS = ("ULIP", "Point-Cache, not prefilled (ours)", "Point-Cache")


def compared(severity: int, library: Library, store: ResultStore) -> Iterator[Row]:
    """PTA with each of the others, for each source."""
    plan = place(load_experiment(TABLES[severity]), load_world("offline"))
    outcomes = measure([plan], library, store)
    corruptions = [at for at, column in enumerate(plan.columns) if column.datasets]
    for source, section in SECTIONS.items():

        def right(label: str, section: str = section) -> NDArray[np.float64]:
            """How often each cloud is answered correctly, over corruptions and seeds."""
            jobs = (job for at in corruptions for job in plan.jobs[f"{section}: {label}", at])
            records = (record for job in jobs for record in outcomes[job.key].records)
            return np.mean([read_bits(record["right"], record["samples"]) for record in records], axis=0)

        pta = right("PTA")
        for label in OTHERS:
            other = right(label)
            low, high = Resampling().interval(pta - other)
            yield {
                "source": source,
                "severity": severity,
                "other": label,
                "clouds": len(pta),
                "accuracy_other": f"{100 * other.mean():.2f}",
                "accuracy_pta": f"{100 * pta.mean():.2f}",
                "difference": f"{100 * (pta - other).mean():.2f}",
                "low": f"{100 * low:.2f}",
                "high": f"{100 * high:.2f}",
            }


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--severity", type=int, nargs="+", default=range(len(TABLES)))
    given, world = parser.parse_args(), load_world("offline")
    library = Library(given.folder / "features", model=world.model, models=world.models)
    store = ResultStore(given.folder)
    rows = (row for severity in given.severity for row in compared(severity, library, store))
    write(RESULTS / "clouds.csv", rows)


if __name__ == "__main__":
    main()

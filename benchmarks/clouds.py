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

from pta.measure.cached_evaluation import evaluate_once
from pta.measure.difference import Resampling
from pta.measure.record import read_bits
from pta.measure.reproduce.declaration import load_experiment
from pta.measure.reproduce.library import Library
from pta.measure.reproduce.plan import Plan, place
from pta.measure.reproduce.profile import load_profile
from pta.measure.result_store import ResultStore

TABLES = ("table12", "table13", "table3", "table14", "table15")  # by severity
SECTIONS = {"procedural": "ModelNet-C", "furniture": "Furniture (ours)"}
NOT_PREFILLED = "Point-Cache, not prefilled (ours)"
ALPHAS = {"positive_alpha": 4.0, "negative_alpha": 0.117}  # Point-Cache's, for logits of 100 times the cosine


def compared(severity: int, library: Library, store: ResultStore) -> Iterator[Row]:
    """PTA with each of the others, for each source."""
    plan = place(load_experiment(TABLES[severity]), load_profile("offline"))
    share = library.encoder_of("point_shapes/furniture").scale / 100
    scaled = {name: share * alpha for name, alpha in ALPHAS.items()}
    for source, section in SECTIONS.items():
        others = {label: right(plan, f"{section}: {label}", library, store) for label in ("ULIP", "Point-Cache")}
        others["Point-Cache, not prefilled"] = right(plan, f"{section}: {NOT_PREFILLED}", library, store)
        others["Point-Cache, not prefilled, α scaled"] = right(
            plan, f"{section}: {NOT_PREFILLED}", library, store, **scaled
        )
        pta = right(plan, f"{section}: PTA", library, store)
        for label, other in others.items():
            low, high = Resampling().test(pta - other).interval
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


def right(plan: Plan, row: str, library: Library, store: ResultStore, **changed: float) -> NDArray[np.float64]:
    """How often a row answers each cloud correctly, over corruptions and seeds."""
    found = []
    for at in range(len(plan.columns)):
        for job in plan.jobs[row, at]:
            data = library.features(job.dataset, templates=job.templates, needs=job.needs)
            params = {**job.params, **changed}
            for record in evaluate_once(store, data, job.method, params, job.seeds, stream=job.stream):
                found.append(read_bits(record["right"], record["samples"]))
    return np.mean(found, axis=0)


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--severity", type=int, nargs="+", default=range(len(TABLES)))
    given, profile = parser.parse_args(), load_profile("offline")
    library = Library(given.folder / "features", model=profile.model, models=profile.models)
    store = ResultStore(given.folder)
    write(RESULTS / "clouds.csv", (row for severity in given.severity for row in compared(severity, library, store)))


if __name__ == "__main__":
    main()

"""Predictions as `pta eval --predictions` writes them: METHOD-SEED.csv, in stream order."""

import csv
import io
from pathlib import Path

from pta.evaluation.record import Evaluation
from pta.files import write_atomically


def write_predictions(folder: Path, evaluation: Evaluation) -> Path:
    """Write the sample number, the label (empty if unknown) and the prediction at each position; where they are."""
    run = evaluation.run
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["index", "label", "prediction"])
    labels = [""] * len(run.order) if run.labels is None else run.labels.tolist()
    writer.writerows(zip(run.order.tolist(), labels, run.predictions.tolist(), strict=True))
    path = folder / f"{run.method}-{evaluation.seed}.csv"
    write_atomically(path, text.getvalue().encode())
    return path

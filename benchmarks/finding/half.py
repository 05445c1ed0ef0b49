"""What half precision does to small β: their number, the length of P after a stream, and accuracy."""

import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from result_file import Row

from finding.table import feature_files, percent
from finding.unguarded import Unguarded, stream
from pta import PTA
from pta.data.orders import dirichlet, iid
from pta.measure.stream_run import run_stream

SETTINGS = ((20.0, 0.01), (50.0, 0.01), (1000.0, 0.001))  # h and w: usual, Caltech101 and point clouds, not i.i.d.
STATES = ("float32", "bfloat16", "float16")
SEED, LARGE = 1, 500  # more classes are left out: half-precision state goes sample by sample


def steps(h: float) -> tuple[int, float]:
    """How many values β takes in float16 arithmetic for s from 0.1 to 1, and β(0.1)."""
    bits = np.arange(np.float16(0.1).view(np.uint16), np.float16(1.0).view(np.uint16) + 1, dtype=np.uint16)
    beta = Unguarded(h=h, min_probability=0.0).share(torch.from_numpy(bits.view(np.float16)))
    return len(beta.unique()), float(beta[0])


def measure(folder: Path) -> Iterator[Row]:
    """Three settings, two streams: `pta` with state in three precisions, and all arithmetic in float16."""
    for data in (data for data in feature_files(folder) if data.classifier.classes <= LARGE):
        orders = {"iid": iid(len(data.samples), SEED), "dirichlet 0.001": dirichlet(data.labels, 0.001, SEED)}
        for (h, w), (kind, order) in product(SETTINGS, orders.items()):
            labels = np.asarray(data.labels)[order]
            answers: dict[str, tuple[NDArray[np.int64], torch.Tensor]] = {}
            for state in STATES:
                with warnings.catch_warnings(action="ignore"):  # that float16 is too coarse is what is measured
                    adapter = PTA(data.classifier, h=h, w=w, state_dtype=state)
                run = run_stream(adapter, data.samples, data.labels, order)
                answers[f"{state} state"] = run.predictions, adapter.knowledge
            outcome = stream(Unguarded(h=h, w=w, dtype=torch.float16), data, order)
            answers["float16 arithmetic"] = outcome.predictions, outcome.knowledge
            values, smallest = steps(h)
            for precision, (predictions, knowledge) in answers.items():
                yield {
                    "dataset": data.name,
                    "h": f"{h:g}",
                    "w": f"{w:g}",
                    "stream": kind,
                    "precision": precision,
                    "accuracy": percent(predictions == labels),
                    "median_length_of_p": f"{_median_length(knowledge):.4f}",
                    "beta_values_in_float16": values,
                    "beta_at_s_0.1_in_float16": f"{smallest:.6f}",
                }


def _median_length(knowledge: torch.Tensor) -> float:
    """Over the classes that anything has flowed into."""
    lengths = knowledge.double().norm(dim=1)
    return float(lengths[lengths > 0].median())

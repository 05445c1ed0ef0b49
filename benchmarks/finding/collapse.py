"""Which settings end in always naming one class when 0/0 is left to itself."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import torch
from result_file import Row

from finding.table import feature_files, percent
from finding.unguarded import Unguarded, stream
from pta.data.orders import iid

DTYPES = (torch.float64, torch.float32, torch.float16)
LARGE = 500  # classes; float64 is left out there, it takes minutes


def measure(folder: Path) -> Iterator[Row]:
    """Every setting, on the order of seed 1."""
    for data in feature_files(folder):
        order = iid(len(data.samples), 1)
        labels = np.asarray(data.labels)[order]
        for rule in settings():
            if rule.dtype == torch.float64 and data.classifier.classes > LARGE:
                continue
            outcome = stream(rule, data, order)
            named = np.bincount(outcome.predictions, minlength=data.classifier.classes)
            yield {
                "dataset": data.name,
                "form": rule.form,
                "weight": rule.weight,
                "w": rule.w,
                "mask": rule.min_probability,
                "precision": str(rule.dtype).removeprefix("torch."),
                "accuracy": percent(outcome.predictions == labels),
                "answers_that_are_the_commonest": f"{100 * named.max() / len(order):.2f}",
                "first_nan_after": "never" if outcome.first_nan is None else outcome.first_nan,
                "samples_of_the_first_class": percent(labels == 0),
            }


def settings() -> Iterator[Unguarded]:
    """Both forms, both weights, with and without anchor and mask, in every precision."""
    forms, weights = ("released", "printed"), ("saturating", "raw")
    for form, weight, w, mask, dtype in product(forms, weights, (0.01, 0.0), (0.1, 0.0), DTYPES):
        yield Unguarded(form=form, weight=weight, w=w, min_probability=mask, dtype=dtype)

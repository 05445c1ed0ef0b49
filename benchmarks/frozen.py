"""What a state answers once it learns no more, by how much it has learned: all online methods against zero-shot.

    python benchmarks/frozen.py FILE …         writes benchmarks/results/frozen.csv

Every method that learns, that features alone suffice for, and that answers one sample at a time, at its defaults. Of a
shuffled stream it learns the first samples: PER_CLASS per class of the list on average, as far as the first half goes,
and the whole half. Then it answers the second half, always the same samples, in two ways: `frozen` without learning,
`going_on` while it learns them. A row holds means over SEEDS: these accuracies and zero-shot's in percent, what both
gain over zero-shot in points, and `own`, the samples per class by which the package decides whether to warn
(`pta.methods.frozen`). On files of more than LARGE samples only the first seed is measured.

Methods that are refused for lack of memory, or are too slow for the classes, are left out as in unbalanced.py.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np
import torch
from balance import BATCH, LARGE, measured
from result_file import Row, write
from torch import Tensor
from unbalanced import SEEDS, methods_of, opened, options

from pta import create_adapter
from pta.data.features import FeatureFile
from pta.data.orders import iid
from pta.measure.metrics import accuracy
from pta.measure.provenance import hardware
from pta.measure.stream import Stream
from pta.methods import adapter_class
from pta.methods.frozen import learned_per_class

PER_CLASS = (1, 2, 4, 8, 16, 32)
COLUMNS = ("frozen", "going_on", "zero_shot", "frozen_gain", "going_on_gain", "own")


class Job(NamedTuple):
    """What makes the rows of a method on a file."""

    path: Path
    method: str
    seeds: tuple[int, ...]


def lengths_of(data: FeatureFile) -> dict[str, int]:
    """How many samples are learned, by the title of the row."""
    half, classes = len(data.samples) // 2, data.classifier.classes
    return {f"{count}": count * classes for count in PER_CLASS if count * classes < half} | {"half": half}


def found_in(data: FeatureFile, method: str, seed: int) -> Iterator[tuple[float, ...]]:
    """What `COLUMNS` name, for each length in turn."""
    order, lengths = iid(len(data.samples), seed), lengths_of(data)
    features, labels = data.samples.features[torch.from_numpy(order)], np.asarray(data.labels)[order]
    second = slice(lengths["half"], None)

    def right(answer: Callable[[Tensor], Tensor]) -> float:
        answers = torch.cat([answer(part).argmax(dim=1) for part in features[second].split(BATCH)])
        return accuracy(answers.numpy() == labels[second])

    zero_shot = right(data.classifier.logits)
    adapter = create_adapter(method, data.classifier, source=len(order))
    for length in lengths.values():
        for part in features[adapter.position : length].split(BATCH):
            adapter.step(part)
        frozen, going_on = right(adapter.predict), right(adapter.clone().step)
        gains = frozen - zero_shot, going_on - zero_shot
        yield frozen, going_on, zero_shot, *gains, learned_per_class(adapter)[0]


def rows_of(job: Job) -> list[Row]:
    """One row for each length, with means over the seeds."""
    data = opened(job.path)
    found = zip(*(found_in(data, job.method, seed) for seed in job.seeds), strict=True)
    means = [[round(fmean(values), 2) for values in zip(*seeds, strict=True)] for seeds in found]
    return [
        {
            "file": data.name,
            "method": job.method,
            "per_class": title,
            "learned": length,
            "answered": (len(data.samples) + 1) // 2,
            "seeds": len(job.seeds),
            **dict(zip(COLUMNS, of_length, strict=True)),
            "hardware": hardware(),
        }
        for (title, length), of_length in zip(lengths_of(data).items(), means, strict=True)
    ]


def main() -> None:
    """Measure every file and write the table."""
    given = options(__doc__, "frozen.csv").parse_args()
    jobs = [
        Job(path, method, SEEDS[: 1 if len(opened(path).samples) > LARGE else given.seeds])
        for path in given.files
        for method in methods_of(opened(path), Stream())
        if adapter_class(method).scope == "sample" and method != "clip" and method in (given.method or [method])
    ]
    write(given.out, measured(rows_of, jobs, given.jobs))


if __name__ == "__main__":
    main()

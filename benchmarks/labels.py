"""What labels of a person add, by their number and by how their samples are chosen: pta, wpta and tda.

    python benchmarks/labels.py FILE …         writes benchmarks/results/labels.csv

Of a shuffled stream, SHARES (percent) of the samples get their true label at their turn; `share` 0 is the method as it
is. All choices can be made while the stream runs:

* `random`: so many samples, drawn in advance.
* `low margin`: the difference of the two largest zero-shot probabilities is among the share smallest of all so far.
  The number of labels is about the share.
* `changed`: the answer is not zero-shot's, and fewer labels than the share of all samples so far were given. What is
  not used is kept for later. There are fewer labels than the share if too few answers change.

A row holds means over SEEDS, and for gains the smallest and the largest (`low`, `high`). `labelled` is the number of
labels. The other columns are of the samples without a label: accuracy in percent, and `gain`, that accuracy minus the
one of the same method without any label on the same samples, in points; those that begin with `half` are of the second
half of the stream. Columns with `every` count labelled samples, too: their answers do not depend on their labels, and
they are the same samples for every choice. With `changed` the samples without a label are those that kept the answer of
zero-shot, and a gain on these alone is biased.

`label_weight` takes its other values with `random` and the shares of WEIGHT_SHARES. Values are compared on the files
whose names begin with one of DEVELOPMENT, and shown on the others (`role`).
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch
from balance import BATCH, measured
from numpy.typing import NDArray
from result_file import Row, write
from torch import Tensor
from unbalanced import opened, options

from pta import create_adapter
from pta.core.labels import UNKNOWN
from pta.data.orders import iid
from pta.measure.metrics import accuracy
from pta.measure.provenance import hardware
from pta.methods.adapter import Adapter

SEEDS = (1, 2, 3)
SHARES, WEIGHT_SHARES = (1, 5, 20), (5, 20)
CHOICES = ("random", "low margin", "changed")
OTHER_WEIGHTS: dict[str, tuple[float, ...]] = {"pta": (0.5, 2.0, 5.0), "wpta": (0.25, 0.5), "tda": ()}
DEVELOPMENT = ("caltech101", "stanford_cars", "ucf101")
AHEAD = 16  # samples that are answered at once while any of them may get a label

Flags = NDArray[np.bool_]
Classes = NDArray[np.int64]


class Setting(NamedTuple):
    """What a row is about."""

    path: Path
    method: str
    choice: str
    share: int  # percent
    label_weight: float = 1.0


class Job(NamedTuple):
    """What is run at once."""

    setting: Setting
    seed: int


class Ordered(NamedTuple):
    """The samples of a file in the order of a seed."""

    features: Tensor
    labels: Classes
    zero_shot: Classes
    margins: list[float]  # between the two largest zero-shot probabilities

    def labels_at(self, chosen: Flags, rows: slice) -> Classes:
        """The labels that are known of these rows."""
        return np.where(chosen[rows], self.labels[rows], UNKNOWN)


def ordered(path: Path, seed: int) -> Ordered:
    """A file in the order of a seed."""
    data = opened(path)
    order = iid(len(data.samples), seed)
    features = data.samples.features[torch.from_numpy(order)]
    probabilities = data.classifier.logits(features).double().softmax(dim=1)
    first, second = probabilities.topk(2).values.T
    labels = np.asarray(data.labels)[order]
    return Ordered(features, labels, probabilities.argmax(dim=1).numpy(), (first - second).tolist())


def drawn(count: int, share: int, seed: int) -> Flags:
    """Samples drawn at random; those of a smaller share are among those of a larger one."""
    chosen = np.zeros(count, dtype=bool)
    chosen[np.random.default_rng([seed, 1]).permutation(count)[: round(share * count / 100)]] = True
    return chosen


def low_margins(margins: list[float], share: int) -> Flags:
    """Whether each margin is among the share smallest of those so far, itself included."""
    chosen, so_far = np.zeros(len(margins), dtype=bool), list[float]()
    for row, margin in enumerate(margins):
        insort(so_far, margin)
        chosen[row] = bisect_left(so_far, margin) < round(share * len(so_far) / 100)
    return chosen


def answers_to(stream: Ordered, adapter: Adapter, chosen: Flags) -> Classes:
    """The answers while the labels of the chosen samples are learned."""
    answers = []
    for start in range(0, len(chosen), BATCH):
        rows = slice(start, start + BATCH)
        labels = stream.labels_at(chosen, rows) if chosen[rows].any() else None
        answers.append(adapter.step(stream.features[rows], labels).argmax(dim=1))
    return torch.cat(answers).numpy()


def answers_with_changed(stream: Ordered, adapter: Adapter, share: int) -> tuple[Classes, Flags]:
    """The answers while changed ones get a label, and which got one."""
    count = len(stream.labels)
    answers, chosen, start = np.empty(count, dtype=np.int64), np.zeros(count, dtype=bool), 0
    while start < count:
        earliest = -(-100 * (int(chosen.sum()) + 1) // share) - 1  # the first row at which one label more is allowed
        if start < earliest:
            rows = slice(start, min(earliest, start + BATCH, count))
            answers[rows] = adapter.step(stream.features[rows]).argmax(dim=1)
        else:
            rows = slice(start, min(start + AHEAD, count))
            ahead = adapter.clone()
            answers[rows] = ahead.step(stream.features[rows]).argmax(dim=1)
            changed = np.flatnonzero(answers[rows] != stream.zero_shot[rows])
            if len(changed):
                rows = slice(start, start + int(changed[0]) + 1)
                chosen[rows.stop - 1] = True
                adapter.step(stream.features[rows], stream.labels_at(chosen, rows))
            else:
                adapter = ahead
        start = rows.stop
    return answers, chosen


def compared(job: Job) -> list[Row]:
    """The numbers of one order."""
    setting, stream = job.setting, ordered(job.setting.path, job.seed)
    given: dict[str, Any] = {} if setting.method == "tda" else {"label_weight": setting.label_weight}
    classifier, count = opened(setting.path).classifier, len(stream.labels)
    nothing = np.zeros(count, dtype=bool)
    base = answers_to(stream, create_adapter(setting.method, classifier), nothing)
    adapter = create_adapter(setting.method, classifier, **given)
    if setting.choice == "changed":
        answers, chosen = answers_with_changed(stream, adapter, setting.share)
    else:
        is_random = setting.choice == "random"
        chosen = drawn(count, setting.share, job.seed) if is_random else low_margins(stream.margins, setting.share)
        answers = answers_to(stream, adapter, chosen)
    right, right_before, half = answers == stream.labels, base == stream.labels, np.arange(count) >= count // 2
    found: Row = {"labelled": int(chosen.sum())}
    for name, counted in {"": ~chosen, "half_": half & ~chosen}.items():
        found[f"{name}accuracy"] = accuracy(right[counted])
        found[f"{name}gain"] = accuracy(right[counted]) - accuracy(right_before[counted])
    for name, counted in {"": ~nothing, "half_": half}.items():
        found[f"{name}gain_every"] = accuracy(right[counted]) - accuracy(right_before[counted])
    return [found]


def row_of(setting: Setting, found: tuple[Row, ...]) -> Row:
    """Means and ranges over the seeds."""
    name = opened(setting.path).name
    row: Row = {
        "file": name,
        "role": "development" if name.startswith(DEVELOPMENT) else "shown",
        **setting._asdict(),
        "seeds": len(found),
        "samples": len(opened(setting.path).samples),
    }
    del row["path"]
    for column in found[0]:
        values = [float(str(one[column])) for one in found]
        row[column] = round(fmean(values), 2)
        if "gain" in column:
            row[f"{column}_low"], row[f"{column}_high"] = round(min(values), 2), round(max(values), 2)
    return row | {"hardware": hardware()}


def settings_of(path: Path, methods: list[str]) -> Iterator[Setting]:
    """All that is measured on a file, the slowest first."""
    for method in methods:
        for share in reversed(SHARES):
            for choice in reversed(CHOICES):
                yield Setting(path, method, choice, share)
        for share in WEIGHT_SHARES:
            for weight in OTHER_WEIGHTS[method]:
                yield Setting(path, method, "random", share, weight)
        yield Setting(path, method, "random", 0)


def main() -> None:
    """Measure every file, the largest first, and write the table."""
    parser = options(__doc__, "labels.csv")
    parser.set_defaults(seeds=len(SEEDS))
    given = parser.parse_args()
    files = sorted(given.files, key=lambda path: -path.stat().st_size)
    methods = [method for method in ("wpta", "tda", "pta") if method in (given.method or OTHER_WEIGHTS)]
    settings = [setting for path in files for setting in settings_of(path, methods)]
    seeds = SEEDS[: given.seeds]
    found = measured(compared, [Job(setting, seed) for setting in settings for seed in seeds], given.jobs)
    write(given.out, map(row_of, settings, zip(*[found] * len(seeds), strict=True)))


if __name__ == "__main__":
    main()

"""Several methods over several seeds of one dataset, and the summary of each."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

import torch

from pta.adapters.base import Adapter, create_adapter
from pta.datasets.features import FeatureFile
from pta.experiments.run import Run, iid_order, run_stream


@dataclass(frozen=True)
class Evaluation:
    """One method's run over one seed's order of a dataset."""

    dataset: str
    seed: int
    run: Run
    zero_shot_accuracy: float | None

    def record(self) -> dict[str, Any]:
        """What is written to JSON; accuracies are in percent."""
        return {
            "dataset": self.dataset,
            "method": self.run.method,
            "params": self.run.parameters,
            "seed": self.seed,
            "n": len(self.run.order),
            "accuracy": self.run.accuracy,
            "zero_shot_accuracy": self.zero_shot_accuracy,
            "seconds": self.run.seconds,
        }


@dataclass(frozen=True)
class Summary:
    """A method over all its seeds; accuracies in percent, None where they need labels or a second seed."""

    dataset: str
    method: str
    accuracy: float | None
    deviation: float | None
    gain: float | None
    samples_per_second: float

    @classmethod
    def of(cls, evaluations: Sequence[Evaluation]) -> "Summary":
        """Summarise the evaluations of one method on one dataset."""
        first = evaluations[0]
        found = [evaluation.run.accuracy for evaluation in evaluations if evaluation.run.accuracy is not None]
        accuracy = fmean(found) if found else None
        zero_shot = first.zero_shot_accuracy
        return cls(
            first.dataset,
            first.run.method,
            accuracy,
            stdev(found) if len(found) > 1 else None,
            None if accuracy is None or zero_shot is None else accuracy - zero_shot,
            sum(len(e.run.order) for e in evaluations) / max(sum(e.run.seconds for e in evaluations), 1e-9),
        )


def evaluate(
    data: FeatureFile,
    methods: Mapping[str, Mapping[str, Any]],
    seeds: Sequence[int],
    *,
    batch: int = 256,
    on_batch: Callable[[str, int, int], None] | None = None,
) -> Iterator[Evaluation]:
    """Run each method (name → parameters) over the i.i.d. order of each seed.

    `on_batch` is told method, seed and number of samples as batches are done.
    """
    zero_shot = None
    if data.labels is not None:
        predicted = data.classifier.logits(data.samples.features.to(data.classifier.anchors)).argmax(dim=1)
        zero_shot = 100 * float((predicted == torch.from_numpy(data.labels)).double().mean())
    for method, parameters in methods.items():
        # compiled code is loaded once, and that is not the method's speed
        create_adapter(method, data.classifier, **parameters).step(data.samples[:batch])
        for seed in seeds:
            adapter: Adapter = create_adapter(method, data.classifier, **parameters)
            run = run_stream(
                adapter,
                data.samples,
                data.labels,
                iid_order(len(data.samples), seed),
                batch=batch,
                on_batch=on_batch and (lambda done, m=method, s=seed: on_batch(m, s, len(done))),
            )
            yield Evaluation(data.name, seed, run, zero_shot)

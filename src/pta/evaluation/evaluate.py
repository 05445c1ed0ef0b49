"""Several methods over several seeds of one dataset, and the summary of each."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from pta.adapters import Adapter, create_adapter, needs_model
from pta.datasets.features import FeatureFile
from pta.evaluation.record import Evaluation, Record
from pta.evaluation.same_model import require_same_model
from pta.evaluation.stream import Stream
from pta.evaluation.stream_run import run_stream
from pta.towers import Model

OnBatch = Callable[[str, int, int], None]
"""Told method, seed and number of samples as batches are done."""

_WARM_UP = 16  # samples


@dataclass(frozen=True)
class Summary:
    """A method over all its seeds; accuracies in percent, None where they need labels or a second seed."""

    dataset: str
    method: str
    accuracy: float | None
    deviation: float | None
    gain: float | None
    worst_class: float | None
    calibration_error: float | None
    samples_per_second: float
    state_bytes: int

    @classmethod
    def of(cls, records: Sequence[Record]) -> "Summary":
        """Summarise the records of one method on one dataset."""
        first = records[0]
        labelled = [record for record in records if record["accuracy"] is not None]
        found = [record["accuracy"] for record in labelled]

        def mean(value_of: Callable[[Record], float]) -> float | None:
            return fmean(map(value_of, labelled)) if labelled else None

        return cls(
            dataset=first["dataset"],
            method=first["method"],
            accuracy=mean(lambda record: record["accuracy"]),
            deviation=stdev(found) if len(found) > 1 else None,
            gain=mean(lambda record: record["accuracy"] - record["zero_shot_accuracy"]),
            worst_class=mean(lambda record: record["worst_class"]["accuracy"]),
            calibration_error=mean(lambda record: record["calibration_error"]),
            samples_per_second=sum(record["n"] for record in records)
            / max(sum(record["seconds"] for record in records), 1e-9),
            state_bytes=first["state_bytes"],
        )


def evaluate(
    data: FeatureFile,
    methods: Mapping[str, Mapping[str, Any]],
    seeds: Sequence[int],
    *,
    stream: Stream | None = None,
    batch: int | None = None,
    model: Model | None = None,
    on_batch: OnBatch | None = None,
) -> Iterator[Evaluation]:
    """Run each method (name → parameters) over the stream of each seed, i.i.d. unless another is given.

    `batch` is the stream's usual one unless given; `model` is for methods that need one of its towers. What zero-shot
    got right is counted on the very samples of the run.
    """
    stream = stream or Stream()
    batch = batch or stream.usual_batch
    stream.require(data, batch)
    right = None if data.labels is None else data.zero_shot_predictions == data.labels
    orders = {seed: stream.order(data, seed, batch) for seed in seeds}
    seen = data.samples[: stream.length(data, batch)]
    for method, parameters in methods.items():

        def new(name: str = method, parameters: Mapping[str, Any] = parameters) -> Adapter:
            return create_adapter(name, data.classifier, model=model, source=seen, **parameters)

        if model is not None and needs_model(method, parameters):
            require_same_model(model, data)
        new().step(data.samples[:_WARM_UP])  # compiled code is loaded once, and that is not the method's speed
        for seed in seeds:
            adapter = new()
            run = run_stream(
                adapter,
                data.samples,
                data.labels,
                orders[seed],
                batch=batch,
                drop_last=stream.drop_last,
                lookahead=stream.lookahead,
                on_batch=on_batch and (lambda done, m=method, s=seed: on_batch(m, s, len(done))),
            )
            yield Evaluation(
                dataset=data.name,
                class_names=data.classifier.class_names,
                samples=len(data.samples),
                labels_digest=data.labels_digest,
                seed=seed,
                stream=stream.record(batch),
                run=run,
                zero_shot_right=None if right is None else right[run.order],
            )

"""Several methods over several seeds of one dataset, and the summary of each."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from pta.adapters.base import Adapter, create_adapter
from pta.datasets.features import FeatureFile
from pta.experiments.run import Run, run_stream
from pta.experiments.stream import Stream
from pta.token_tower import TokenTower

_WARM_UP = 16  # samples


@dataclass(frozen=True)
class Evaluation:
    """One method's run over one seed's order of a dataset."""

    dataset: str
    seed: int
    stream: dict[str, Any]
    run: Run
    zero_shot_accuracy: float | None

    def record(self) -> dict[str, Any]:
        """What is written to JSON; accuracies are in percent."""
        return {
            "dataset": self.dataset,
            "method": self.run.method,
            "params": self.run.parameters,
            "seed": self.seed,
            "stream": self.stream,
            "n": len(self.run.order),
            "accuracy": self.run.accuracy,
            "zero_shot_accuracy": self.zero_shot_accuracy,
            "seconds": self.run.seconds,
            "state_bytes": self.run.state_bytes,
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
    state_bytes: int

    @classmethod
    def of(cls, evaluations: Sequence[Evaluation]) -> "Summary":
        """Summarise the evaluations of one method on one dataset."""
        first = evaluations[0]
        found = [e.run.accuracy for e in evaluations if e.run.accuracy is not None]
        before = [e.zero_shot_accuracy for e in evaluations if e.zero_shot_accuracy is not None]
        return cls(
            first.dataset,
            first.run.method,
            fmean(found) if found else None,
            stdev(found) if len(found) > 1 else None,
            fmean(found) - fmean(before) if found and before else None,
            sum(len(e.run.order) for e in evaluations) / max(sum(e.run.seconds for e in evaluations), 1e-9),
            first.run.state_bytes,
        )


def evaluate(
    data: FeatureFile,
    methods: Mapping[str, Mapping[str, Any]],
    seeds: Sequence[int],
    *,
    stream: Stream | None = None,
    batch: int | None = None,
    tower: TokenTower | None = None,
    on_batch: Callable[[str, int, int], None] | None = None,
) -> Iterator[Evaluation]:
    """Run each method (name → parameters) over the stream of each seed, i.i.d. unless another is given.

    `batch` is the stream's usual one unless given; `tower` is for methods that look inside the model; `on_batch` is
    told method, seed and number of samples as batches are done. The zero-shot accuracy is that on the very samples of
    the run.
    """
    stream = stream or Stream()
    batch = batch or stream.usual_batch
    stream.require(data, batch)
    right = None if data.labels is None else data.zero_shot_predictions == data.labels
    orders = {seed: stream.order(data, seed, batch) for seed in seeds}
    seen = data.samples[: stream.length(data, batch)]
    for method, parameters in methods.items():

        def new(name: str = method, parameters: Mapping[str, Any] = parameters) -> Adapter:
            return create_adapter(name, data.classifier, source=seen, tower=tower, **parameters)

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
            zero_shot = None if right is None else 100 * float(right[run.order].mean())
            yield Evaluation(data.name, seed, stream.record(batch), run, zero_shot)

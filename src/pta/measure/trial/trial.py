"""Trial: zero-shot, the default and other methods on one stream of which some or all labels are known.

Every method runs over the whole stream in its own order, as `pta predict` would, and in three shuffled orders. It also
learns the first half of each shuffled order and then answers the second half without learning. Labels are only counted.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pta.data.features import FeatureFile
from pta.data.orders import iid
from pta.errors import InvalidSamples
from pta.measure.difference import Difference, Resampling, holm
from pta.measure.evaluate import evaluate
from pta.measure.metrics import calibration_error
from pta.measure.stream import Stream
from pta.measure.stream_run import StreamRun, on_one_thread, run_stream
from pta.methods import DEFAULT_METHOD, Adapter, create_adapter

SEEDS = (1, 2, 3)  # of the shuffled orders
LEAST_LABELS = 20
"""With fewer labelled samples an interval says nothing."""

COMPARED: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "zero-shot": ("clip", {}),
    DEFAULT_METHOD: (DEFAULT_METHOD, {}),
    f"{DEFAULT_METHOD} without gate": (DEFAULT_METHOD, {"gate": "none"}),
    "pta": ("pta", {}),
    "tda": ("tda", {}),
    "zero-shot with prior": ("clip", {"prior": "local"}),
}
"""What is compared: a name, the method and its parameters."""

_RISK = 0.05  # of recommending any method that is not better


@dataclass(frozen=True)
class LabelledStream:
    """Samples in the order in which they come, and what is known of their classes."""

    data: FeatureFile
    labels: NDArray[np.int64]  # N class numbers, −1 where unknown
    note: str  # what a reader must know about it

    def __post_init__(self) -> None:
        require_enough(self.labels[self.labels >= 0], self.data.classifier.class_names)

    @cached_property
    def firsts(self) -> NDArray[np.int64]:
        """For each sample the first one with the same features: copies are one sample that came several times."""
        found: dict[bytes, int] = {}
        rows = self.data.samples.features.numpy(force=True)
        return np.array([found.setdefault(row.tobytes(), number) for number, row in enumerate(rows)], np.int64)

    @property
    def twins(self) -> list[tuple[int, int]]:
        """Samples with a label, each with an earlier copy that has another label."""
        known = np.flatnonzero((self.labels >= 0) & (self.labels[self.firsts] >= 0))
        return [(int(self.firsts[at]), int(at)) for at in known if self.labels[self.firsts[at]] != self.labels[at]]

    def scored(self, run: StreamRun) -> StreamRun:
        """The run where labels are known; a copy has the number of the first."""
        at = np.flatnonzero(self.labels[run.order] >= 0)
        scored = run.at(at, self.labels[run.order[at]])
        return replace(scored, order=self.firsts[scored.order])


def is_sorted(labels: NDArray[np.int64]) -> bool:
    """Whether classes change less than half as often as in a shuffled order.

    >>> is_sorted(np.array([0, 0, 0, 1, 1, 1])), is_sorted(np.array([0, 1, 0, 0, 1, 1]))
    (True, False)
    """
    shares = np.bincount(labels) / len(labels)
    return int((labels[1:] != labels[:-1]).sum()) < (len(labels) - 1) * float(1 - shares @ shares) / 2


def require_enough(labels: NDArray[np.int64], class_names: Sequence[str]) -> None:
    """Refuse labels that no verdict can follow from."""
    if len(labels) < LEAST_LABELS:
        raise InvalidSamples(f"{len(labels)} labels are too few for a verdict; at least {LEAST_LABELS} are needed")
    if (labels == labels[0]).all():
        raise InvalidSamples(f"all labels are {class_names[labels[0]]}; a verdict needs two classes or more")


@dataclass(frozen=True)
class MethodResult:
    """One method on the labelled samples, by the order in which they came."""

    name: str
    given: StreamRun
    shuffled: tuple[StreamRun, ...]
    frozen: tuple[StreamRun, ...]  # the second half of each shuffled order, answered from the first; of a state, all

    @property
    def runs(self) -> dict[str, Sequence[StreamRun]]:
        """By order."""
        return {"given": [self.given], "shuffled": self.shuffled, "frozen": self.frozen}


@dataclass(frozen=True)
class Trial:
    """The results of all methods: zero-shot first, then the default."""

    stream: LabelledStream
    results: Sequence[MethodResult]

    @property
    def verdict(self) -> Difference:
        """`pta predict` with its defaults against zero-shot, in the order of the stream."""
        return self.gains[1]["given"]

    @cached_property
    def gains(self) -> list[dict[str, Difference]]:
        """Each method against zero-shot on the same samples, by order."""
        return [
            {order: Difference.between([*map(self._zero_shot, runs)], runs) for order, runs in result.runs.items()}
            for result in self.results
        ]

    @cached_property
    def recommended(self) -> tuple[MethodResult, Difference] | None:
        """The best method that is better than the default, if there is one, by intervals after Holm."""
        default, better = self.results[1], []
        others = [result for result in self.results if result is not default]
        p_values = [Difference.between([default.given], [other.given]).p_value for other in others]
        for other, p_value, corrected in zip(others, p_values, holm(p_values), strict=True):
            if corrected < _RISK:
                level = Resampling(level=1 - _RISK * p_value / corrected)  # its interval excludes 0, as p is that small
                difference = Difference.between([default.given], [other.given], level)
                better += [(other, difference)] if difference.better == "B" else []
        return max(better, key=lambda one: one[1].difference, default=None)

    def record(self) -> dict[str, Any]:
        """The numbers, ready for JSON; accuracies in percent."""
        advice = self.recommended
        return {
            "samples": len(self.stream.labels),
            "labelled": len(self.results[0].given.order),
            "order": self.stream.note,
            "verdict": _plain(self.verdict),
            "methods": [
                {
                    "name": result.name,
                    "method": result.given.method,
                    "params": result.given.parameters,
                    "calibration_error": calibration_error(result.given.confidences, result.given.right),
                    "microseconds_per_sample": 1e6 * result.given.seconds / len(result.given.order),
                    **{order: _plain(gain) for order, gain in gains.items()},
                }
                for result, gains in zip(self.results, self.gains, strict=True)
            ],
            "recommended": None if advice is None else {"name": advice[0].name, **_plain(advice[1])},
        }

    def _zero_shot(self, run: StreamRun) -> StreamRun:
        """Zero-shot on the samples of a run."""
        return replace(run, predictions=self.stream.data.zero_shot_predictions[run.order])


@on_one_thread()
def run_trial(
    stream: LabelledStream,
    state: Adapter | None = None,
    *,
    batch: int = 64,
    on_method: Callable[[str, int, int], None] = lambda name, done, total: None,
) -> Trial:
    """Run all methods, and that of a state from what it has learned; `on_method` is told what is run next."""
    data, results, total = replace(stream.data, labels=None), list[MethodResult](), len(COMPARED) + (state is not None)
    orders = [iid(len(stream.labels), seed) for seed in SEEDS]
    for name, (method, parameters) in COMPARED.items():
        on_method(name, len(results), total)
        runs = _runs(data, method, parameters, batch)
        fresh = create_adapter(method, data.classifier, **parameters)
        frozen = [_frozen(fresh.clone(), data, order, batch) for order in orders]
        results.append(_result(stream, name, [*runs], frozen))
    if state is not None:
        on_method(name := f"{state.name} from the state", len(results), total)
        runs = _runs(data, state.name, state.parameters, batch, state)
        everything = np.arange(len(stream.labels))
        frozen = [run_stream(state.clone(), data.samples, None, everything, batch=batch, learn=False)]
        results.append(_result(stream, name, [*runs], frozen))
    return Trial(stream, results)


def _runs(
    data: FeatureFile, method: str, parameters: Mapping[str, Any], batch: int, start: Adapter | None = None
) -> Iterator[StreamRun]:
    """The order of the stream, and the shuffled ones."""
    for order, seeds in ((Stream("given"), SEEDS[:1]), (Stream(), SEEDS)):
        for one in evaluate(data, {method: parameters}, seeds, stream=order, batch=batch, start=start):
            yield one.run


def _frozen(adapter: Adapter, data: FeatureFile, order: NDArray[np.int64], batch: int) -> StreamRun:
    """The second half of an order, answered from what the first half taught."""
    first, second = np.array_split(order, 2)
    for rows in torch.split(torch.from_numpy(first), batch):
        adapter.step(data.samples[rows])
    return run_stream(adapter, data.samples, None, second, batch=batch, learn=False)


def _result(stream: LabelledStream, name: str, runs: Sequence[StreamRun], frozen: Sequence[StreamRun]) -> MethodResult:
    given, *shuffled = map(stream.scored, runs)
    return MethodResult(name, given, tuple(shuffled), tuple(map(stream.scored, frozen)))


def _plain(found: Difference) -> dict[str, Any]:
    """A difference for JSON."""
    names = ("n", "accuracies", "difference", "interval", "fixed", "broken", "changed", "samples_needed")
    return {**{name: getattr(found, name) for name in names}, "level": found.resampling.level}

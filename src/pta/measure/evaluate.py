"""Several methods over several seeds of one dataset, and the summary of each."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch

from pta.core.labels import UNKNOWN, Labels
from pta.core.towers import Model
from pta.data.features import FeatureFile
from pta.data.orders import iid
from pta.errors import InvalidSamples
from pta.measure.record import Evaluation, Record
from pta.measure.stream import Stream
from pta.measure.stream_run import StreamRun, run_stream
from pta.methods import Adapter, create_adapter, needs_model

OnBatch = Callable[[str, int, int], None]
"""Called with method, seed and number of samples after each batch."""

_WARM_UP = 16  # samples
_SAMPLES_TO_COMPARE = 4
_NEW_SHUFFLE = 2**64  # added to a seed: the order of a preview is that of no stream
_SAME_DIRECTION = 0.99  # cosine; half precision is above it


@dataclass(frozen=True)
class MethodSummary:
    """A method over all its seeds; accuracies in percent, None where they need labels or a second seed."""

    accuracy: float | None
    deviation: float | None
    gain: float | None
    mean_per_class: float | None
    worst_class: float | None
    calibration_error: float | None
    raw_calibration_error: float | None
    samples_per_second: float
    state_bytes: int

    @classmethod
    def of(cls, records: Sequence[Record]) -> "MethodSummary":
        """Summarise the records of one method on one dataset."""
        labelled = [record for record in records if record["accuracy"] is not None]
        found = [record["accuracy"] for record in labelled]
        seconds = sum(record["seconds"] for record in records)

        def mean(value_of: Callable[[Record], float]) -> float | None:
            return fmean(map(value_of, labelled)) if labelled else None

        return cls(
            accuracy=mean(itemgetter("accuracy")),
            deviation=stdev(found) if len(found) > 1 else None,
            gain=mean(lambda record: record["accuracy"] - record["zero_shot_accuracy"]),
            mean_per_class=mean(itemgetter("mean_per_class")),
            worst_class=mean(lambda record: record["worst_class"]["accuracy"]),
            calibration_error=mean(itemgetter("calibration_error")),
            raw_calibration_error=mean(itemgetter("raw_calibration_error")),
            samples_per_second=sum(record["n"] for record in records) / max(seconds, 1e-9),
            state_bytes=records[0]["state_bytes"],
        )


def evaluate(
    data: FeatureFile,
    methods: Mapping[str, Mapping[str, Any]],
    seeds: Sequence[int],
    *,
    stream: Stream | None = None,
    batch: int | None = None,
    model: Model | None = None,
    start: Adapter | None = None,
    told: Labels | None = None,
    on_batch: OnBatch | None = None,
) -> Iterator[Evaluation]:
    """Run each method (name → parameters) over the stream of each seed, i.i.d. unless another is given.

    `batch` is the stream's default unless given; `model` is for methods that need one of its towers. The
    method of `start` begins with what that has learned. Labels that are `told` are learned by methods that take labels
    (one per sample: a class number, UNKNOWN, or NONE), and these samples are not counted. Neither are samples whose
    label is UNKNOWN. Zero-shot's accuracy is that of the same samples.
    """
    stream = stream or Stream()
    batch = stream.usual_batch if batch is None else batch
    parts = {seed: stream.part(data, seed) for seed in seeds}
    orders = {seed: stream.order(part, seed, batch) for seed, part in parts.items()}
    for method, parameters in methods.items():
        if model is not None and needs_model(method, parameters):
            require_same_model(model, data)
        for number, seed in enumerate(seeds):
            part, order = parts[seed], orders[seed]
            given = {"model": model, "source": len(order), **parameters}
            if number == 0:  # compiled code is loaded once, and that is not the method's speed
                create_adapter(method, part.classifier, **given).step(part.samples[:_WARM_UP])
            about = stream.record(batch)
            if start is None or start.name != method:
                adapter = create_adapter(method, part.classifier, **given)
            else:
                adapter = start.clone()
                about["learned_before"] = start.position
            run = run_stream(
                *(adapter, part.samples, part.labels, order),
                batch=batch,
                lookahead=stream.lookahead,
                told=told if adapter.takes_labels else None,
                preview=order[iid(len(order), seed + _NEW_SHUFFLE)] if adapter.wants_preview else None,
                on_batch=on_batch and (lambda done, m=method, s=seed: on_batch(m, s, len(done))),
            )
            if told is not None and adapter.takes_labels:
                about["labels_learned"] = int((told[order] >= 0).sum())
            yield Evaluation(part, seed, about, _counted(run, told))


def _counted(run: StreamRun, told: Labels | None) -> StreamRun:
    """The run at the samples whose label is known and was not learned."""
    if run.labels is None:
        return run
    counted = run.labels != UNKNOWN
    if told is not None:
        counted &= told[run.order] == UNKNOWN
    if not counted.any():
        raise InvalidSamples("no sample has a label that was not learned, so nothing can be counted")
    return run if counted.all() else run.at(np.flatnonzero(counted), run.labels[counted])


@torch.no_grad()
def require_same_model(model: Model, data: FeatureFile) -> None:
    """Refuse a model of another architecture, or that does not make the file's features of its raw samples.

    Asked before a tower is used.
    """
    made_by, given = data.architecture, getattr(model, "architecture", "")
    if made_by and given and made_by != given:
        raise InvalidSamples(f"the features were made by {made_by}, not by {given}; name the model that made them")
    some = data.samples[:_SAMPLES_TO_COMPARE]
    if some.raw is None:
        return
    made = model.image_tower().features(some.raw).cpu().to(some.features)
    same = made.shape == some.features.shape
    if not same or bool((torch.cosine_similarity(made, some.features) < _SAME_DIRECTION).any()):
        raise InvalidSamples("this model gives other features for the file's pixels; name the model that made them")

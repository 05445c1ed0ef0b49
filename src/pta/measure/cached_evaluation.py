"""Cached evaluations: results in the store are not computed again."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from pta.core.parameters import require_seed
from pta.core.towers import Model
from pta.data.features import FeatureFile
from pta.measure.evaluate import OnBatch, evaluate
from pta.measure.provenance import hardware, method_version
from pta.measure.record import Record
from pta.measure.result_store import ResultStore, result_key
from pta.measure.stream import Stream
from pta.methods import Origin, adapter_class, needs_model

Inputs = dict[str, Any]


def inputs_of(
    data: FeatureFile,
    method: str,
    parameters: Mapping[str, Any],
    seed: int,
    stream: Stream,
    batch: int | None = None,
    model: Model | None = None,
) -> Inputs:
    """Everything that an evaluation depends on; every parameter is written out with its value."""
    batch = stream.usual_batch if batch is None else batch
    part = stream.part(data, seed)
    origin = Origin(part.classifier, model, stream.samples_seen(part, seed, batch))
    given = adapter_class(method).complete(parameters, origin)
    tower_of = model if needs_model(method, given) else None
    return {
        "method": method,
        "params": given,
        "features": data.fingerprint,
        "stream": stream.record(batch),
        "seed": require_seed(seed),
        "version": method_version(method),
        "base_versions": [method_version(base) for base in adapter_class(method).stands_on(given)],
        "model": None if tower_of is None else [tower_of.fingerprint, str(tower_of.dtype)],
    }


def evaluate_once(
    store: ResultStore,
    data: FeatureFile,
    method: str,
    parameters: Mapping[str, Any],
    seeds: Sequence[int],
    *,
    stream: Stream | None = None,
    batch: int | None = None,
    model: Model | None = None,
    on_batch: OnBatch | None = None,
) -> Iterator[Record]:
    """The record of each seed, in no particular order; cached records are not computed again.

    Records that another process is computing are waited for at the end.
    """
    stream = stream or Stream()
    run = partial(evaluate, data, {method: parameters}, stream=stream, batch=batch, model=model, on_batch=on_batch)
    wanted = {seed: inputs_of(data, method, parameters, seed, stream, batch, model) for seed in seeds}
    for wait in (False, True):
        for seed, inputs in list(wanted.items()):
            record = store.get(result_key(inputs))
            if record is None:
                with store.claim(result_key(inputs), wait=wait) as mine:
                    if not mine:
                        continue
                    record = store.get(result_key(inputs))  # another process may have been faster
                    if record is None:
                        record = next(run(seeds=[seed])).record()
                        record = store.put(inputs, record | {"made": made_from(inputs, data)})
            del wanted[seed]
            yield record | {"dataset": data.name}  # the same features may have had another name


def made_from(inputs: Inputs, data: FeatureFile) -> Record:
    """The provenance of a record."""
    return {
        "key": result_key(inputs),
        "features": inputs["features"],
        "version": inputs["version"],
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "on": hardware(data.classifier.anchors.device),
        **{name: made for name in ("decoder", "runtime") if (made := getattr(data, name))},
    }

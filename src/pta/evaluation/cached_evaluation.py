"""Evaluations that are made once: what a store already has is not run again."""

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from numbers import Integral, Real
from typing import Any

from pta.adapters.registry import adapter_class, parameters_of
from pta.adapters.combined import Combined
from pta.datasets.features import FeatureFile
from pta.errors import InvalidParameter
from pta.evaluation.evaluate import OnBatch, evaluate
from pta.evaluation.machine import hardware
from pta.evaluation.record import Record
from pta.evaluation.result_store import ResultStore, result_key
from pta.evaluation.stream import Stream
from pta.evaluation.version import method_version
from pta.towers import ImageTower

Inputs = dict[str, Any]


def inputs_of(
    data: FeatureFile,
    method: str,
    parameters: Mapping[str, Any],
    seed: int,
    stream: Stream,
    batch: int | None = None,
) -> Inputs:
    """Everything that an evaluation depends on; defaults are written out, and numbers spelled in one way."""
    batch = batch or stream.usual_batch
    given = _spelled_out(method, parameters)
    if given.get("length", 0) is None:  # what `create_adapter` will make of it
        given["length"] = stream.length(data, batch)
    stands_on_another = issubclass(adapter_class(method), Combined)
    return {
        "method": method,
        "params": given,
        "features": data.fingerprint,
        "stream": stream.record(batch),
        "seed": int(seed),
        "version": method_version(method),
        **({"base_version": method_version(given["base"])} if stands_on_another else {}),
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
    tower: ImageTower | None = None,
    on_batch: OnBatch | None = None,
) -> Iterator[Record]:
    """The record of each seed, in no particular order; those that the store has are not made again.

    What another process is just making is waited for after everything else is done.
    """
    stream = stream or Stream()
    wanted = {int(seed): inputs_of(data, method, parameters, seed, stream, batch) for seed in seeds}
    for wait in (False, True):
        for seed, inputs in list(wanted.items()):
            record = store.get(result_key(inputs))
            if record is None:
                with store.claim(result_key(inputs), wait=wait) as mine:
                    if not mine:
                        continue
                    record = store.get(result_key(inputs))  # another process may have been faster
                    if record is None:
                        record = _evaluate(data, method, parameters, seed, stream, batch, tower, on_batch)
                        record = store.put(inputs, record | {"made": made_from(inputs, data)})
            del wanted[seed]
            yield record | {"dataset": data.name}  # the same features may have had another name


def _spelled_out(method: str, parameters: Mapping[str, Any]) -> Inputs:
    """Every parameter of a method with its value, and of the method that it stands on, if it does."""
    defaults = {key: one.default for key, one in parameters_of(method).items() if one.default is not one.empty}
    given = defaults | dict(parameters)
    if issubclass(adapter_class(method), Combined) and isinstance(given["base_parameters"], Mapping | None):
        given["base_parameters"] = _spelled_out(given["base"], given["base_parameters"] or {})
    return {key: _plain(f"{method}.{key}", value, defaults.get(key)) for key, value in given.items()}


def _plain(name: str, value: Any, default: Any = None) -> Any:
    """A value as JSON has it; where the default is a fraction, a whole number is one, too."""
    if isinstance(value, Mapping):
        return {str(key): _plain(f"{name}.{key}", one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(name, one) for one in value]
    if isinstance(value, bool | str | None):
        return value
    if isinstance(value, Real) and math.isfinite(value):
        return float(value) if isinstance(default, float) or not isinstance(value, Integral) else int(value)
    raise InvalidParameter(
        f"{name} holds {value if isinstance(value, Real) else type(value).__name__}, which no result can be kept "
        "under; numbers, texts, and lists or mappings of them can be"
    )


def _evaluate(
    data: FeatureFile,
    method: str,
    parameters: Mapping[str, Any],
    seed: int,
    stream: Stream,
    batch: int | None,
    tower: ImageTower | None,
    on_batch: OnBatch | None,
) -> Record:
    done = evaluate(data, {method: parameters}, [seed], stream=stream, batch=batch, tower=tower, on_batch=on_batch)
    return next(iter(done)).record()


def made_from(inputs: Inputs, data: FeatureFile) -> Record:
    """Where a record comes from."""
    return {
        "key": result_key(inputs),
        "features": inputs["features"],
        "version": inputs["version"],
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "on": hardware(data.classifier.anchors.device),
    }

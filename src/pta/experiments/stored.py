"""Evaluations that are made once: what a store already has is not run again."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pta.adapters.base import parameters_of
from pta.datasets.features import FeatureFile
from pta.experiments.evaluate import OnBatch, evaluate
from pta.experiments.evaluation import Record
from pta.experiments.machine import hardware
from pta.experiments.store import ResultStore, result_key
from pta.experiments.stream import Stream
from pta.experiments.version import method_version
from pta.token_tower import TokenTower

Inputs = dict[str, Any]


def inputs_of(
    data: FeatureFile,
    method: str,
    parameters: Mapping[str, Any],
    seed: int,
    stream: Stream,
    batch: int | None = None,
) -> Inputs:
    """Everything that an evaluation depends on; the defaults of parameters are written out."""
    defaults = {key: one.default for key, one in parameters_of(method).items()}
    given = {key: value for key, value in (defaults | dict(parameters)).items() if value is not inspect.Parameter.empty}
    underneath = {"base_version": method_version(given["base"])} if "base" in given else {}
    return {
        "method": method,
        "params": given,
        "features": data.fingerprint,
        "stream": stream.record(batch or stream.usual_batch),
        "seed": seed,
        "version": method_version(method),
        **underneath,
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
    tower: TokenTower | None = None,
    on_batch: OnBatch | None = None,
) -> Iterator[Record]:
    """The record of each seed, in no particular order; those that the store has are not made again.

    What another process is just making is waited for after everything else is done.
    """
    stream = stream or Stream()
    wanted = {seed: inputs_of(data, method, parameters, seed, stream, batch) for seed in seeds}
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
                        record["made"] = _made(inputs, data)
                        store.put(inputs, record)
            del wanted[seed]
            yield record


def _evaluate(
    data: FeatureFile,
    method: str,
    parameters: Mapping[str, Any],
    seed: int,
    stream: Stream,
    batch: int | None,
    tower: TokenTower | None,
    on_batch: OnBatch | None,
) -> Record:
    done = evaluate(data, {method: parameters}, [seed], stream=stream, batch=batch, tower=tower, on_batch=on_batch)
    return next(iter(done)).record()


def _made(inputs: Inputs, data: FeatureFile) -> Record:
    """Where a record comes from."""
    return {
        "key": result_key(inputs),
        "features": inputs["features"],
        "version": inputs["version"],
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "on": hardware(data.classifier.anchors.device),
    }

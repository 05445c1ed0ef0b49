"""Measuring: every job once, even if several plans need it. A job that fails records its reason; the others go on."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pta import models as encoders
from pta.data.features import FeatureFile
from pta.data.sample_set import SampleSet
from pta.errors import InvalidParameter, InvalidSamples, UnavailableModel, UnreadableFile, UnreadableSample, UserMistake
from pta.measure.cached_evaluation import evaluate_once, inputs_of, made_from
from pta.measure.provenance import code_version, files_of, hardware
from pta.measure.record import Record
from pta.measure.reproduce import speed
from pta.measure.reproduce.library import Library, drawn_views
from pta.measure.reproduce.plan import Plan, PlannedJob
from pta.measure.reproduce.speed import ROUNDS, TIMED, TimedMethod, measure_speeds
from pta.measure.reproduce.table import CANNOT, NO_DATA
from pta.measure.result_store import ResultStore, result_key
from pta.measure.stream import Stream
from pta.methods import needs_model

_REFUSALS = (InvalidParameter, InvalidSamples, UnreadableSample, UnavailableModel)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a job: the record of every seed or round, or the short and the full reason why there is none."""

    records: tuple[Record, ...] = ()
    missing: str = ""
    why: str = ""


def measure(
    plans: Iterable[Plan],
    library: Library,
    store: ResultStore,
    on_progress: Callable[[PlannedJob, int, int], None] = lambda job, done, total: None,
) -> dict[str, Outcome]:
    """The outcome of every job, by its key: each runs once, those on the same data one after another.

    `on_progress` is told the job that is being done, how many runs are done, and of how many, after every batch.
    """
    once = {job.key: job for plan in plans for job in plan.all_jobs}.values()
    datasets = list(dict.fromkeys(job.dataset for job in once))  # in this order, the library loads each once
    jobs = sorted(once, key=lambda job: (datasets.index(job.dataset), job.views or "", job.templates, job.descriptions))
    total, done, outcomes = sum(len(job.seeds) for job in jobs), 0, dict[str, Outcome]()
    for job in jobs:
        on_progress(job, done, total)
        if job.speed and job.key not in outcomes:
            outcomes |= _time([one for one in jobs if one.speed and one.dataset == job.dataset], library, store)
        elif not job.speed:
            outcomes[job.key] = _evaluate(job, library, store, lambda runs: on_progress(job, done + runs, total))  # noqa: B023
        done += len(job.seeds)
    return outcomes


def _evaluate(job: PlannedJob, library: Library, store: ResultStore, on_run: Callable[[int], None]) -> Outcome:
    data = _data_of(job, library)
    if isinstance(data, Outcome):
        return data
    records: list[Record] = []
    try:
        model = library.encoder_of(job.dataset) if needs_model(job.method, job.params) else None
        given = (store, data, job.method, job.params, job.seeds)
        for record in evaluate_once(*given, stream=job.stream, model=model, on_batch=lambda *_: on_run(len(records))):
            records.append(record)
            on_run(len(records))
    except _REFUSALS as error:
        return _refused(job, error)
    return Outcome(tuple(sorted(records, key=lambda record: job.seeds.index(record["seed"]))))


def _data_of(job: PlannedJob, library: Library) -> FeatureFile | Outcome:
    """The data of a job, or why there are none."""
    try:
        others: dict[str, Any] = {"descriptions": job.descriptions, "views": job.views, "needs": job.needs}
        # what is encoded while the clock runs is not needed before
        return library.features(job.dataset, templates=job.templates, **({} if job.speed else others))
    except UnavailableModel:
        raise
    except UserMistake as error:
        return _refused(job, error, NO_DATA if isinstance(error, UnreadableFile) else CANNOT)


def _refused(job: PlannedJob, error: UserMistake, missing: str = CANNOT) -> Outcome:
    """The reason, without the dataset's name, so that what is missing for the same reason can be told together."""
    return Outcome(missing=missing, why=str(error).removeprefix(f"{job.dataset}: "))


def _time(jobs: Sequence[PlannedJob], library: Library, store: ResultStore) -> dict[str, Outcome]:
    """The speeds of methods on one dataset, which they are given in turn."""
    outcomes: dict[str, Outcome] = {}
    contenders: dict[str, TimedMethod] = {}
    for job in jobs:
        data = _data_of(job, library)
        if isinstance(data, Outcome):
            outcomes[job.key] = data
            continue
        try:
            images = library.images(job.dataset)
            views = drawn_views(job.views or "crops") if "views" in job.needs else None
            contenders[job.key] = TimedMethod(job.method, job.params, data, views)
        except _REFUSALS as error:
            outcomes[job.key] = _refused(job, error)
    if contenders:
        try:
            timed = _timed(list(contenders.values()), images, library, store)
            outcomes |= {key: Outcome(records) for key, records in zip(contenders, timed, strict=True)}
        except _REFUSALS as error:
            outcomes |= {job.key: _refused(job, error) for job in jobs if job.key in contenders}
    return outcomes


def _timed(
    contenders: Sequence[TimedMethod], images: SampleSet, library: Library, store: ResultStore
) -> list[tuple[Record, ...]]:
    """The records of all rounds of each; what was measured in turn is one result."""
    encoder = library.encoder_of(images.name)
    each = [inputs_of(one.data, one.method, one.parameters, 1, Stream(), 1, encoder) for one in contenders]
    inputs = {
        "in_turn": [own | {"views": one.views and one.views.mode} for own, one in zip(each, contenders, strict=True)],
        "rounds": [ROUNDS, TIMED],
        "version": code_version({Path(speed.__file__), *files_of(encoders)}),
        "hardware": hardware(encoder.device),
    }
    key = result_key(inputs)
    with store.claim(key, wait=True):
        found = store.get(key)
        if found is None:
            records = measure_speeds(encoder, images, contenders)
            made = [made_from(own, one.data) | {"key": key} for own, one in zip(each, contenders, strict=True)]
            found = store.put(inputs, {"in_turn": [one | {"made": of} for one, of in zip(records, made, strict=True)]})
    return [tuple(one | {"seed": at, **of} for at, of in enumerate(one["rounds"], 1)) for one in found["in_turn"]]

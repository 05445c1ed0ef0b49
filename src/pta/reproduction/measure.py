"""Measuring: every job once, whatever plans want it; what cannot be done says why and stops nothing else."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pta import encoders
from pta.adapters import needs_model
from pta.datasets.features import FeatureFile
from pta.errors import InvalidParameter, InvalidSamples, PtaError, UnavailableModel, UnreadableFile, UnreadableSample
from pta.evaluation.cached_evaluation import evaluate_once, inputs_of, made_from
from pta.evaluation.machine import hardware
from pta.evaluation.record import Record
from pta.evaluation.result_store import ResultStore, result_key
from pta.evaluation.stream import Stream
from pta.evaluation.version import code_version, files_of
from pta.reproduction import speed
from pta.reproduction.job import Job
from pta.reproduction.library import Library, drawn_views
from pta.reproduction.plan import Plan
from pta.reproduction.speed import TIMED, measure_speed
from pta.reproduction.table import CANNOT, NO_DATA, NOT_YET


@dataclass(frozen=True)
class Outcome:
    """What came of a job: the record of every seed, or in a word why there is none, and the whole reason."""

    records: tuple[Record, ...] = ()
    missing: str = ""
    why: str = ""


def measure(
    plans: Iterable[Plan],
    library: Library,
    store: ResultStore,
    on_progress: Callable[[Job, int, int], None] = lambda job, done, total: None,
) -> dict[str, Outcome]:
    """What came of every job, by its key: each is done once, those on the same data after each other.

    `on_progress` is told the job that is being done, how many runs are done, and of how many.
    """
    once = {job.key: job for plan in plans for job in plan.all_jobs}.values()
    datasets = list(dict.fromkeys(job.dataset for job in once))  # in this order, the library loads each once
    jobs = sorted(once, key=lambda job: (datasets.index(job.dataset), job.views or "", job.templates, job.descriptions))
    total, done, outcomes = sum(len(job.seeds) for job in jobs), 0, {}
    for job in jobs:
        on_progress(job, done, total)
        outcomes[job.key] = _do(job, library, store, lambda runs: on_progress(job, done + runs, total))  # noqa: B023
        done += len(job.seeds)
    return outcomes


def _do(job: Job, library: Library, store: ResultStore, on_run: Callable[[int], None]) -> Outcome:
    if job.awaits:
        return Outcome(missing=NOT_YET)
    try:
        data = _data_of(job, library)
    except UnavailableModel:
        raise
    except PtaError as error:
        return Outcome(missing=NO_DATA if isinstance(error, UnreadableFile) else CANNOT, why=_why(error, job))
    records: list[Record] = []
    try:
        for record in (_measured_speed if job.speed else _evaluated)(job, data, library, store):
            records.append(record)
            on_run(len(records))
    except (InvalidParameter, InvalidSamples, UnreadableSample, UnavailableModel) as error:
        return Outcome(missing=CANNOT, why=_why(error, job))
    return Outcome(tuple(sorted(records, key=lambda record: job.seeds.index(record["seed"]))))


def _why(error: PtaError, job: Job) -> str:
    """The reason, without the dataset's name, so that what is missing for the same reason can be told together."""
    return str(error).removeprefix(f"{job.dataset}: ")


def _data_of(job: Job, library: Library) -> FeatureFile:
    if job.speed:  # what is encoded while the clock runs is not needed before
        return library.features(job.dataset, templates=job.templates)
    return library.features(
        job.dataset, templates=job.templates, descriptions=job.descriptions, views=job.views, needs=job.needs
    )


def _evaluated(job: Job, data: FeatureFile, library: Library, store: ResultStore) -> Iterator[Record]:
    model = library.encoder if needs_model(job.method, job.params) else None
    return evaluate_once(store, data, job.method, job.params, job.seeds, stream=job.stream, model=model)


def _measured_speed(job: Job, data: FeatureFile, library: Library, store: ResultStore) -> Iterator[Record]:
    images = library.images(job.dataset)
    views = drawn_views("crops" if job.views is None else job.views.split("-")[0]) if "views" in job.needs else None
    inputs = {
        **inputs_of(data, job.method, job.params, 1, Stream(), 1, library.encoder),
        "speed_of": TIMED,
        "speed_version": code_version({Path(speed.__file__), *files_of(encoders)}),
        "views": None if views is None else views.mode,
        "hardware": hardware(library.encoder.device),
    }
    with store.claim(result_key(inputs), wait=True):
        record = store.get(result_key(inputs))
        if record is None:
            record = measure_speed(library.encoder, images, data, job.method, job.params, views)
            record = store.put(inputs, record | {"made": made_from(inputs, data)})
    yield record

"""Doing jobs: each once, whatever experiments want it; what cannot be done says why and stops nothing else."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pta.errors import PtaError, UnavailableModel, UnreadableFile
from pta.experiments.evaluation import Record
from pta.experiments.machine import hardware
from pta.experiments.store import ResultStore, result_key
from pta.experiments.stored import evaluate_once, inputs_of, made_from
from pta.experiments.stream import Stream
from pta.reproduction.job import Job
from pta.reproduction.library import Library, drawn_views
from pta.reproduction.speed import TIMED, measure_speed

NOT_YET, NO_DATA, CANNOT = "not yet", "no data", "cannot run"


@dataclass(frozen=True)
class Outcome:
    """What came of a job: the record of every seed, or in a word why there is none, and the whole reason."""

    records: tuple[Record, ...] = ()
    missing: str = ""
    why: str = ""


Outcomes = dict[str, Outcome]
"""By the key of the job."""


def do_jobs(
    jobs: Iterable[Job],
    library: Library,
    store: ResultStore,
    on_progress: Callable[[Job, int, int], None] = lambda job, done, total: None,
) -> Outcomes:
    """Do every job once, those on the same images after each other; `on_progress` is told before each."""
    distinct = {job.key: job for job in jobs}
    datasets = list(dict.fromkeys(job.dataset for job in distinct.values()))
    in_turn = sorted(distinct.values(), key=lambda job: (datasets.index(job.dataset), job.views or "", job.templates))
    outcomes = {}
    for done, job in enumerate(in_turn):
        on_progress(job, done, len(in_turn))
        outcomes[job.key] = _do(job, library, store)
    return outcomes


def _do(job: Job, library: Library, store: ResultStore) -> Outcome:
    if job.awaits:
        return Outcome(missing=NOT_YET)
    try:
        records = _measure_speed(job, library, store) if job.speed else _evaluate(job, library, store)
    except UnavailableModel:
        raise
    except PtaError as error:
        return Outcome(missing=NO_DATA if isinstance(error, UnreadableFile) else CANNOT, why=str(error))
    return Outcome(tuple(records))


def _evaluate(job: Job, library: Library, store: ResultStore) -> list[Record]:
    data = library.features(
        job.dataset, templates=job.templates, descriptions=job.descriptions, views=job.views, needs=job.needs
    )
    tower = library.encoder.token_tower() if "pixels" in job.needs else None
    found = evaluate_once(store, data, job.method, job.params, job.seeds, stream=job.stream, tower=tower)
    return sorted(found, key=lambda record: job.seeds.index(record["seed"]))


def _measure_speed(job: Job, library: Library, store: ResultStore) -> list[Record]:
    images = library.images(job.dataset)
    data = library.features(job.dataset, templates=job.templates)
    views = drawn_views("crops" if job.views is None else job.views.split("-")[0]) if "views" in job.needs else None
    inputs = {
        **inputs_of(data, job.method, job.params, 1, Stream(), 1),
        "speed_of": TIMED,
        "model": library.encoder.fingerprint,
        "dtype": library.dtype,
        "views": None if views is None else views.mode,
        "hardware": hardware(library.encoder.device),
    }
    with store.claim(result_key(inputs), wait=True):
        record = store.get(result_key(inputs))
        if record is None:
            record = measure_speed(library.encoder, images, data, job.method, job.params, views)
            record["made"] = made_from(inputs, data)
            store.put(inputs, record)
    return [record]

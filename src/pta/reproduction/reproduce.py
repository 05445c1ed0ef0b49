"""Experiments from their files to their tables."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pta.datasets.catalogue import find_entry
from pta.datasets.features import FeatureFile
from pta.errors import InvalidParameter, naming, nearest
from pta.evaluation.result_store import ResultStore
from pta.prompts import load_templates
from pta.reproduction.columns import place_columns, printed_numbers
from pta.reproduction.declaration import Experiment, load_experiment, packaged_experiments
from pta.reproduction.fill import fill
from pta.reproduction.job import Job, jobs_of
from pta.reproduction.library import Library
from pta.reproduction.measure import do_jobs
from pta.reproduction.table import Table
from pta.reproduction.world import World, load_world

_OTHER_DATA = (
    "Not the paper's data: Fashion-MNIST test images under synthetic shifts, encoded by the small model that is "
    "embedded in pta, and the feature files that are named. Only gains over the baseline compare with the paper's."
)


def reproduce(
    experiments: Sequence[Experiment],
    world: World,
    library: Library,
    store: ResultStore,
    on_progress: Callable[[Job, int, int], None] = lambda job, done, total: None,
) -> list[Table]:
    """Do what the experiments want and the store does not have, and fill in their tables."""
    jobs = [job for experiment in experiments for job in jobs_of(experiment, world)]
    outcomes = do_jobs(jobs, library, store, on_progress)
    return [
        fill(
            experiment,
            *_worlds(experiment, world),
            outcomes,
            about=_about(library),
            notes=_notes(experiment, world, library) if experiment.place else (),
        )
        for experiment in experiments
    ]


def _worlds(experiment: Experiment, world: World) -> tuple[World, World]:
    """The world of the data and that of the printed numbers; in a user's own experiment these are of the same data."""
    if experiment.place:
        return world, load_world("paper")
    own = replace(world, comparable=True)
    return own, own


def list_experiments() -> list[dict[str, Any]]:
    """The packaged experiments, ready for JSON, each with the methods and data that are not there yet."""
    listed = []
    for experiment in map(load_experiment, packaged_experiments()):
        awaited = {what for job in jobs_of(experiment, load_world("paper")) for what in job.awaits}
        about = {"id": experiment.id, "place": experiment.place, "title": experiment.title}
        listed.append({**about, "rows": len(experiment.rows), "not_yet": ", ".join(sorted(awaited))})
    return listed


def require_sound(experiment: Experiment, world: World) -> None:
    """Refuse what is wrong with an experiment's file before any work is done."""
    for job in jobs_of(experiment, world):
        if not job.awaits:
            with naming(f"experiment {experiment.id}: {job.method}"):
                load_templates(job.templates)
                _ = job.needs  # makes the method, and so tries its parameters
    _, papers = _worlds(experiment, world)
    labels = [column.label for column in place_columns(experiment, papers)]
    printed = {row.name: printed_numbers(experiment, row, papers) for row in experiment.rows}
    for erratum in experiment.errata:
        if erratum.column in labels and printed[erratum.row].get(erratum.column) != erratum.printed:
            raise InvalidParameter(
                f"experiment {experiment.id}: an erratum has {erratum.printed} for {erratum.row}, {erratum.column}, "
                f"where {printed[erratum.row].get(erratum.column, 'nothing')} is printed"
            )
    drawn = experiment.figure.columns if experiment.figure else ()
    for label in (*drawn, *(erratum.column for erratum in experiment.errata)):
        if label not in labels:
            known = nearest(label, labels)
            raise InvalidParameter(f"experiment {experiment.id}: no column is called {label!r}; {known}")


def _about(library: Library) -> dict[str, str]:
    about = {"model": library.model if library.is_model_loaded else "none was needed"}
    if library.is_model_loaded:
        encoder = library.encoder
        about |= {"architecture": encoder.architecture, "model fingerprint": encoder.fingerprint[:12]}
    if library.own:
        about["feature files"] = ", ".join(sorted(library.own))
    return about


def _notes(experiment: Experiment, world: World, library: Library) -> list[str]:
    """What must be said beside the paper's numbers."""
    notes = [] if world.comparable else [_OTHER_DATA]
    if world.comparable and library.is_model_loaded and library.encoder.architecture != experiment.backbone:
        notes.append(
            f"Made with {library.encoder.architecture}; the paper's numbers are those of {experiment.backbone}."
        )
    wanted = {job.dataset for job in jobs_of(experiment, world)}
    if world.comparable:
        notes += [_doubts(library.own[name], experiment) for name in library.own if name in wanted]
    notes += [
        f"{count:,} pictures of {name} could not be read." for name, count in library.skipped.items() if name in wanted
    ]
    most = max(len(row.seeds) for row in experiment.rows)
    if world.most_seeds is not None and world.most_seeds < most:
        notes.append(f"At most {world.most_seeds} seeds a row, of {most}.")
    return [note for note in notes if note]


def _doubts(data: FeatureFile, experiment: Experiment) -> str:
    """What tells a feature file of the user's from what the paper's numbers were made of."""
    entry = find_entry(data.dataset)
    doubts = [] if data.architecture == experiment.backbone else [f"model {data.architecture or 'unknown'}"]
    if data.classifier.classes != entry.classes:
        doubts.append(f"{data.classifier.classes:,} of {entry.classes:,} classes")
    if entry.count is not None and len(data.samples) != entry.count:
        doubts.append(f"{len(data.samples):,} samples where the set has {entry.count:,}")
    return f"{data.dataset} is a feature file of other things than the paper's: {', '.join(doubts)}." if doubts else ""

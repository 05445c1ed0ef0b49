"""Experiments from their files to their tables."""

from collections.abc import Callable, Sequence

from pta.errors import InvalidParameter, nearest
from pta.experiments.store import ResultStore
from pta.reproduction.columns import place_columns, printed_numbers
from pta.reproduction.declaration import Experiment
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
    papers = load_world("paper")
    return [
        fill(
            experiment,
            world,
            papers,
            outcomes,
            about=_about(library),
            notes=_notes(experiment, world, library),
        )
        for experiment in experiments
    ]


def require_sound(experiment: Experiment, world: World) -> None:
    """Refuse what is wrong with an experiment's file before any work is done."""
    list(jobs_of(experiment, world))
    papers = load_world("paper")
    labels = [column.label for column in place_columns(experiment, papers)]
    for row in experiment.rows:
        printed_numbers(experiment, row, papers)
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
    notes = [] if world.comparable else [_OTHER_DATA]
    if world.comparable and library.is_model_loaded and library.encoder.architecture != experiment.backbone:
        notes.append(
            f"Made with {library.encoder.architecture}; the paper's numbers are those of {experiment.backbone}."
        )
    most = max(len(row.seeds) for row in experiment.rows)
    if world.most_seeds is not None and world.most_seeds < most:
        notes.append(f"Seeds: {world.most_seeds}, where the paper has {most}.")
    return notes

"""Plans to tables, with notes on the data and the model."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pta.data.catalogue import find_entry
from pta.data.features import FeatureFile
from pta.measure.reproduce.declaration import PACKAGED, Experiment, load_experiment
from pta.measure.reproduce.fill import fill
from pta.measure.reproduce.library import Library
from pta.measure.reproduce.outcomes import Outcome, measure
from pta.measure.reproduce.plan import Plan, PlannedJob
from pta.measure.reproduce.profile import kind_of
from pta.measure.reproduce.table import Table
from pta.measure.result_store import ResultStore


def reproduce(
    plans: Sequence[Plan],
    library: Library,
    store: ResultStore,
    on_progress: Callable[[PlannedJob, int, int], None] = lambda job, done, total: None,
) -> list[Table]:
    """Measure what the plans want and the store does not have, and fill in their tables."""
    outcomes = measure(plans, library, store, on_progress)
    return [fill(plan, outcomes, _about(plan, library, outcomes), _notes(plan, library)) for plan in plans]


def list_experiments() -> list[dict[str, Any]]:
    """The packaged experiments, ready for JSON."""
    experiments = map(load_experiment, PACKAGED)
    return [{"id": one.id, "place": one.place, "title": one.title, "rows": len(one.rows)} for one in experiments]


def _about(plan: Plan, library: Library, outcomes: Mapping[str, Outcome]) -> dict[str, str]:
    """What made the features of a table: the model, if images were encoded for it, and that of each feature file."""
    about, done = {}, {job.dataset for job in plan.all_jobs if outcomes[job.key].records}
    if done - set(library.own):
        made_by = {library.model_of(name): library.encoder_of(name) for name in sorted(done - set(library.own))}
        about = {"model": ", ".join(made_by)}
        about["architecture"] = ", ".join(encoder.architecture for encoder in made_by.values())
        about["model fingerprint"] = ", ".join(encoder.fingerprint[:12] for encoder in made_by.values())
    files = {name: library.own[name].architecture or "an unknown model" for name in sorted(done & set(library.own))}
    if files:
        about["feature files"] = ", ".join(f"{name} (by {model})" for name, model in files.items())
    return about or {"model": "none was needed"}


def _notes(plan: Plan, library: Library) -> list[str]:
    """What must be said beside the paper's numbers."""
    experiment, profile = plan.experiment, plan.profile
    if not experiment.place:
        return []
    wanted = {job.dataset for job in plan.all_jobs}
    notes = []
    if not profile.comparable:
        kinds = {kind_of(dataset) for dataset in wanted}
        data = [*(what for kind, what in profile.data.items() if kind in kinds), "and the feature files that are named"]
        notes.append(f"Not the paper's data: {', '.join(data)}. Only gains over the baseline compare with the paper's.")
    elif library.is_model_loaded and library.encoder.architecture != experiment.backbone:
        made_with = library.encoder.architecture
        notes.append(f"Made with {made_with}; the paper's numbers are those of {experiment.backbone}.")
    if profile.comparable:
        notes += [_doubts(library.own[name], experiment) for name in library.own if name in wanted]
    for name, count in library.skipped.items():
        if name in wanted:
            notes.append(f"{count:,} pictures of {name} could not be read.")
    most = max(len(row.seeds) for row in experiment.rows)
    if profile.most_seeds is not None and profile.most_seeds < most:
        notes.append(f"At most {profile.most_seeds} seeds per row, of {most}.")
    return [note for note in notes if note]


def _doubts(data: FeatureFile, experiment: Experiment) -> str:
    """What tells a feature file of the user's from what the paper's numbers were made of."""
    entry = find_entry(data.dataset)
    doubts = [] if data.architecture == experiment.backbone else [f"model {data.architecture or 'unknown'}"]
    if data.classifier.classes != entry.classes:
        doubts.append(f"{data.classifier.classes:,} of {entry.classes:,} classes")
    if entry.count is not None and len(data.samples) != entry.count:
        doubts.append(f"{len(data.samples):,} samples where the set has {entry.count:,}")
    return f"{data.dataset} is a feature file unlike the paper's data: {', '.join(doubts)}." if doubts else ""

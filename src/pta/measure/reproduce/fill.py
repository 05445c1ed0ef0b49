"""From plans to tables: means over seeds, datasets and columns, the paper's numbers, and notes on data and model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median, stdev

from pta.data.catalogue import find_entry
from pta.data.features import FeatureFile
from pta.measure.reproduce.declaration import TIMED_METRICS, Experiment, Row
from pta.measure.reproduce.library import Library
from pta.measure.reproduce.outcomes import Outcome, measure
from pta.measure.reproduce.plan import Plan, PlannedJob
from pta.measure.reproduce.profile import kind_of
from pta.measure.reproduce.table import CANNOT, NO_DATA, NO_GAIN, Cell, Line, Source, Table
from pta.measure.result_store import ResultStore


def reproduce(
    plans: Sequence[Plan], library: Library, store: ResultStore, on_progress: Callable[[PlannedJob, int, int], None]
) -> list[Table]:
    """Measure what the plans want and the store does not have, and fill in their tables."""
    outcomes = measure(plans, library, store, on_progress)
    return [fill(plan, outcomes, _about(plan, library, outcomes), _notes(plan, library)) for plan in plans]


def fill(plan: Plan, outcomes: Mapping[str, Outcome], about: Mapping[str, str], notes: Sequence[str] = ()) -> Table:
    """The table of a plan whose jobs are done."""
    experiment, absent = plan.experiment, dict(plan.left_out)
    cells = {row.name: _cells(plan, row, outcomes, absent) for row in experiment.rows}
    headings = [column.heading for column in plan.columns]
    gains = {row.name: _gain(plan, row, cells) for row in experiment.rows}
    if any(gains.values()):
        headings.append(f"gain over {experiment.baseline}")
        cells = {name: [*own, gains[name] or NO_GAIN] for name, own in cells.items()}
    lines = [
        Line(row, tuple(replace(one, digits=experiment.digits) for one in cells[row.name])) for row in experiment.rows
    ]
    said = (plan.profile.comparable, dict(about), tuple(notes), absent, plan.profile.titles)
    return Table(experiment, tuple(headings), mark_best(lines), *said)


def _cells(plan: Plan, row: Row, outcomes: Mapping[str, Outcome], absent: dict[str, str]) -> list[Cell]:
    """The cells of a row."""
    cells: list[Cell] = []
    for at, column in enumerate(plan.columns):
        if row.absent:
            absent[row.name] = row.absent
            cell = Cell(missing=CANNOT, metric=column.metric or row.metric)
        elif column.datasets:
            cell = _measured(plan, row, at, outcomes, absent)
        else:
            cell = _mean([cells[part] for part in column.parts])
        paper = _printed(plan, row, column.label)
        if not plan.profile.comparable:
            cell = replace(cell, elsewhere=paper.paper)
        elif not cell.partial:  # else the paper's number is of other parts
            cell = replace(cell, printed=paper.printed, erratum=paper.erratum)
        cells.append(cell)
    return cells


def _measured(plan: Plan, row: Row, at: int, outcomes: Mapping[str, Outcome], absent: dict[str, str]) -> Cell:
    """The mean over a column's datasets."""
    column = plan.columns[at]
    metric = column.metric or row.metric
    values, sources, missing = [], [], ""
    for dataset, job in zip(column.datasets, plan.jobs[row.name, at], strict=True):
        outcome = outcomes[job.key]
        if outcome.why:
            absent[job.dataset if outcome.missing == NO_DATA else f"{row.name} on {job.dataset}"] = outcome.why
        prompts = f"{job.templates} and descriptions" if job.descriptions else job.templates
        source = Source(plan.profile.title(dataset), outcome.records, prompts, job.views or "")
        known = source.values(metric)
        if not known:
            missing = missing or outcome.missing or "not measured"
        elif row.statistic == "deviation" and len(known) == 1:
            missing = missing or "one seed"
        else:
            summary = stdev if row.statistic == "deviation" else median if metric in TIMED_METRICS else fmean
            values.append(summary(known))
            sources.append(source)
    if not values:
        return Cell(missing=missing, metric=metric)
    partial = "" if len(values) == len(column.datasets) else f"{len(values)} of {len(column.datasets)}"
    return Cell(fmean(values), partial=partial, metric=metric, sources=tuple(sources))


def _mean(parts: Sequence[Cell]) -> Cell:
    """The mean of other cells: of those that are there, and of the paper's numbers in the same ones."""
    there = [part for part in parts if part.ours is not None]
    if not there:
        return Cell(missing=parts[0].missing, metric=parts[0].metric)
    papers = [part.reliable for part in there]
    whole = len(there) == len(parts) and not any(part.partial for part in there)
    return Cell(
        fmean(part.ours for part in there if part.ours is not None),
        printed=None if whole or None in papers else fmean(value for value in papers if value is not None),
        rests_on_errata=not whole and any(part.erratum for part in there),
        partial="" if whole else "in part" if len(there) == len(parts) else f"{len(there)} of {len(parts)}",
        metric=parts[0].metric,
        sources=tuple(source for part in there for source in part.sources),
    )


def _gain(plan: Plan, row: Row, cells: Mapping[str, Sequence[Cell]]) -> Cell | None:
    """How far a row is above the baseline, on what both have of the columns that count; beside it the paper's gain.

    The columns that count are those of the last mean, or all. Where some are missing, the paper's gain is over the same
    columns, which other data do not have; else it is the one it printed. Only mean accuracies have gains.
    """
    base, columns = plan.experiment.baseline_of(row), plan.columns
    is_accuracy = row.statistic == "mean" and all(cell.metric == "accuracy" for cell in cells[row.name])
    if base is None or row is base or not is_accuracy:
        return None
    parts = next((column.parts for column in reversed(columns) if column.parts), tuple(range(len(columns))))
    pairs = {part: (cells[row.name][part], cells[base.name][part]) for part in parts}
    common = {part: values for part, pair in pairs.items() if (values := _common(*pair))}
    counted = [column for column in plan.paper_columns if column.parts][-1:] or plan.paper_columns
    papers = _paper_gain([(_printed(plan, row, one.label), _printed(plan, base, one.label)) for one in counted])
    if not common:
        missing = next((cell.missing for pair in pairs.values() for cell in pair if cell.missing), "")
        return replace(papers, missing=missing)
    there = sum(map(len, common.values()))
    of = sum(max(len(columns[part].datasets), 1) for part in parts)
    if there < of:
        papers = _paper_gain([pairs[part] for part in common]) if plan.profile.comparable else Cell(is_gain=True)
    ours = fmean(fmean(mine - theirs for mine, theirs in values) for values in common.values())
    return replace(papers, ours=ours, partial="" if there == of else f"{there} of {of}")


def _printed(plan: Plan, row: Row, label: str) -> Cell:
    """What the paper has in a row and column."""
    errata = (one for one in plan.experiment.errata if (one.row, one.column) == (row.name, label))
    return Cell(printed=plan.printed[row.name].get(label), erratum=next(errata, None))


def _paper_gain(pairs: Sequence[tuple[Cell, Cell]]) -> Cell:
    """The paper's gain over some columns, if it has all of their numbers."""
    known = [(one.reliable, other.reliable) for one, other in pairs]
    differences = [one - other for one, other in known if one is not None and other is not None]
    return Cell(
        printed=fmean(differences) if differences and len(differences) == len(pairs) else None,
        rests_on_errata=any(one.erratum or other.erratum for one, other in pairs),
        is_gain=True,
    )


def _common(own: Cell, base: Cell) -> list[tuple[float, float]]:
    """The values of two cells for every dataset that both have."""
    theirs = {source.dataset: source.mean(base.metric) for source in base.sources}
    pairs = [(source.mean(own.metric), theirs.get(source.dataset)) for source in own.sources]
    return [(one, other) for one, other in pairs if one is not None and other is not None]


def mark_best(lines: Sequence[Line]) -> tuple[Line, ...]:
    """Mark the best accuracies of ours, one in each column or several that read the same.

    A mean of some parts does not compete with one of all, nor with one of others.
    """
    best = set()
    for column, cells in enumerate(zip(*(line.cells for line in lines), strict=True)):
        there = {at: cell for at, cell in enumerate(cells) if cell.ours is not None and lines[at].is_accuracy(cell)}
        extents = {cell.partial for cell in there.values()}
        compared = {at: cell.ours_text for at, cell in there.items() if not cell.partial or len(extents) == 1}
        if len(compared) > 1:
            top = max(compared.values(), key=float)
            best |= {(at, column) for at, text in compared.items() if text == top}
    return tuple(
        replace(line, cells=tuple(replace(cell, is_best=(at, own) in best) for own, cell in enumerate(line.cells)))
        for at, line in enumerate(lines)
    )


def _about(plan: Plan, library: Library, outcomes: Mapping[str, Outcome]) -> dict[str, str]:
    """What made the features of a table: the model, if images were encoded for it, and that of each feature file."""
    done = sorted({job.dataset for job in plan.all_jobs if outcomes[job.key].records})
    encoders = {library.model_of(name): library.encoder_of(name) for name in done if name not in library.own}
    files = {name: library.own[name].architecture or "an unknown model" for name in done if name in library.own}
    about = {
        "model": encoders,
        "architecture": [encoder.architecture for encoder in encoders.values()],
        "model fingerprint": [encoder.fingerprint[:12] for encoder in encoders.values()],
        "feature files": [f"{name} (by {model})" for name, model in files.items()],
    }
    return {name: ", ".join(values) for name, values in about.items() if values} or {"model": "none was needed"}


def _notes(plan: Plan, library: Library) -> list[str]:
    """What must be said beside the paper's numbers."""
    experiment, profile = plan.experiment, plan.profile
    wanted = {job.dataset for job in plan.all_jobs}
    if not experiment.place or not wanted:
        return []
    notes = []
    if not profile.comparable:
        kinds = {kind_of(dataset) for dataset in wanted}
        data = [*(what for kind, what in profile.data.items() if kind in kinds), "and the feature files that are named"]
        notes.append(f"Not the paper's data: {', '.join(data)}. Only gains over the baseline compare with the paper's.")
    elif library.is_model_loaded and library.encoder.architecture != experiment.backbone:
        made_with = library.encoder.architecture
        notes.append(f"Made with {made_with}; the paper's numbers are those of {experiment.backbone}.")
    if profile.comparable:
        notes += [
            doubts for name, data in library.own.items() if name in wanted and (doubts := _doubts(data, experiment))
        ]
    for name, count in library.skipped.items():
        if name in wanted:
            notes.append(f"{count:,} pictures of {name} could not be read.")
    most = max(len(row.seeds) for row in experiment.rows)
    if profile.most_seeds is not None and profile.most_seeds < most:
        notes.append(f"At most {profile.most_seeds} seeds per row, of {most}.")
    return notes


def _doubts(data: FeatureFile, experiment: Experiment) -> str:
    """What tells a feature file of the user's from what the paper's numbers were made of."""
    entry = find_entry(data.dataset)
    doubts = [] if data.architecture == experiment.backbone else [f"model {data.architecture or 'unknown'}"]
    if data.classifier.classes != entry.classes:
        doubts.append(f"{data.classifier.classes:,} of {entry.classes:,} classes")
    if entry.count is not None and len(data.samples) != entry.count:
        doubts.append(f"{len(data.samples):,} samples where the set has {entry.count:,}")
    return f"{data.dataset} is a feature file unlike the paper's data: {', '.join(doubts)}." if doubts else ""

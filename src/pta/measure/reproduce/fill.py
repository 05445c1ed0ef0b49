"""From the outcomes of jobs to a table: means over seeds, datasets and columns, and the paper's numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median, stdev
from typing import Any

from pta.measure.reproduce.declaration import TIMED_METRICS, Row
from pta.measure.reproduce.outcomes import Outcome
from pta.measure.reproduce.plan import Plan
from pta.measure.reproduce.table import NO_DATA, NO_GAIN, Cell, Line, Source, Table


def fill(plan: Plan, outcomes: Mapping[str, Outcome], about: Mapping[str, Any], notes: Sequence[str] = ()) -> Table:
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
    titles = plan.profile.titles
    return Table(
        experiment,
        tuple(headings),
        mark_best(lines),
        plan.profile.comparable,
        dict(about),
        tuple(notes),
        absent,
        titles,
    )


def _cells(plan: Plan, row: Row, outcomes: Mapping[str, Outcome], absent: dict[str, str]) -> list[Cell]:
    """The cells of a row."""
    cells: list[Cell] = []
    for at, column in enumerate(plan.columns):
        if column.datasets:
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
    return Cell(printed=plan.printed[row.name].get(label), erratum=plan.experiment.erratum_of(row, label))


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
    for column in range(len(lines[0].cells)):
        there = {at: line.cells[column] for at, line in enumerate(lines) if line.is_accuracy(line.cells[column])}
        there = {at: cell for at, cell in there.items() if cell.ours is not None}
        extents = {cell.partial for cell in there.values()}
        compared = {at: cell.ours_text for at, cell in there.items() if not cell.partial or len(extents) == 1}
        if len(compared) > 1:
            top = max(compared.values(), key=float)
            best |= {(at, column) for at, text in compared.items() if text == top}
    return tuple(
        replace(
            line, cells=tuple(replace(cell, is_best=(at, column) in best) for column, cell in enumerate(line.cells))
        )
        for at, line in enumerate(lines)
    )

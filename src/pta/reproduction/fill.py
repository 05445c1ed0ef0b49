"""From the outcomes of jobs to a table: means over seeds, datasets and columns, the paper's numbers beside them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean, stdev
from typing import Any

from pta.reproduction.declaration import Row
from pta.reproduction.gains import gain_over
from pta.reproduction.measure import Outcomes
from pta.reproduction.origins import measured
from pta.reproduction.plan import Plan
from pta.reproduction.table import NO_DATA, Cell, Line, Source, Table


def fill(plan: Plan, outcomes: Outcomes, *, about: Mapping[str, Any], notes: Sequence[str] = ()) -> Table:
    """The table of a plan whose jobs are done."""
    experiment, absent = plan.experiment, dict[str, str]()
    cells = {row.name: _cells(plan, row, outcomes, absent) for row in experiment.rows}
    lines = []
    for row in experiment.rows:
        base, gain = experiment.baseline_of(row), None
        if base is not None and row is not base and row.statistic == "mean":
            gain = gain_over(plan, row, base, cells)
        lines.append(Line(row, tuple(cells[row.name]), gain))
    headings = tuple(column.heading for column in plan.columns)
    return Table(experiment, headings, tuple(lines), plan.world.comparable, dict(about), tuple(notes), absent)


def _cells(plan: Plan, row: Row, outcomes: Outcomes, absent: dict[str, str]) -> list[Cell]:
    """The cells of a row."""
    cells: list[Cell] = []
    for at, column in enumerate(plan.columns):
        if column.datasets:
            cell = _measured(plan, row, at, outcomes, absent)
        else:
            cell = _mean([cells[part] for part in column.parts])
        if not (cell.partial and plan.world.comparable):  # then the paper's number is of other parts
            printed = plan.printed[row.name].get(column.label)
            cell = replace(cell, printed=printed, erratum=plan.experiment.erratum_of(row, column.label))
        cells.append(cell)
    return cells


def _measured(plan: Plan, row: Row, at: int, outcomes: Outcomes, absent: dict[str, str]) -> Cell:
    """The mean over a column's datasets."""
    column = plan.columns[at]
    metric = column.metric or row.metric
    values, sources, missing = [], [], ""
    for dataset, job in zip(column.datasets, plan.jobs[row.name, at], strict=True):
        outcome = outcomes[job.key]
        found = [measured(record, metric) for record in outcome.records]
        if outcome.why:
            absent[job.dataset if outcome.missing == NO_DATA else f"{row.name} on {job.dataset}"] = outcome.why
        known = [value for value in found if value is not None]
        if not known or len(known) < len(found):
            missing = missing or outcome.missing or "not measured"
        elif row.statistic == "deviation" and len(known) == 1:
            missing = missing or "one seed"
        else:
            values.append(fmean(known) if row.statistic == "mean" else stdev(known))
            prompts = f"{job.templates} and descriptions" if job.descriptions else job.templates
            sources.append(Source(plan.world.title(dataset), outcome.records, prompts, job.views or ""))
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

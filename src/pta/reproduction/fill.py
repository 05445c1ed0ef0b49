"""From the outcomes of jobs to a table: means over seeds, datasets and columns, the paper's numbers beside them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean, stdev
from typing import Any

from pta.reproduction.columns import PlacedColumn, place_columns, printed_numbers
from pta.reproduction.declaration import Experiment, Row
from pta.reproduction.gains import gain_over, printed_gain
from pta.reproduction.job import job_of
from pta.reproduction.measure import Outcomes
from pta.reproduction.origins import measured
from pta.reproduction.table import NO_DATA, Cell, Line, Source, Table
from pta.reproduction.world import World


def fill(
    experiment: Experiment,
    world: World,
    papers: World,
    outcomes: Outcomes,
    *,
    about: Mapping[str, Any],
    notes: Sequence[str] = (),
) -> Table:
    """The table of an experiment in a world; `papers` is the world that the printed numbers are from."""
    columns = place_columns(experiment, world)
    absent: dict[str, str] = {}
    cells = {row.name: _cells(experiment, row, columns, world, papers, outcomes, absent) for row in experiment.rows}
    lines = []
    for row in experiment.rows:
        base, gain = experiment.baseline_of(row), None
        if base is not None and row is not base and row.statistic == "mean":
            printed = printed_gain(experiment, row, base, papers)
            gain = gain_over(cells[base.name], cells[row.name], columns, printed, world.comparable)
        lines.append(Line(row, tuple(cells[row.name]), gain))
    headings = tuple(column.heading for column in columns)
    return Table(experiment, headings, tuple(lines), world.comparable, dict(about), tuple(notes), absent)


def _cells(
    experiment: Experiment,
    row: Row,
    columns: Sequence[PlacedColumn],
    world: World,
    papers: World,
    outcomes: Outcomes,
    absent: dict[str, str],
) -> list[Cell]:
    """The cells of a row."""
    printed = printed_numbers(experiment, row, papers)
    cells: list[Cell] = []
    for column in columns:
        if column.datasets:
            cell = _measured(row, column, world, outcomes, absent)
        else:
            cell = _mean([cells[part] for part in column.parts])
        if not (cell.partial and world.comparable):  # then the paper's number is of other parts
            cell = replace(cell, printed=printed.get(column.label), erratum=experiment.erratum_of(row, column.label))
        cells.append(cell)
    return cells


def _measured(row: Row, column: PlacedColumn, world: World, outcomes: Outcomes, absent: dict[str, str]) -> Cell:
    """The mean over a column's datasets."""
    metric = column.metric or row.metric
    values, sources, missing = [], [], ""
    for dataset in column.datasets:
        job = job_of(row, column, dataset, world)
        outcome = outcomes[job.key]
        found = [measured(record, metric) for record in outcome.records]
        if outcome.why:
            absent[job.dataset if outcome.missing == NO_DATA else f"{row.name} on {job.dataset}"] = outcome.why
        known = [value for value in found if value is not None]
        if not known or len(known) < len(found):
            missing = missing or outcome.missing or "not measured"
            continue
        if row.statistic == "deviation" and len(known) == 1:
            missing = missing or "one seed"
            continue
        values.append(_statistic(row, known))
        prompts = f"{job.templates} and descriptions" if job.descriptions else job.templates
        sources.append(Source(world.title(dataset), outcome.records, prompts, job.views or ""))
    if not values:
        return Cell(missing=missing, metric=metric)
    partial = "" if len(values) == len(column.datasets) else f"{len(values)} of {len(column.datasets)}"
    return Cell(fmean(values), partial=partial, metric=metric, sources=tuple(sources))


def _statistic(row: Row, values: Sequence[float]) -> float:
    return fmean(values) if row.statistic == "mean" else stdev(values)


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

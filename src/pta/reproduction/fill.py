"""From the outcomes of jobs to a table: means over seeds, datasets and columns, the paper's numbers beside them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean, stdev
from typing import Any

from pta.reproduction.columns import PlacedColumn, place_columns, printed_numbers
from pta.reproduction.declaration import Erratum, Experiment, Row
from pta.reproduction.job import job_of
from pta.reproduction.measure import Outcomes
from pta.reproduction.origins import mean_of, measured
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
        base = experiment.baseline_of(row)
        gain = None
        if base is not None and row is not base and row.statistic == "mean":
            paper = _printed_gain(experiment, row, base, papers)
            gain = _gain(columns, cells[row.name], cells[base.name], paper, world.comparable)
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
            cell = replace(cell, printed=printed.get(column.label), erratum=_erratum(experiment, row, column))
        cells.append(cell)
    return cells


def _erratum(experiment: Experiment, row: Row, column: PlacedColumn) -> Erratum | None:
    return next((one for one in experiment.errata if (one.row, one.column) == (row.name, column.label)), None)


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
    papers = [_reliable(part) for part in there]
    whole = len(there) == len(parts) and not any(part.partial for part in there)
    return Cell(
        fmean(part.ours for part in there if part.ours is not None),
        printed=None if whole or None in papers else fmean(value for value in papers if value is not None),
        rests_on_errata=any(part.erratum for part in there),
        partial="" if whole else "in part" if len(there) == len(parts) else f"{len(there)} of {len(parts)}",
        metric=parts[0].metric,
        sources=tuple(source for part in there for source in part.sources),
    )


def _gain(
    columns: Sequence[PlacedColumn], own: Sequence[Cell], base: Sequence[Cell], paper: Cell, comparable: bool
) -> Cell | None:
    """How far a row is above the baseline, on what both have of the columns that count; beside it the paper's gain.

    Where the data are the paper's and some are missing, its gain is over the same columns.
    """
    if any(cell.metric != "accuracy" for cell in own):
        return None
    parts = _columns_that_count(columns)
    common = {part: _common(own[part], base[part]) for part in parts}
    both = [part for part in parts if common[part]]
    if not both:
        missing = next((cell.missing for part in parts for cell in (own[part], base[part]) if cell.missing), "")
        return replace(paper, missing=missing)
    there, of = sum(map(len, common.values())), sum(max(len(columns[part].datasets), 1) for part in parts)
    ours = fmean(fmean(mine - theirs for mine, theirs in common[part]) for part in both)
    if there == of or not comparable:
        return replace(paper, ours=ours, partial="" if there == of else f"{there} of {of}")
    return replace(_paper_gain([(own[part], base[part]) for part in both]), ours=ours, partial=f"{there} of {of}")


def _printed_gain(experiment: Experiment, row: Row, base: Row, papers: World) -> Cell:
    """The gain that the paper printed: of the last mean, or else over all columns."""
    columns = place_columns(experiment, papers)
    cells = [
        [
            Cell(
                printed=printed_numbers(experiment, one, papers).get(column.label),
                erratum=_erratum(experiment, one, column),
            )
            for column in columns
        ]
        for one in (row, base)
    ]
    means = [number for number, column in enumerate(columns) if column.parts]
    return _paper_gain([(cells[0][part], cells[1][part]) for part in (means[-1:] or range(len(columns)))])


def _paper_gain(pairs: Sequence[tuple[Cell, Cell]]) -> Cell:
    known = [(_reliable(one), _reliable(other)) for one, other in pairs]
    differences = [one - other for one, other in known if one is not None and other is not None]
    return Cell(
        printed=fmean(differences) if differences and len(differences) == len(pairs) else None,
        rests_on_errata=any(one.erratum or other.erratum for one, other in pairs),
    )


def _reliable(cell: Cell) -> float | None:
    """The paper's number, if it is right or it is known what it should be."""
    return None if cell.erratum and cell.erratum.instead is None else cell.paper


def _columns_that_count(columns: Sequence[PlacedColumn]) -> tuple[int, ...]:
    """Those of the last mean, or all."""
    means = [column for column in columns if column.parts]
    return means[-1].parts if means else tuple(range(len(columns)))


def _common(own: Cell, base: Cell) -> list[tuple[float, float]]:
    """The values of two cells for every dataset that both have."""
    theirs = {source.dataset: mean_of(source.records, base.metric) for source in base.sources}
    pairs = [(mean_of(source.records, own.metric), theirs.get(source.dataset)) for source in own.sources]
    return [(one, other) for one, other in pairs if one is not None and other is not None]

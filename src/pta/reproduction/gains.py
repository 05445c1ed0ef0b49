"""How far a row is above the baseline, ours and the paper's, over the same datasets wherever that is possible."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from pta.reproduction.columns import PlacedColumn, place_columns, printed_numbers
from pta.reproduction.declaration import Experiment, Row
from pta.reproduction.origins import mean_of
from pta.reproduction.table import Cell
from pta.reproduction.world import World


def gain_over(
    base: Sequence[Cell], own: Sequence[Cell], columns: Sequence[PlacedColumn], printed: Cell, comparable: bool
) -> Cell | None:
    """How far a row is above the baseline, on what both have of the columns that count; beside it the paper's gain.

    Where the data are the paper's and some are missing, its gain is over the same columns, else the one it printed.
    Only accuracies have gains.
    """
    if any(cell.metric != "accuracy" for cell in own):
        return None
    parts = _columns_that_count(columns)
    common = {part: _common(own[part], base[part]) for part in parts}
    both = [part for part in parts if common[part]]
    if not both:
        missing = next((cell.missing for part in parts for cell in (own[part], base[part]) if cell.missing), "")
        return replace(printed, missing=missing)
    there, of = sum(map(len, common.values())), sum(max(len(columns[part].datasets), 1) for part in parts)
    ours = fmean(fmean(mine - theirs for mine, theirs in common[part]) for part in both)
    if there == of or not comparable:
        return replace(printed, ours=ours, partial="" if there == of else f"{there} of {of}")
    return replace(_paper_gain([(own[part], base[part]) for part in both]), ours=ours, partial=f"{there} of {of}")


def printed_gain(experiment: Experiment, row: Row, base: Row, papers: World) -> Cell:
    """The gain that the paper printed: of the last mean, or else over all columns."""
    columns = place_columns(experiment, papers)
    cells = [_printed(experiment, one, columns, papers) for one in (row, base)]
    means = [number for number, column in enumerate(columns) if column.parts]
    return _paper_gain([(cells[0][part], cells[1][part]) for part in (means[-1:] or range(len(columns)))])


def _printed(experiment: Experiment, row: Row, columns: Sequence[PlacedColumn], papers: World) -> list[Cell]:
    printed = printed_numbers(experiment, row, papers)
    return [
        Cell(printed=printed.get(column.label), erratum=experiment.erratum_of(row, column.label)) for column in columns
    ]


def _paper_gain(pairs: Sequence[tuple[Cell, Cell]]) -> Cell:
    known = [(one.reliable, other.reliable) for one, other in pairs]
    differences = [one - other for one, other in known if one is not None and other is not None]
    return Cell(
        printed=fmean(differences) if differences and len(differences) == len(pairs) else None,
        rests_on_errata=any(one.erratum or other.erratum for one, other in pairs),
    )


def _columns_that_count(columns: Sequence[PlacedColumn]) -> tuple[int, ...]:
    """Those of the last mean, or all."""
    means = [column for column in columns if column.parts]
    return means[-1].parts if means else tuple(range(len(columns)))


def _common(own: Cell, base: Cell) -> list[tuple[float, float]]:
    """The values of two cells for every dataset that both have."""
    theirs = {source.dataset: mean_of(source.records, base.metric) for source in base.sources}
    pairs = [(mean_of(source.records, own.metric), theirs.get(source.dataset)) for source in own.sources]
    return [(one, other) for one, other in pairs if one is not None and other is not None]

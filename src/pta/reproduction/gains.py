"""How far a row is above the baseline, ours and the paper's, over the same datasets wherever that is possible."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from pta.reproduction.declaration import Row
from pta.reproduction.origins import mean_of
from pta.reproduction.plan import Plan
from pta.reproduction.table import Cell


def gain_over(plan: Plan, row: Row, base: Row, cells: Mapping[str, Sequence[Cell]]) -> Cell | None:
    """How far a row is above the baseline, on what both have of the columns that count; beside it the paper's gain.

    The columns that count are those of the last mean, or all. Where the data are the paper's and some are missing, its
    gain is over the same columns, else the one it printed. Only accuracies have gains.
    """
    if any(cell.metric != "accuracy" for cell in cells[row.name]):
        return None
    columns = plan.columns
    parts = next((column.parts for column in reversed(columns) if column.parts), tuple(range(len(columns))))
    pairs = {part: (cells[row.name][part], cells[base.name][part]) for part in parts}
    common = {part: values for part, pair in pairs.items() if (values := _common(*pair))}
    if not common:
        missing = next((cell.missing for pair in pairs.values() for cell in pair if cell.missing), "")
        return replace(_printed_gain(plan, row, base), missing=missing)
    there = sum(map(len, common.values()))
    of = sum(max(len(columns[part].datasets), 1) for part in parts)
    is_same = there == of or not plan.world.comparable
    papers = _printed_gain(plan, row, base) if is_same else _paper_gain([pairs[part] for part in common])
    ours = fmean(fmean(mine - theirs for mine, theirs in values) for values in common.values())
    return replace(papers, ours=ours, partial="" if there == of else f"{there} of {of}")


def _printed_gain(plan: Plan, row: Row, base: Row) -> Cell:
    """The gain that the paper printed: of the last mean, or else over all columns."""
    columns = [column for column in plan.paper_columns if column.parts][-1:] or plan.paper_columns
    return _paper_gain([(_printed(plan, row, column.label), _printed(plan, base, column.label)) for column in columns])


def _printed(plan: Plan, row: Row, label: str) -> Cell:
    return Cell(printed=plan.printed[row.name].get(label), erratum=plan.experiment.erratum_of(row, label))


def _paper_gain(pairs: Sequence[tuple[Cell, Cell]]) -> Cell:
    known = [(one.reliable, other.reliable) for one, other in pairs]
    differences = [one - other for one, other in known if one is not None and other is not None]
    return Cell(
        printed=fmean(differences) if differences and len(differences) == len(pairs) else None,
        rests_on_errata=any(one.erratum or other.erratum for one, other in pairs),
    )


def _common(own: Cell, base: Cell) -> list[tuple[float, float]]:
    """The values of two cells for every dataset that both have."""
    theirs = {source.dataset: mean_of(source.records, base.metric) for source in base.sources}
    pairs = [(mean_of(source.records, own.metric), theirs.get(source.dataset)) for source in own.sources]
    return [(one, other) for one, other in pairs if one is not None and other is not None]

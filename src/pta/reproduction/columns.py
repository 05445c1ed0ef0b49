"""The columns of an experiment in a world: which datasets, or which other columns, each is the mean of."""

from collections.abc import Sequence
from dataclasses import dataclass

from pta.errors import InvalidParameter, naming, nearest
from pta.reproduction.declaration import Column, Experiment, Row
from pta.reproduction.world import World


@dataclass(frozen=True)
class PlacedColumn:
    """A column in a world.

    Attributes:
        heading: what stands above it.
        label: what the experiment's file and the paper's numbers know it by.
        datasets: whose mean it is; none if it is a mean of columns.
        parts: the positions of the columns that it is the mean of.
        metric: what is measured, if not what the row says.
    """

    heading: str
    label: str
    datasets: tuple[str, ...] = ()
    parts: tuple[int, ...] = ()
    metric: str = ""


def place_columns(experiment: Experiment, world: World) -> tuple[PlacedColumn, ...]:
    """The columns of an experiment, those for each dataset of a group written out."""
    placed: list[PlacedColumn] = []
    with naming(f"experiment {experiment.id}"):
        for column in experiment.columns:
            if column.each:
                placed += [
                    PlacedColumn(world.title(id), world.title(id), datasets=(id,), metric=column.metric)
                    for id in world.members(column.each)
                ]
            else:
                placed.append(_place(column, placed, world))
        _require_different([column.heading for column in placed])
    return tuple(placed)


def printed_numbers(experiment: Experiment, row: Row, papers: World) -> dict[str, float]:
    """What the paper printed in a row, by the label of the column."""
    labels = [column.label for column in place_columns(experiment, papers)]
    if row.printed and len(row.printed) != len(labels):
        raise InvalidParameter(
            f"experiment {experiment.id}: {row.name} has {len(row.printed)} printed numbers for {len(labels)} columns"
        )
    return {label: value for label, value in zip(labels, row.printed, strict=False) if value is not None}


def _place(column: Column, before: Sequence[PlacedColumn], world: World) -> PlacedColumn:
    if column.datasets:
        named = world.titles.get(column.datasets, column.label) if not column.metric else column.label
        members = world.members(column.datasets)
        return PlacedColumn(named, column.label, datasets=members, metric=column.metric)
    if column.mean_of == ("all",):
        parts = tuple(number for number, other in enumerate(before) if other.datasets)
    else:
        parts = tuple(_position(label, before) for label in column.mean_of)
    return PlacedColumn(column.label, column.label, parts=parts)


def _position(label: str, before: Sequence[PlacedColumn]) -> int:
    labels = [column.label for column in before]
    if label not in labels:
        raise InvalidParameter(f"no earlier column is called {label!r}; {nearest(label, labels)}")
    return labels.index(label)


def _require_different(headings: Sequence[str]) -> None:
    for heading in headings:
        if headings.count(heading) > 1:
            raise InvalidParameter(f"two columns are called {heading!r}")

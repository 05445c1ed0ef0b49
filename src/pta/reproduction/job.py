"""Job: one row of an experiment on one dataset, with all that decides what comes of it."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from pta.adapters import adapter_class, list_adapters, needs_of_samples
from pta.adapters.presets import load_preset, require_preset
from pta.errors import InvalidParameter, naming
from pta.evaluation.stream import Stream
from pta.parameters import require_declared
from pta.reproduction.columns import PlacedColumn, place_columns
from pta.reproduction.declaration import SPEED_METRICS, Experiment, Row
from pta.reproduction.world import World


@dataclass(frozen=True)
class Job:
    """What is run.

    Attributes:
        dataset: the id of the dataset.
        method, params: what runs on it; the params of its preset among them.
        templates, descriptions: how the texts are made.
        views: how augmented views are made, or None for plain images.
        stream, seeds: the orders that the samples come in.
        speed: whether the time of single images is measured, instead of accuracy.
        awaits: the methods and kinds of data that are not there yet.
    """

    dataset: str
    method: str
    params: Mapping[str, Any]
    templates: str
    descriptions: bool
    views: str | None
    stream: Stream
    seeds: tuple[int, ...]
    speed: bool
    awaits: tuple[str, ...]

    @cached_property
    def key(self) -> str:
        """The same for equal jobs."""
        return json.dumps(asdict(self), sort_keys=True, default=str)

    @property
    def needs(self) -> frozenset[str]:
        """What the method needs of the samples, with these parameters."""
        return needs_of_samples(self.method, self.params)


def jobs_of(experiment: Experiment, world: World) -> Iterator[Job]:
    """All jobs of an experiment."""
    columns = place_columns(experiment, world)
    for row in experiment.rows:
        for column in columns:
            for dataset in column.datasets:
                with naming(f"experiment {experiment.id}: {row.name}"):
                    job = job_of(row, column, dataset, world)
                yield job


def job_of(row: Row, column: PlacedColumn, dataset: str, world: World) -> Job:
    """The job of a row for one of a column's datasets."""
    try:
        id = dataset.format_map(row.fill)
    except KeyError as error:
        raise InvalidParameter(f"the dataset {dataset} wants a value for {error} in fill") from None
    except (ValueError, IndexError):  # a file of the user's may be called anything
        raise InvalidParameter(f"the name {dataset} holds braces that cannot be filled in") from None
    awaits = tuple(_awaited(row, id, world))
    params = {**_preset_values(row, id), **row.params}
    is_speed = (column.metric or row.metric) in SPEED_METRICS
    if not awaits:
        require_declared(row.method, adapter_class(row.method).declared, params)
    return Job(
        dataset=id,
        method=row.method,
        params=params,
        templates=row.templates,
        descriptions=row.descriptions,
        views=_views(row, dataset, world),
        stream=row.stream,
        seeds=(1,) if is_speed else row.seeds[: world.most_seeds],
        speed=is_speed,
        awaits=awaits,
    )


def _views(row: Row, dataset: str, world: World) -> str | None:
    """How the row's views of a dataset are made, by the first group that it is in."""
    modes = [mode for group, mode in row.views.items() if dataset in world.members(group)]
    return modes[0] if modes else None


def _awaited(row: Row, dataset: str, world: World) -> Iterator[str]:
    for method in dict.fromkeys((row.method, row.params.get("base", row.method))):
        if method in world.awaited_methods and method not in list_adapters():
            yield method
        else:
            adapter_class(method)  # says what is wrong with the name
    kind = dataset.split("/")[0]
    if kind in world.awaited_datasets:
        yield kind


def _preset_values(row: Row, dataset: str) -> dict[str, Any]:
    """What the row's preset gives its method for a dataset; PTA on top of a method has the values of both."""
    if not row.preset:
        return {}
    require_preset(row.preset)
    base = row.params.get("base")
    own = load_preset("pta" if base else row.method, row.preset, dataset) or {}
    return {**own, "base_parameters": load_preset(base, row.preset, dataset) or {}} if base else own

"""Job: one row of an experiment on one dataset, with all that decides what comes of it."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from pta.adapters.base import adapter_class, list_adapters, require_parameters
from pta.adapters.presets import load_preset
from pta.errors import InvalidParameter
from pta.experiments.stream import Stream
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
        awaited: whether method or dataset are not there yet.
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
    awaited: bool

    @cached_property
    def key(self) -> str:
        """The same for equal jobs."""
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def needs(self) -> frozenset[str]:
        """What the method needs of the samples."""
        own = adapter_class(self.method).needs
        return own | adapter_class(self.params["base"]).needs if "base" in self.params else own


def jobs_of(experiment: Experiment, world: World) -> Iterator[Job]:
    """All jobs of an experiment."""
    for row in experiment.rows:
        for column in place_columns(experiment, world):
            for dataset in column.datasets:
                yield job_of(row, column, dataset, world)


def job_of(row: Row, column: PlacedColumn, dataset: str, world: World) -> Job:
    """The job of a row for one of a column's datasets."""
    try:
        id = dataset.format_map(row.fill)
    except KeyError as error:
        raise InvalidParameter(f"{row.name}: the dataset {dataset} wants a value for {error} in fill") from None
    used = {row.method, row.params.get("base", row.method)}
    unknown = used - set(list_adapters()) - set(world.awaited_methods)
    for name in sorted(unknown):
        adapter_class(name)  # says what is wrong
    awaited = bool(used - set(list_adapters())) or id.split("/")[0] in world.awaited_datasets
    params = {**_preset_values(row, id), **row.params}
    if not awaited:
        require_parameters(row.method, params)
    return Job(
        dataset=id,
        method=row.method,
        params=params,
        templates=row.templates,
        descriptions=row.descriptions,
        views=next((mode for group, mode in row.views.items() if dataset in world.members(group)), None),
        stream=row.stream,
        seeds=row.seeds[: world.most_seeds],
        speed=(column.metric or row.metric) in SPEED_METRICS,
        awaited=awaited,
    )


def _preset_values(row: Row, dataset: str) -> dict[str, Any]:
    """What the row's preset gives its method for a dataset; PTA on top of a method has the values of both."""
    if not row.preset:
        return {}
    base = row.params.get("base")
    own = load_preset("pta" if base else row.method, row.preset, dataset) or {}
    return {**own, "base_parameters": load_preset(base, row.preset, dataset) or {}} if base else own

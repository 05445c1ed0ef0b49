"""Job: one row of an experiment on one dataset, with all that decides what comes of it."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from pta.adapters import adapter_class, list_adapters, needs_of_samples
from pta.adapters.presets import load_preset, require_preset
from pta.errors import InvalidParameter
from pta.evaluation.stream import Stream
from pta.parameters import check_given
from pta.reproduction.declaration import SPEED_METRICS, Row
from pta.reproduction.world import World


@dataclass(frozen=True)
class Job:
    """What is run."""

    dataset: str  # its id
    method: str
    params: Mapping[str, Any]  # those of the preset among them
    templates: str
    descriptions: bool
    views: str | None  # how augmented views are made; None for plain images
    stream: Stream
    seeds: tuple[int, ...]
    speed: bool  # whether the time of single images is measured, instead of accuracy
    awaits: tuple[str, ...]  # the methods and kinds of data that are not there yet

    @cached_property
    def key(self) -> str:
        """The same for equal jobs."""
        return json.dumps(asdict(self), sort_keys=True, default=str)

    @property
    def needs(self) -> frozenset[str]:
        """What the method needs of the samples, with these parameters."""
        return needs_of_samples(self.method, self.params)


def make_job(row: Row, dataset: str, metric: str, world: World) -> Job:
    """The job of a row for one of the world's datasets, checked."""
    try:
        id = dataset.format_map(row.fill)
    except KeyError as error:
        raise InvalidParameter(f"the dataset {dataset} wants a value for {error} in fill") from None
    except (ValueError, IndexError):  # a file of the user's may be called anything
        raise InvalidParameter(f"the name {dataset} holds braces that cannot be filled in") from None
    awaits = tuple(_awaited(row, id, world))
    params = {**_preset_values(row, id), **row.params}
    if not awaits:
        _check(row.method, params)
    views = [mode for group, mode in row.views.items() if dataset in world.members(group)]
    is_speed = metric in SPEED_METRICS
    return Job(
        dataset=id,
        method=row.method,
        params=params,
        templates=row.templates,
        descriptions=row.descriptions,
        views=views[0] if views else None,
        stream=row.stream,
        seeds=(1,) if is_speed else row.seeds[: world.most_seeds],
        speed=is_speed,
        awaits=awaits,
    )


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


def _check(method: str, params: Mapping[str, Any]) -> None:
    """Refuse a parameter that the method, or the one that it stands on, does not have, or a value that it cannot."""
    check_given(method, adapter_class(method).declared, params)
    if "base" in params:
        _check(params["base"], params.get("base_parameters", {}))

"""Plan: an experiment placed in a profile: its columns, the job of every row and dataset, and the printed numbers."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

from pta.core.parameters import check_given
from pta.data.prompts import load_templates
from pta.errors import InvalidParameter, naming, require_known
from pta.measure.reproduce.declaration import SPEED_METRICS, Experiment, Row, require_different
from pta.measure.reproduce.profile import Profile, kind_of, load_profile
from pta.measure.stream import Stream
from pta.methods import adapter_class, needs_of_samples
from pta.methods.registry import load_preset, require_preset


@dataclass(frozen=True)
class PlannedJob:
    """What is run: one row on one dataset, with all that decides what comes of it."""

    dataset: str  # its id
    method: str
    params: Mapping[str, Any]  # those of the preset among them
    templates: str
    descriptions: bool
    views: str | None  # how augmented views are made; None for plain images
    stream: Stream
    seeds: tuple[int, ...]
    speed: bool  # whether the time of single images is measured, instead of accuracy

    @cached_property
    def key(self) -> str:
        """The same for equal jobs."""
        return json.dumps(asdict(self), sort_keys=True, default=str)

    @property
    def needs(self) -> frozenset[str]:
        """What the method needs of the samples, with these parameters."""
        return needs_of_samples(self.method, self.params)


@dataclass(frozen=True)
class PlacedColumn:
    """A column in a profile."""

    heading: str  # what stands above it
    label: str  # what the experiment's file and the paper's numbers know it by
    datasets: tuple[str, ...] = ()  # whose mean it is; none if it is a mean of columns
    parts: tuple[int, ...] = ()  # the positions of the columns that it is the mean of
    metric: str = ""  # what is measured, if not what the row says


@dataclass(frozen=True)
class Plan:
    """What is to be measured, and what it is to be compared with."""

    experiment: Experiment
    profile: Profile
    columns: tuple[PlacedColumn, ...]
    jobs: Mapping[tuple[str, int], tuple[PlannedJob, ...]]  # by the name of the row and the position of the column
    paper_columns: tuple[PlacedColumn, ...]  # as they are for the data of the printed numbers
    printed: Mapping[str, Mapping[str, float]]  # by the name of the row and the label of the column
    left_out: Mapping[str, str]  # kinds of data whose rows and columns are left out, each with the reason

    @property
    def all_jobs(self) -> list[PlannedJob]:
        """All jobs, row by row."""
        return [job for jobs in self.jobs.values() for job in jobs]


def place(experiment: Experiment, profile: Profile, papers: Profile | None = None) -> Plan:
    """Place an experiment in a profile, and refuse whatever is wrong with its file before any work is done.

    `papers` is the profile of the printed numbers: the paper's, or in a user's own experiment the same one.
    """
    of_the_paper = replace(
        experiment,
        rows=tuple(row for row in experiment.rows if not row.only_offline),
        columns=tuple(column for column in experiment.columns if not column.only_offline),
    )
    experiment = of_the_paper if profile.comparable else experiment
    if papers is None and not experiment.place:
        papers = profile = replace(profile, comparable=True)
    papers = papers or load_profile("paper")
    with naming(f"experiment {experiment.id}"):
        experiment, left_out = _without_absent(experiment, profile)
        columns, jobs = _place_columns(experiment, profile), {}
        for row, (at, column) in product(experiment.rows, enumerate(columns)):
            with naming(row.name):
                metric = column.metric or row.metric
                datasets = () if row.absent else column.datasets
                jobs[row.name, at] = tuple(_job(row, dataset, metric, profile) for dataset in datasets)
        paper_columns = _place_columns(of_the_paper, papers)
        printed = {row.name: _printed(row, paper_columns) for row in experiment.rows}
        labels = [column.label for column in paper_columns]
        for erratum in experiment.errata:
            found = printed[erratum.row].get(erratum.column, "nothing")
            if erratum.column in labels and found != erratum.printed:
                where = f"{erratum.row}, {erratum.column}"
                raise InvalidParameter(f"an erratum has {erratum.printed} for {where}, where {found} is printed")
        drawn = experiment.figure.columns if experiment.figure else ()
        for label in (*drawn, *(erratum.column for erratum in experiment.errata)):
            require_known("column", label, labels)
    return Plan(experiment, profile, columns, jobs, paper_columns, printed, left_out)


def _without_absent(experiment: Experiment, profile: Profile) -> tuple[Experiment, dict[str, str]]:
    """An experiment without rows and columns of data that the profile cannot have, and the reason for each kind."""
    rows = [(row, {kind_of(str(value)) for value in row.fill.values()}) for row in experiment.rows]
    groups = [(column, profile.members(column.datasets) if column.datasets else ()) for column in experiment.columns]
    columns = [(column, {kind_of(id) for id in group}) for column, group in groups]
    found = set().union(*(kinds for _, kinds in (*rows, *columns)))
    left_out = {kind: why for kind, why in profile.absent.items() if kind in found}
    kept_rows = tuple(row for row, kinds in rows if kinds.isdisjoint(left_out))
    kept_columns = tuple(column for column, kinds in columns if kinds.isdisjoint(left_out))
    return replace(experiment, rows=kept_rows, columns=kept_columns), left_out


def _place_columns(experiment: Experiment, profile: Profile) -> tuple[PlacedColumn, ...]:
    """The columns of an experiment, those for each dataset of a group written out."""
    placed: list[PlacedColumn] = []
    for column in experiment.columns:
        label, metric, labels = column.label, column.metric, [other.label for other in placed]
        if column.each:
            titles = {id: profile.title(id) for id in profile.members(column.each)}
            placed += [PlacedColumn(title, title, datasets=(id,), metric=metric) for id, title in titles.items()]
        elif column.datasets:
            heading = label if metric else profile.titles.get(column.datasets, label)
            placed.append(PlacedColumn(heading, label, datasets=profile.members(column.datasets), metric=metric))
        elif column.mean_of == ("all",):
            parts = tuple(at for at, other in enumerate(placed) if other.datasets)
            if not parts:
                raise InvalidParameter(f"the column {label!r} is a mean of all before it, and there are none")
            placed.append(PlacedColumn(label, label, parts=parts))
        else:
            for part in column.mean_of:
                require_known("earlier column", part, labels)
            placed.append(PlacedColumn(label, label, parts=tuple(map(labels.index, column.mean_of))))
    require_different("columns", [column.heading for column in placed])
    return tuple(placed)


def _job(row: Row, dataset: str, metric: str, profile: Profile) -> PlannedJob:
    """The job of a row for one of the profile's datasets, checked."""
    try:
        id = profile.stand_in(dataset.format_map(row.fill))
    except KeyError as error:
        raise InvalidParameter(f"the dataset {dataset} needs a value for {error} in fill") from None
    except (ValueError, IndexError):  # a file of the user's may be called anything
        raise InvalidParameter(f"the name {dataset} holds braces that cannot be filled in") from None
    params = {**_preset_values(row, id), **row.params}
    _check(row.method, params)
    load_templates(row.templates)
    views = [mode for group, mode in row.views.items() if dataset in profile.members(group)]
    made_of = (id, row.method, params, row.templates, row.descriptions, views[0] if views else None, row.stream)
    if metric in SPEED_METRICS:
        return PlannedJob(*made_of, seeds=(1,), speed=True)
    return PlannedJob(*made_of, row.seeds[: profile.most_seeds], speed=False)


def _preset_values(row: Row, dataset: str) -> dict[str, Any]:
    """What the row's preset gives its method for a dataset; PTA on top of a method has the values of both."""
    if not row.preset:
        return {}
    require_preset(row.preset)
    bases = adapter_class(row.method).stands_on(row.params)
    own = load_preset("pta" if bases else row.method, row.preset, dataset) or {}
    for base in bases:
        own["base_parameters"] = load_preset(base, row.preset, dataset) or {}
    return own


def _check(method: str, params: Mapping[str, Any]) -> None:
    """Refuse a parameter that the method, or the one that it stands on, does not have, or a value that it cannot."""
    check_given(method, adapter_class(method).declared, params)
    for base in adapter_class(method).stands_on(params):
        _check(base, params.get("base_parameters", {}))


def _printed(row: Row, columns: Sequence[PlacedColumn]) -> dict[str, float]:
    if row.printed and len(row.printed) != len(columns):
        raise InvalidParameter(f"{row.name} has {len(row.printed)} printed numbers for {len(columns)} columns")
    return {column.label: value for column, value in zip(columns, row.printed, strict=False) if value is not None}

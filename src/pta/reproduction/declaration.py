"""An experiment as it is declared: a TOML file that says what its rows and columns are, and what the paper printed.

Rows are settings (a method, its parameters, a stream …), columns are datasets or means of them. `docs/reproduce.md`
describes the file; everything in it is checked here, before any work is done.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from pta.errors import InvalidParameter, PtaError, UnreadableFile, nearest
from pta.evaluation.stream import Stream
from pta.files import read_text
from pta.reproduction.from_toml import make, pop_table, pop_tables

SPEED_METRICS = ("images_per_second", "share_of_clip", "stream_seconds", "memory_mib", "state_kb")
"""What is measured with the model, one image at a time."""

METRICS = ("accuracy", "worst_class", "calibration_error", "classes", "samples", *SPEED_METRICS)
"""What a cell can hold."""

VIEWS = ("augmix", "crops", "augmix-mean", "crops-mean")
STATISTICS = ("mean", "deviation")
FIGURES = ("bars", "curves", "lines")

_MOST_DIGITS = 6


@dataclass(frozen=True)
class Column:
    """A column for each of some datasets, a mean of datasets, or a mean of other columns; exactly one of the three.

    Attributes:
        label: its heading; a column for `each` dataset of a group has that dataset's title.
        each: a group of datasets, a column for each.
        datasets: a group of datasets, whose mean the column is.
        mean_of: labels of other columns, or `all` that are not computed themselves.
        metric: what is measured, if not what the row says.
    """

    label: str = ""
    each: str = ""
    datasets: str = ""
    mean_of: tuple[str, ...] = ()
    metric: str = ""

    def __post_init__(self) -> None:
        if [bool(self.each), bool(self.datasets), bool(self.mean_of)].count(True) != 1:
            raise InvalidParameter("a column has exactly one of each, datasets and mean_of")
        if bool(self.label) == bool(self.each):
            raise InvalidParameter("a column has a label, unless it stands for each dataset of a group")
        _require_known("metric", self.metric, ("", *METRICS))


@dataclass(frozen=True)
class Row:
    """A setting.

    Attributes:
        label: what it is called, once in its section.
        section: the heading it stands under.
        method: the name of a method, perhaps of one that is not there yet.
        params: of the method, on top of the preset's.
        preset: whose values for single datasets are used.
        templates: of the prompts.
        descriptions: whether each class also has sentences of its own.
        views: for groups of datasets, how augmented views are made, `augmix` or `crops`. A method that takes views has
            them beside the plain image; any other is given the mean of the most confident tenth of them in its place, and with
            `-mean` one that takes views is given that, too.
        stream: the order of the samples and the use of batches.
        seeds: whose orders; results are means over them.
        statistic: `mean` over the seeds, or their standard `deviation`.
        metric: what is measured.
        fill: values for the names in braces in a dataset's id.
        series, x: which line of a figure it belongs to, and where on it.
        note: what a reader should know about it.
        printed: what the paper printed, in the order of the columns as they are for the paper's datasets.
    """

    label: str
    method: str
    section: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    preset: str = ""
    templates: str = "clip"
    descriptions: bool = False
    views: Mapping[str, str] = field(default_factory=dict)
    stream: Stream = field(default_factory=Stream)
    seeds: tuple[int, ...] = (1, 2, 3)
    statistic: str = "mean"
    metric: str = "accuracy"
    fill: Mapping[str, Any] = field(default_factory=dict)
    series: str = ""
    x: float | None = None
    note: str = ""
    printed: tuple[float | None, ...] = ()

    def __post_init__(self) -> None:
        _require_known("metric", self.metric, METRICS)
        _require_known("statistic", self.statistic, STATISTICS)
        if not self.seeds or min(self.seeds) < 0 or len(set(self.seeds)) < len(self.seeds):
            raise InvalidParameter(f"{self.name}: seeds are how many, or different ones from 0, not {list(self.seeds)}")
        for mode in self.views.values():
            _require_known("mode of views", mode, VIEWS)

    @property
    def name(self) -> str:
        """What tells it from all other rows."""
        return f"{self.section}: {self.label}" if self.section else self.label


@dataclass(frozen=True)
class Erratum:
    """A number that the paper printed and that cannot be right.

    Attributes:
        row, column: which; the row by its name.
        printed: the number.
        instead: what it should be, if that is known.
        why: how one can tell.
    """

    row: str
    column: str
    printed: float
    why: str
    instead: float | None = None


@dataclass(frozen=True)
class Figure:
    """How the table is drawn.

    Attributes:
        kind: `bars` (a bar a row, for one column), `curves` (accuracy along the stream, a panel a column) or `lines`
            (a point a row, at its `x`, a line for each `series`, a panel a column).
        x, y: what the axes are called.
        columns: labels of those that are drawn; all if none is given.
        log_x: whether the horizontal axis is logarithmic.
    """

    kind: str
    x: str = ""
    y: str = "accuracy in %"
    columns: tuple[str, ...] = ()
    log_x: bool = False

    def __post_init__(self) -> None:
        _require_known("kind of figure", self.kind, FIGURES)


@dataclass(frozen=True)
class Experiment:
    """A table or figure.

    Attributes:
        id: what it is called on the command line.
        title: what it shows.
        place: where in the paper it is, e.g. `Table 1`; empty for one's own.
        position: its place in the order of the paper.
        backbone: the model that the printed numbers were made with.
        baseline: the label of the row that others are compared with.
        unit: what the numbers are.
        digits: after the point.
        note: what a reader should know.
        columns, rows, errata: see there.
        figure: how it is drawn, if it is.
    """

    id: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    place: str = ""
    position: int = 0
    backbone: str = "ViT-B/16"
    baseline: str = ""
    unit: str = "accuracy in %"
    digits: int = 2
    note: str = ""
    errata: tuple[Erratum, ...] = ()
    figure: Figure | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.digits <= _MOST_DIGITS:
            raise InvalidParameter(f"digits must be from 0 to {_MOST_DIGITS}, not {self.digits}")
        if self.figure and self.figure.kind == "lines" and all(row.x is None for row in self.rows):
            raise InvalidParameter("a figure of lines needs rows with an x")
        names = [row.name for row in self.rows]
        for name in names:
            if names.count(name) > 1:
                raise InvalidParameter(f"two rows are called {name!r}")
        if self.baseline and not any(row.label == self.baseline for row in self.rows):
            raise InvalidParameter(f"the baseline {self.baseline!r} is no row")
        for erratum in self.errata:
            _require_known("row of an erratum", erratum.row, names)

    def baseline_of(self, row: Row) -> Row | None:
        """The row that a row is compared with: in its own section if there is one, else the first of that label."""
        same = [one for one in self.rows if one.label == self.baseline]
        return next((one for one in same if one.section == row.section), same[0] if same else None)

    def erratum_of(self, row: Row, column: str) -> Erratum | None:
        """What is wrong with the number that the paper printed in a row and column, if anything is."""
        return next((one for one in self.errata if (one.row, one.column) == (row.name, column)), None)


def packaged_experiments() -> list[str]:
    """The ids of the experiments that ship with the package, in the order of the paper."""
    return sorted(_positions(), key=_positions().__getitem__)


@cache
def _positions() -> dict[str, int]:
    folder = resources.files("pta") / "data" / "experiments"
    files = [file for file in folder.iterdir() if file.name.endswith(".toml")]
    return {file.name.removesuffix(".toml"): tomllib.loads(file.read_text("utf-8"))["position"] for file in files}


def load_experiment(source: str) -> Experiment:
    """An experiment by its id, or from a .toml file of one's own."""
    if source.endswith(".toml"):
        return parse_experiment(Path(source).stem, read_text(Path(source), "experiment"))
    if source not in packaged_experiments():
        raise InvalidParameter(
            f"no experiment is called {source!r}; {nearest(source, packaged_experiments())} (pta reproduce --list)"
        )
    packaged = resources.files("pta") / "data" / "experiments" / f"{source}.toml"
    return parse_experiment(source, packaged.read_text(encoding="utf-8"))


def load_experiments(sources: Sequence[str], *, every: bool = False) -> list[Experiment]:
    """The experiments of ids and .toml files; with `every`, all packaged ones and the files.

    >>> [experiment.id for experiment in load_experiments(["table2", "table1", "table2"])]
    ['table2', 'table1']
    """
    if every:
        sources = [*packaged_experiments(), *(source for source in sources if source.endswith(".toml"))]
    if not sources:
        raise InvalidParameter("which experiment? pta reproduce --list shows them, --all runs them all")
    chosen = [load_experiment(source) for source in dict.fromkeys(sources)]
    ids = [experiment.id for experiment in chosen]
    for id in ids:
        if ids.count(id) > 1:
            raise InvalidParameter(f"two experiments are called {id}, and so would their tables be; rename your file")
    return chosen


def parse_experiment(id: str, text: str) -> Experiment:
    """An experiment from the text of its file."""
    try:
        content = tomllib.loads(text)
        if "id" in content:
            raise InvalidParameter("an experiment is called as its file; leave out id")
        usual = pop_table(content, "usual")
        rows = [_row(usual | row) for row in pop_tables(content, "rows")]
        columns = [make(Column, column) for column in pop_tables(content, "columns")]
        errata = [make(Erratum, erratum) for erratum in pop_tables(content, "errata")]
        figure = make(Figure, pop_table(content, "figure")) if "figure" in content else None
        if not rows or not columns:
            raise InvalidParameter("there must be [[rows]] and [[columns]]")
        return make(
            Experiment, {**content, "id": id, "rows": rows, "columns": columns, "errata": errata, "figure": figure}
        )
    except tomllib.TOMLDecodeError as error:
        raise UnreadableFile(f"experiment {id}: not TOML: {error}") from None
    except PtaError as error:
        raise type(error)(f"experiment {id}: {error}") from None


def _row(content: dict[str, Any]) -> Row:
    content = {**content, "stream": make(Stream, pop_table(content, "stream"))}
    if isinstance(seeds := content.get("seeds"), int) and not isinstance(seeds, bool):
        content["seeds"] = list(range(1, seeds + 1))
    if isinstance(printed := content.get("printed"), list):
        content["printed"] = [None if value == "" else value for value in printed]
    return make(Row, content)


def _require_known(what: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise InvalidParameter(f"no {what} is called {value!r}; {nearest(str(value), [one for one in known if one])}")

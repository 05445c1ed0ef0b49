"""An experiment as it is declared: a TOML file that says what its rows and columns are, and what the paper printed.

Rows are settings (a method, its parameters, a stream …), columns are datasets or means of them. `docs/reproduce.md`
describes the file; everything in it is checked here, before any work is done.
"""

import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from importlib import resources
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from pta.core.parameters import require_count
from pta.door.files import read_text
from pta.errors import InvalidParameter, UnreadableFile, first_line, naming, nearest, require_known
from pta.measure.stream import Stream

TIMED_METRICS = ("images_per_second", "share_of_clip", "stream_seconds")
"""What is timed in several rounds; a number is their median."""

SPEED_METRICS = (*TIMED_METRICS, "memory_mib", "state_kb")
"""What is measured with the model, one image at a time."""

METRICS = (
    *("accuracy", "mean_per_class", "worst_class", "calibration_error", "raw_calibration_error", "classes", "samples"),
    *SPEED_METRICS,
)
"""What a cell can hold."""

PACKAGED = (
    *("figure1", "figure2", "table1", "table2", "non-iid", "table3", "figure4", "table4", "table5", "figure5"),
    *("poisoning", "rn50", "orthogonality", "ordering", "latency", "beta", "templates", "imagenet-c"),
    *("table12", "table13", "table14", "table15"),
    *("ttabc-shifts", "ttabc-averages", "ttabc-cost", "ttabc-dmn", "ttabc-dmn-rn50", "ttabc-dmn-shifts"),
    *("ttabc-dmn-logs", "ttabc-ecalp"),
)
"""The ids of the experiments that ship with the package, in the order of the paper, then those of other benchmarks."""

GROUPS = {"ttabc": tuple(id for id in PACKAGED if id.startswith("ttabc-"))}
"""Names for several experiments."""

VIEW_MODES = ("augmix", "crops", "augmix-mean", "crops-mean", "augmix-128", "crops+augmix")
"""How views are made and used."""

Content = dict[str, Any]
Made = TypeVar("Made")

_MOST_DIGITS = 6
_LARGEST = 1e15  # number
_OF_ROWS = ("usual", "printed", "errata", "baseline", "figure")
MOST_SEEDS = 10_000


@dataclass(frozen=True)
class Column:
    """A column for each of some datasets, a mean of datasets, or a mean of other columns; exactly one of the three."""

    label: str = ""  # its heading; a column for `each` dataset of a group has that dataset's title
    each: str = ""  # a group of datasets, a column for each
    datasets: str = ""  # a group of datasets, whose mean the column is
    mean_of: tuple[str, ...] = ()  # labels of other columns, or `all` that are not computed themselves
    metric: str = ""  # what is measured, if not what the row says
    only_offline: bool = False  # whether the paper's profile does without it

    def __post_init__(self) -> None:
        if [bool(self.each), bool(self.datasets), bool(self.mean_of)].count(True) != 1:
            raise InvalidParameter("a column has exactly one of each, datasets and mean_of")
        if bool(self.label) == bool(self.each):
            raise InvalidParameter("a column has a label, unless it stands for each dataset of a group")
        require_known("metric", self.metric, ("", *METRICS))


@dataclass(frozen=True)
class Row:
    """A setting.

    A method that takes views has them beside the plain image: 64 with it, or so many as stand behind the mode, or those
    of two modes. Any other is given the mean of the most confident tenth of them in its place, and with `-mean` one
    that takes views is given that, too.
    """

    label: str  # what it is called, once in its section
    method: str = ""  # the name of a method
    absent: str = ""  # why no method of this project can run it; either this or a method
    section: str = ""  # the heading it stands under
    params: Mapping[str, Any] = field(default_factory=dict)  # of the method, on top of the preset's
    preset: str = ""  # whose values for single datasets are used
    templates: str = "clip"  # of the prompts
    descriptions: bool = False  # whether each class also has sentences of its own
    views: Mapping[str, str] = field(default_factory=dict)  # for groups of datasets, how augmented views are made
    stream: Stream = field(default_factory=Stream)  # the order of the samples and the use of batches
    seeds: tuple[int, ...] = (1, 2, 3)  # whose orders; results are means over them
    statistic: str = "mean"  # `mean` over the seeds, or their standard `deviation`
    metric: str = "accuracy"  # what is measured
    fill: Mapping[str, Any] = field(default_factory=dict)  # values for the names in braces in a dataset's id
    series: str = ""  # which line of a figure it belongs to
    x: float | None = None  # where on that line
    note: str = ""  # what a reader should know about it
    only_offline: bool = False  # whether the paper's profile does without it
    printed: tuple[float | None, ...] = ()  # by the paper, in the order of the columns for the paper's datasets

    def __post_init__(self) -> None:
        if bool(self.method) == bool(self.absent):
            raise InvalidParameter(f"{self.name} needs either a method or, in absent, the reason why it has none")
        require_known("metric", self.metric, METRICS)
        require_known("statistic", self.statistic, ("mean", "deviation"))
        if not self.seeds or min(self.seeds) < 0 or len(set(self.seeds)) < len(self.seeds):
            raise InvalidParameter(f"{self.name}: seeds are how many, or different ones from 0, not {list(self.seeds)}")
        for mode in self.views.values():
            require_known("mode of views", mode, VIEW_MODES)

    @property
    def name(self) -> str:
        """What tells it from all other rows."""
        return _name(self.section, self.label)


def _name(section: object, label: object) -> str:
    return f"{section}: {label}" if section else str(label)


@dataclass(frozen=True)
class Erratum:
    """A number that the paper printed and that cannot be right."""

    row: str  # by its name
    column: str
    printed: float
    why: str  # how one can tell
    instead: float | None = None  # what it should be, if that is known


@dataclass(frozen=True)
class Figure:
    """How the table is drawn.

    `bars`: a bar per row, for one column. `curves`: accuracy along the stream, a panel per column. `lines`: a point per
    row, at its `x`, a line for each `series`, a panel per column.
    """

    kind: str
    x: str = ""  # what the axes are called
    y: str = "accuracy in %"
    columns: tuple[str, ...] = ()  # labels of those that are drawn; all if none is given
    log_x: bool = False  # whether the horizontal axis is logarithmic

    def __post_init__(self) -> None:
        require_known("kind of figure", self.kind, ("bars", "curves", "lines"))


@dataclass(frozen=True)
class Experiment:
    """A table or figure."""

    id: str  # what it is called on the command line
    title: str  # what it shows
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    place: str = ""  # where in the paper it is, e.g. `Table 1`; empty for one's own
    backbone: str = "ViT-B/16"  # the model that the printed numbers were made with
    baseline: str = ""  # the label of the row that others are compared with
    unit: str = "accuracy in %"  # what the numbers are
    digits: int = 2  # after the point
    note: str = ""  # what a reader should know
    errata: tuple[Erratum, ...] = ()
    figure: Figure | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.digits <= _MOST_DIGITS:
            raise InvalidParameter(f"digits must be from 0 to {_MOST_DIGITS}, not {self.digits}")
        if self.figure and self.figure.kind == "lines" and all(row.x is None for row in self.rows):
            raise InvalidParameter("a figure of lines needs rows with an x")
        names = [row.name for row in self.rows]
        require_different("rows", names)
        if self.baseline and not any(row.label == self.baseline for row in self.rows):
            raise InvalidParameter(f"the baseline {self.baseline!r} is not a row")
        for erratum in self.errata:
            require_known("row of an erratum", erratum.row, names)

    def baseline_of(self, row: Row) -> Row | None:
        """The row that a row is compared with: in its own section if there is one, else the first of that label."""
        same = [one for one in self.rows if one.label == self.baseline]
        return next((one for one in same if one.section == row.section), same[0] if same else None)


def load_experiment(source: str) -> Experiment:
    """An experiment by its id, or from a .toml file of one's own."""
    if source.endswith(".toml"):
        return parse_experiment(Path(source).stem, read_text(Path(source), "experiment"))
    if source not in PACKAGED:
        known = nearest(source, [*PACKAGED, *GROUPS])
        raise InvalidParameter(f"no experiment is called {source!r}; {known} (pta reproduce --list)")
    return parse_experiment(source, _packaged(source))


def _packaged(id: str) -> str:
    return (resources.files("pta") / "assets" / "experiments" / f"{id}.toml").read_text(encoding="utf-8")


def load_experiments(sources: Sequence[str], *, every: bool = False) -> list[Experiment]:
    """The experiments of ids and .toml files; with `every`, all packaged ones and the files.

    >>> [experiment.id for experiment in load_experiments(["table2", "table1", "table2"])]
    ['table2', 'table1']
    """
    if every:
        sources = [*PACKAGED, *(source for source in sources if source.endswith(".toml"))]
    if not sources:
        raise InvalidParameter("name an experiment: pta reproduce --list shows them, --all runs all")
    ids = (id for source in sources for id in GROUPS.get(source, (source,)))
    chosen = [load_experiment(id) for id in dict.fromkeys(ids)]
    require_different("experiments", [experiment.id for experiment in chosen])  # their tables are called as they are
    return chosen


def parse_experiment(id: str, text: str) -> Experiment:
    """An experiment from the text of its file."""
    with naming(f"experiment {id}"):
        content = _content(text)
        if "id" in content:
            raise InvalidParameter("the id of an experiment is its file's name; leave out id")
        fill, printed = _pop_table(content, "fill"), _pop_table(content, "printed")
        given = _rows(_pop_table(content, "usual"), _pop_tables(content, "rows"))
        rows = [_row(row, fill, printed) for row in given]
        for name in printed:
            require_known("row with printed numbers", name, [row.name for row in rows])
        columns = [_make(Column, column) for column in _pop_tables(content, "columns")]
        errata = [_make(Erratum, erratum) for erratum in _pop_tables(content, "errata")]
        figure = _make(Figure, _pop_table(content, "figure")) if "figure" in content else None
        if not rows or not columns:
            raise InvalidParameter("there must be [[rows]] and [[columns]]")
        parts = {"rows": rows, "columns": columns, "errata": errata, "figure": figure}
        return _make(Experiment, {**content, **parts, "id": id})


def _content(text: str) -> Content:
    """What a file says; what it leaves out is as in the packaged experiment that it is `like`.

    A file with rows of its own takes over nothing that is said of the other's rows.
    """
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also of a number with thousands of digits
        raise UnreadableFile(f"not TOML: {first_line(error)}") from None
    if "like" not in content:
        return content
    require_known("experiment", like := content.pop("like"), PACKAGED)
    others = _content(_packaged(like)).items()
    return {key: value for key, value in others if key not in _OF_ROWS or "rows" not in content} | content


def _rows(usual: Content, rows: Iterable[Content]) -> Iterator[Content]:
    """Rows with what is usual, perhaps the rows in each of them; rows within a row share what that says."""
    for given in rows:
        row = usual | given
        within = _pop_tables(row, "rows")
        yield from _rows(row, within) if within else [row]


def _row(content: Content, fill: Content, printed: Content) -> Row:
    """A row with the values that all rows fill in, and its own of the numbers that are printed by names of rows."""
    content = {**content, "stream": _make(Stream, _pop_table(content, "stream"))}
    content["fill"] = fill | _pop_table(content, "fill")
    name = _name(content.get("section"), content.get("label"))
    if name in printed:
        content.setdefault("printed", printed[name])
    if isinstance(seeds := content.get("seeds"), int) and not isinstance(seeds, bool):
        content["seeds"] = list(range(1, require_count("seeds", seeds, 0, MOST_SEEDS) + 1))
    if isinstance(numbers := content.get("printed"), list):
        content["printed"] = [None if value == "" else value for value in numbers]
    return _make(Row, content)


def _pop_table(content: Content, key: str) -> Content:
    """Take the table of that name out, an empty one if there is none."""
    given = content.pop(key, {})
    if not isinstance(given, dict):
        raise InvalidParameter(f"{key} must be a table, not {given!r:.60}")
    return given


def _pop_tables(content: Content, key: str) -> list[Content]:
    """Take the tables of that name out, none if there are none."""
    given = content.pop(key, [])
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise InvalidParameter(f"{key} must be tables, each under [[{key}]], or a list of tables")
    return given


def _make(kind: type[Made], content: Content) -> Made:
    """A dataclass from a table; where it takes a list, one text will do."""
    known, name = get_type_hints(kind), kind.__name__.lower()
    what = f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
    given = {}
    for key, value in content.items():
        if key not in known:
            raise InvalidParameter(f"{what} has no {key!r}; {nearest(key, known)}")
        listed = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value
        given[key] = listed if get_origin(known[key]) is tuple else value
        if not _fits(known[key], given[key]):
            raise InvalidParameter(f"{key} of {what} must be {_in_words(known[key])}, not {value!r:.60}")
    for one in fields(kind):  # type: ignore[arg-type]
        if one.name not in given and one.default is MISSING and one.default_factory is MISSING:
            raise InvalidParameter(f"{what} must have {one.name!r}")
    return kind(**given)


def _fits(hint: Any, value: Any) -> bool:
    """Whether a value is what a field takes; a whole number is a number, true is not one.

    >>> _fits(float | None, 3), _fits(int, True), _fits(tuple[str, ...], ("a", 1))
    (True, False, False)
    """
    origin, parts = get_origin(hint), get_args(hint)
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(parts[0], one) for one in value)
    if origin is UnionType:
        return any(_fits(one, value) for one in parts)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(_fits(parts[1], one) for one in value.values())
    if hint in (int, float):
        return isinstance(value, int | hint) and not isinstance(value, bool) and abs(value) <= _LARGEST
    return hint is Any or isinstance(value, hint)


def _in_words(hint: Any) -> str:
    """What a field takes.

    >>> _in_words(tuple[float | None, ...])
    'a list, each a number'
    """
    origin, parts = get_origin(hint), [part for part in get_args(hint) if part is not NoneType]
    if origin is tuple:
        return f"a list, each {_in_words(parts[0])}"
    if origin is UnionType:
        return " or ".join(map(_in_words, parts))
    return {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}.get(hint, "a table")


def require_different(what: str, names: Sequence[str]) -> None:
    """Refuse two of the same name."""
    for name, count in Counter(names).items():
        if count > 1:
            raise InvalidParameter(f"two {what} are called {name!r}")


def list_experiments() -> list[dict[str, Any]]:
    """The packaged experiments, ready for JSON."""
    experiments = map(load_experiment, PACKAGED)
    return [{"id": one.id, "place": one.place, "title": one.title, "rows": len(one.rows)} for one in experiments]

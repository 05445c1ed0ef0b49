"""The leaderboard of the site: three sentences and a table that can be sorted, made from leaderboard.csv.

A cell is a method on a stream of a file, the mean over its seeds. A number over several cells is their mean, of the
time their median and of the state their largest, and is left out if one of the cells is missing. Sentences are about
the methods that answer each sample when it comes and have all cells.
"""

import csv
import json
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from html import escape
from itertools import product
from pathlib import Path
from statistics import fmean, median

from pta.errors import PtaError
from pta.methods import adapter_class, list_adapters, needs_model, needs_of_samples
from pta.methods.declaration import IN_WORDS

MARK, END = "<!-- leaderboard -->", "<!-- end -->"
CSV = Path(__file__).parents[1] / "benchmarks" / "results" / "leaderboard.csv"
SCRIPT = Path(__file__).with_name("leaderboard.js")
SUMMARIES: dict[str, tuple[str, Callable[[Iterable[float]], float], str]] = {
    "worst_class": ("worst class", fmean, ".1f"),
    "calibration_error": ("calibration error", fmean, ".1f"),
    "frozen": ("frozen", fmean, ".1f"),
    "of_product": ("time", median, ".0f"),
    "state_bytes": ("state, kB", max, ".0f"),
}
NEAR = 1.0  # points
ALL = "all"


class Board:
    """The cells of a leaderboard."""

    def __init__(self, rows: Sequence[dict[str, str]]) -> None:
        cells: dict[tuple[str, str, str], list[dict[str, str]]] = {}
        for row in rows:
            method = f"{row['method']}:{row['settings']}" if row["settings"] else row["method"]
            cells.setdefault((method, row["stream"], row["file"]), []).append(row)
        self.cells = cells
        self.methods, self.streams, self.files = (list(dict.fromkeys(parts)) for parts in zip(*cells, strict=True))

    def values(self, method: str, column: str, streams: Sequence[str], files: Sequence[str]) -> list[float]:
        """A column of some cells; none if one of them lacks it."""
        found = [self.cells.get((method, *place), []) for place in product(streams, files)]
        numbers = [[float(row[column]) for row in rows if row[column]] for rows in found]
        return [fmean(one) for one in numbers] if all(numbers) else []

    def gains(self, method: str, streams: Sequence[str]) -> list[float]:
        """Over zero-shot, on each stream of each file."""
        pairs = (self.values(method, column, streams, self.files) for column in ("accuracy", "zero_shot"))
        return [own - other for own, other in zip(*pairs, strict=True)]

    @cached_property
    def ranked(self) -> list[str]:
        """The methods that answer each sample when it comes and have all cells, the largest mean gain first."""
        mean = {
            one: fmean(gains) for one in self.methods if not waits(one) and (gains := self.gains(one, self.streams))
        }
        return sorted(mean, key=mean.__getitem__, reverse=True)

    def table(self, streams: Sequence[str], files: Sequence[str]) -> list[list[str]]:
        """The rows of the table for some streams and files; a star marks methods that wait for other samples."""
        rows = []
        for method in self.methods:
            columns = [("accuracy", fmean, ".1f", [one]) for one in self.streams]
            columns += [(name, *how, streams) for name, (_, *how) in SUMMARIES.items()]
            cells = [f"{method}*" if waits(method) else method]
            for name, summary, form, chosen in columns:
                values = self.values(method, name, chosen, files)
                size = 1000 if name == "state_bytes" else 1
                cells.append(format(summary(values) / size, form) if values else "")
            rows.append(cells)
        return rows


def waits(method: str) -> bool:
    """Whether a method needs other samples of the batch or stream before it answers; one that is not here does not."""
    try:
        return adapter_class(method.split(":")[0]).scope != "sample"
    except PtaError:
        return False


def sentences(board: Board) -> list[str]:
    """Who wins where, who can be relied on, and what it costs."""
    if not board.ranked:
        return ["No method has all cells yet."]
    means = {one: {name: fmean(board.gains(one, [name])) for name in board.streams} for one in board.ranked}
    won: dict[str, list[str]] = {}
    for name in board.streams:
        best = max(board.ranked, key=lambda one: means[one][name])
        won.setdefault(best, []).append(f"{name} ({points(means[best][name])})")
    winners = "; ".join(f"`{best}` on {listed(places)}" for best, places in won.items())
    safest = max(board.ranked, key=lambda one: min(means[one].values()))
    weakest = min(means[safest], key=means[safest].__getitem__)
    gains = board.gains(safest, board.streams)
    below = sum(gain < 0 for gain in gains)
    first = board.ranked[0]
    over = {one: fmean(means[one].values()) for one in board.ranked}
    near = [one for one in board.ranked if over[one] > over[first] - NEAR]
    cheapest = min(near, key=lambda one: cost(board, one)[0])
    cheap = f", and no method within {NEAR:g} point of it is cheaper"
    if cheapest != first:
        gain = points(over[cheapest])
        cheap = f"; the cheapest within {NEAR:g} point of it is `{cheapest}` ({gain}), {priced(board, cheapest)}"
    return [
        f"Of the {len(board.ranked)} methods that answer each sample when it comes and were measured on all "
        f"{len(board.files)} files, these gain most over zero-shot, in points: {winners}.",
        f"On its weakest stream, {weakest}, `{safest}` has {points(means[safest][weakest])}: more than any other "
        f"method on its own weakest one. It is below zero-shot in {below} of {len(gains)} cells.",
        f"The largest mean gain is that of `{first}` ({points(over[first])}), {priced(board, first)}{cheap}.",
    ]


def cost(board: Board, method: str) -> tuple[float, float]:
    """How many products with the anchors a sample takes, and the largest state in bytes."""
    times, sizes = (board.values(method, name, board.streams, board.files) for name in ("of_product", "state_bytes"))
    return median(times), max(sizes)


def priced(board: Board, method: str) -> str:
    """The cost in words."""
    products, size = cost(board, method)
    return (
        f"which takes the time of {products:,.0f} zero-shot products per sample and up to {size / 1e6:.2f} MB of state"
    )


def points(value: float) -> str:
    """A gain."""
    return f"{value:+.1f}".replace("-", "−")


def listed(parts: Sequence[str]) -> str:
    """Parts of a sentence."""
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


def left_out(board: Board) -> list[str]:
    """The methods without cells, or without some, each with the reason."""
    reasons = []
    for name in list_adapters():
        measured = [one for one in board.methods if one.split(":")[0] == name]
        needed = [IN_WORDS.get(need, need) for need in sorted(needs_of_samples(name, {}) - {"features"})]
        needed += ["a tower of the model"] * needs_model(name, {})
        if needed and not measured:
            reasons.append(f"`{name}` needs {listed(needed)}, which the files do not have")
        elif not measured:
            reasons.append(f"`{name}` was not measured on any file")
        for own in measured:
            missing = [one for one in board.files if not board.values(own, "accuracy", board.streams, [one])]
            reasons += [f"`{own}` was not measured on {listed(missing)}"] if missing else []
    return reasons


def html(board: Board) -> str:
    """The table of all streams and files, and the script that shows others and sorts; it needs no network."""
    headings = ["method", *board.streams, *(title for title, *_ in SUMMARIES.values())]
    choices = {"stream": [ALL, *board.streams], "file": [ALL, *board.files]}
    tables = {
        f"{stream}|{file}": board.table(
            board.streams if stream == ALL else [stream], board.files if file == ALL else [file]
        )
        for stream, file in product(*choices.values())
    }
    selects = " ".join(
        f'<label>{name} <select id="leaderboard-{name}">'
        + "".join(f"<option>{escape(one)}</option>" for one in options)
        + "</select></label>"
        for name, options in choices.items()
    )
    head = "".join(f'<th aria-sort="none"><button type="button">{escape(one)}</button></th>' for one in headings)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in tables[f"{ALL}|{ALL}"]
    )
    data = json.dumps(tables, separators=(",", ":")).replace("<", "\\u003c")
    script = " ".join(SCRIPT.read_text(encoding="utf-8").split("\n"))
    return (
        f'<div class="leaderboard"><p>{selects}</p><table id="leaderboard-table"><thead><tr>{head}</tr></thead>'
        f'<tbody>{rows}</tbody></table><script type="application/json" id="leaderboard-data">{data}</script>'
        f"<script>{script}</script></div>"
    )


def filled(markdown: str, path: Path = CSV) -> str:
    """The page with the leaderboard between its marks."""
    with path.open(newline="", encoding="utf-8") as file:
        board = Board(list(csv.DictReader(file)))
    said = "\n".join(f"* {sentence}" for sentence in sentences(board))
    missing = "\n".join(f"* {reason}." for reason in left_out(board))
    before, _, rest = markdown.partition(MARK)
    _, _, after = rest.partition(END)
    return f"{before}{said}\n\n{html(board)}\n\n## Not measured\n\n{missing}{after}"

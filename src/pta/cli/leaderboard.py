"""`pta eval --leaderboard`: a method's rows on the streams of the leaderboard."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.table import Table

from pta.cli.fitting_table import print_table, right
from pta.cli.method_choice import MethodChoice
from pta.cli.output import plain, progress, require_place
from pta.core.samples import Samples
from pta.data.features import FeatureFile
from pta.errors import UnreadableFile
from pta.measure.leaderboard import MEASURED, STREAMS, fill, played, read_board

MOST = 1000  # samples of a stream


def run_leaderboard(board: Path, datasets: Sequence[FeatureFile], choice: MethodChoice, seeds: Sequence[int]) -> None:
    """Measure the methods on every stream of every file, and print what they have there."""
    if board.suffix.lower() != ".csv":
        raise UnreadableFile(f"--leaderboard {board}: a leaderboard is a file that ends in .csv")
    require_place(board)
    if board.is_file():
        read_board(board)  # a file that is none is refused before any work
    alone = [replace(data, samples=Samples.of(data.samples.features)) for data in datasets]
    for at, data in enumerate(alone):
        played(data, "junk first", seeds[0], MOST, alone[(at + 1) % len(alone)])
    work = [(data, choice.for_file(data)) for data in alone]
    with progress() as bar:
        task = bar.add_task("", total=len(seeds) * len(STREAMS) * sum(len(methods) for _, methods in work))
        rows = fill(board, work, seeds, MOST, on_row=lambda what: bar.update(task, advance=1, description=what))
    table = Table(*("file", "stream", "method"), *right(*(name.replace("_", " ") for name in MEASURED)))
    for row in rows:
        table.add_row(plain(row["file"]), row["stream"], plain(row["method"]), *(row[name] for name in MEASURED))
    print_table(table, keys=3)

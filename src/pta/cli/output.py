"""Where output goes: tables and JSON to stdout, progress to stderr."""

import logging
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TaskID, TimeRemainingColumn
from rich.text import Text

from pta.cli.messages import is_shown, say
from pta.errors import UnreadableFile
from pta.files import require_writable, write_atomically
from pta.safe_text import printable, to_json

STDOUT = "-"

_SECONDS_BETWEEN_LINES = 30
_SECONDS_WITHOUT_A_LINE = 300


def tables() -> Console:
    """The console for tables; wide enough for most where nobody is looking and nobody says how wide it is."""
    is_known = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(width=None if is_known else 120)


def progress() -> Progress:
    """One bar on stderr, or plain lines where that is not a terminal; the log file gets the lines in both cases."""
    if not sys.stderr.isatty() or not is_shown(logging.INFO):
        return ProgressLines(disable=True)
    return ProgressLines(
        _Description(),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )


class _Description(ProgressColumn):
    """What is done, in which a name may stand: no markup is read in it."""

    def render(self, task: Task) -> Text:
        return Text(printable(task.description))


class ProgressLines(Progress):
    """A line after 30 seconds, then every 10 %, at most every 30 seconds and at least every 5 minutes.

    It goes to stderr where there is no bar, otherwise only to the log file.
    """

    def __init__(self, *columns: ProgressColumn, clock: Callable[[], float] = time.monotonic, **how: Any) -> None:
        super().__init__(*columns, get_time=clock, **how)
        self._level = logging.INFO if self.disable else logging.DEBUG
        self._told_at = clock()
        self._told_share: dict[int, int] = {}

    def update(self, task_id: TaskID, *args: Any, **changes: Any) -> None:
        """Note how far a task is, and say so if it is time."""
        super().update(task_id, *args, **changes)
        self._tell(task_id)

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        """The same for a step further."""
        super().advance(task_id, advance)
        self._tell(task_id)

    def _tell(self, task_id: TaskID) -> None:
        task = self.tasks[task_id]
        waited = self.get_time() - self._told_at
        share = None if task.total is None else int(task.percentage // 10)
        is_due = share is None or share != self._told_share.get(task_id) or waited >= _SECONDS_WITHOUT_A_LINE
        if waited < _SECONDS_BETWEEN_LINES or not is_due:
            return
        self._told_at += waited
        if share is not None:
            self._told_share[task_id] = share
        of = "" if task.total is None else f" of {task.total:,.0f} ({task.percentage:.0f} %)"
        say(f"{task.description}: {task.completed:,.0f}{of}", self._level)


def on_batch(bar: Progress, task: TaskID, dataset: str) -> Callable[[str, int, int], None]:
    """What moves a bar by the samples of each batch of `pta.evaluation`, with what is run in front of it."""

    def advance(method: str, seed: int, samples: int) -> None:
        bar.update(task, advance=samples, description=f"{dataset}: {method}, seed {seed}")

    return advance


def plain(text: str) -> str:
    """A text that a table shows as it is: no markup is read in it, and nothing in it moves the cursor."""
    return escape(printable(text))


def require_place(path: Path | None, *, replace: bool = True) -> None:
    """Refuse a place for output that cannot be written to, or holds a file that is to stay, before any work is done."""
    if path is not None and str(path) != STDOUT:
        require_writable(path)  # first, as it refuses what is no path of this system
        if path.is_file() and not replace:
            raise UnreadableFile(f"{path} exists; --replace overwrites it, or choose another file")


def write_json(path: Path | None, content: Any) -> bool:
    """Write JSON to a file, or to stdout for `-`, if a place is given; says whether stdout is free for tables."""
    text = to_json(content, indent=2) + "\n"
    if path is not None and str(path) != STDOUT:
        write_atomically(path, text.encode())
    elif path is not None:
        sys.stdout.write(text)
    return str(path) != STDOUT


def print_lines(*lines: str) -> None:
    """Print texts to stdout as they are: not wrapped, and no markup is read in them."""
    for line in lines:
        tables().print(printable(line), markup=False, highlight=False, soft_wrap=True)

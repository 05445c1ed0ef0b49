"""Where output goes: tables and JSON to stdout, progress to stderr."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TaskID, TimeRemainingColumn
from rich.text import Text

from pta.cli.messages import say
from pta.files import require_writable, write_atomically
from pta.safe_text import printable, to_json

STDOUT = "-"

_SECONDS_BETWEEN_LINES = 30


def tables() -> Console:
    """The console for tables; wide enough for them where nobody is looking."""
    return Console(width=None if sys.stdout.isatty() else 120)


def progress() -> Progress:
    """One bar on stderr, or plain lines where that is not a terminal."""
    if not sys.stderr.isatty():
        return ProgressLines()
    return Progress(
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
    """A plain line on stderr at most every 30 seconds and, where the total is known, every 10 %."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(disable=True, get_time=clock)
        self._told_at = clock()
        self._told_share: dict[int, int | None] = {}

    def update(self, task_id: TaskID, *args: Any, **changes: Any) -> None:
        """Note how far a task is, and say so if it is time."""
        super().update(task_id, *args, **changes)
        self._tell(task_id)

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        """The same for a step further."""
        super().advance(task_id, advance)
        self._tell(task_id)

    def _tell(self, task_id: TaskID) -> None:
        task, now = self.tasks[task_id], self.get_time()
        share = None if task.total is None else int(task.percentage // 10)
        if now - self._told_at < _SECONDS_BETWEEN_LINES or (
            share is not None and share == self._told_share.get(task_id, 0)
        ):
            return
        self._told_at, self._told_share[task_id] = now, share
        of = "" if task.total is None else f" of {task.total:,.0f} ({task.percentage:.0f} %)"
        say(f"{task.description}: {task.completed:,.0f}{of}")


def on_batch(bar: Progress, task: TaskID, dataset: str) -> Callable[[str, int, int], None]:
    """What moves a bar by the samples of each batch of `pta.evaluation`, with what is run in front of it."""

    def advance(method: str, seed: int, samples: int) -> None:
        bar.update(task, advance=samples, description=f"{dataset}: {method}, seed {seed}")

    return advance


def plain(text: str) -> str:
    """A text that a table shows as it is: no markup is read in it, and nothing in it moves the cursor."""
    return escape(printable(text))


def require_place(path: Path | None) -> None:
    """Refuse a place for output that cannot be written to before any work is done."""
    if path is not None and str(path) != STDOUT:
        require_writable(path)


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

"""Where output goes: tables and JSON to stdout, progress to stderr."""

import logging
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TaskID, TimeRemainingColumn
from rich.text import Text
from typer import Context, Typer
from typer.models import CommandFunctionType

from pta.cli import COMMANDS, expanded
from pta.cli.messages import is_shown, say
from pta.door.files import as_path, exists, require_writable, write_atomically
from pta.door.safe_text import printable, to_json
from pta.errors import UnreadableFile

STDOUT = "-"

_SECONDS_BETWEEN_LINES = 30
_SECONDS_WITHOUT_A_LINE = 300


def tables() -> Console:
    """The console for tables; 120 columns wide if stdout is no terminal and COLUMNS is not set."""
    is_known = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(width=None if is_known else 120)


def progress() -> Progress:
    """A progress bar on stderr, or plain lines if that is not a terminal. The log file always gets the lines."""
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


@contextmanager
def progress_of(what: str, total: float | None = 100) -> Iterator[Callable[..., None]]:
    """The bar of one task, as a function of what is done, of how much, and what is being done; None is no change."""
    with progress() as bar:
        task = bar.add_task(what, total=total)

        def move(done: int, total: int | None = None, what: str | None = None) -> None:
            bar.update(task, completed=done, total=total, description=what)

        yield move


class _Description(ProgressColumn):
    """The task's description as plain text: markup in it is not interpreted."""

    def render(self, task: Task) -> Text:
        return Text(printable(task.description))


class ProgressLines(Progress):
    """Prints a line after 30 seconds, then every 10 %, at most every 30 seconds and at least every 5 minutes.

    Lines go to stderr if there is no bar, otherwise only to the log file.
    """

    def __init__(self, *columns: ProgressColumn, clock: Callable[[], float] = time.monotonic, **how: Any) -> None:
        super().__init__(*columns, get_time=clock, **how)
        self._level = logging.INFO if self.disable else logging.DEBUG
        self._told_at = clock()
        self._told_share: dict[int, int] = {}

    def update(self, task_id: TaskID, *args: Any, **changes: Any) -> None:
        """Update a task, and print a line if one is due."""
        super().update(task_id, *args, **changes)
        self._tell(task_id)

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        """Advance a task, and print a line if one is due."""
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
    """A callback for `pta.measure` that advances a bar by each batch and names the run."""

    def advance(method: str, seed: int, samples: int) -> None:
        bar.update(task, advance=samples, description=f"{dataset}: {method}, seed {seed}")

    return advance


def plain(text: str) -> str:
    """A text for a table, without markup and without control characters."""
    return escape(printable(text))


def require_place(path: Path | None, *, replace: bool = True) -> None:
    """Refuse an output path that is not writable, or that exists and is not to be replaced, before any work."""
    if path is not None and str(path) != STDOUT:
        require_writable(path)  # first: it refuses invalid paths
        require_new(path, replace=replace)


def require_report(report: Path | None, json: Path | None, *, replace: bool) -> None:
    """Refuse places for a page and for JSON that cannot be used."""
    if report is not None and (report.suffix.lower() != ".html" or report == json):
        raise UnreadableFile(f"--report {report}: the page is a file of its own that ends in .html")
    for place in (json, report):
        require_place(place, replace=replace)


def require_new(path: Path, *, replace: bool) -> None:
    """Refuse an output file that exists and is not to be replaced."""
    if path.is_file() and not replace:
        raise UnreadableFile(f"{path} exists; --replace overwrites it, or choose another file")


def require_folder_place(folder: Path | None) -> None:
    """Refuse a folder that could not be made or written to, before any work."""
    if folder is not None:
        nearest = next(place for place in (as_path(folder).absolute(), *folder.absolute().parents) if exists(place))
        if not nearest.is_dir():
            raise UnreadableFile(f"cannot make the folder {folder}: {nearest} is a file")
        if not os.access(nearest, os.W_OK):
            raise UnreadableFile(f"cannot write to {nearest}: permission denied; choose another folder")


def write_json(path: Path | None, content: Any) -> bool:
    """Write JSON to a file, or to stdout for `-`; returns whether stdout is free for tables."""
    text = to_json(content, indent=2) + "\n"
    if path is not None and str(path) != STDOUT:
        write_atomically(path, text.encode())
    elif path is not None:
        sys.stdout.write(text)
    return str(path) != STDOUT


def command_line() -> str:
    """The command as it was given, for a page that says how to repeat it."""
    return f"pta {shlex.join(sys.argv[1:])}"


class CommandGroup(Typer):
    """A command of several commands, which shows its help if none of them is named."""

    def __init__(self, name: str) -> None:
        how: dict[str, Any] = {"callback": _show_help, "invoke_without_command": True, "add_completion": False}
        super().__init__(name=name, help=COMMANDS[name], **how)

    def command(self, *given: Any, **more: Any) -> Callable[[CommandFunctionType], CommandFunctionType]:
        """Register a function that may take dataclasses of options."""

        def register(function: CommandFunctionType) -> CommandFunctionType:
            Typer.command(self, *given, **more)(expanded(function))
            return function

        return register


def _show_help(context: Context) -> None:
    if context.invoked_subcommand is None:
        print_lines(context.get_help())


def print_lines(*lines: str) -> None:
    """Print texts to stdout unchanged: no wrapping, no markup."""
    for line in lines:
        tables().print(printable(line), markup=False, highlight=False, soft_wrap=True)

"""Where output goes: tables and JSON to stdout, progress to stderr."""

import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pta.files import require_writable, write_atomically

STDOUT = "-"


def tables() -> Console:
    """The console for tables; wide enough for them where nobody is looking."""
    return Console(width=None if sys.stdout.isatty() else 120)


def progress() -> Progress:
    """One bar on stderr, silent where that is not a terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )


def plain(text: str) -> str:
    """A text that a table shows as it is: no markup is read in it, and nothing in it moves the cursor."""
    return escape("".join(sign for sign in text if sign.isprintable() or sign == "\n"))


def require_place(path: Path | None) -> None:
    """Refuse a place for output that cannot be written to before any work is done."""
    if path is not None and str(path) != STDOUT:
        require_writable(path)


def write_json(path: Path, content: Any) -> None:
    """Write JSON to a file, or to stdout for `-`."""
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    if str(path) == STDOUT:
        sys.stdout.write(text)
    else:
        write_atomically(path, text.encode())

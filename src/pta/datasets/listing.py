"""What a reader of a layout gives: which images belong to a set, and what they are labelled."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pta.datasets.images import FileImage
from pta.errors import UnreadableFile

Watch = Callable[[int, int], None]
"""Is told how many of how many pieces of work are done."""


def unwatched(done: int, total: int) -> None:
    """Nobody is looking."""


@dataclass(frozen=True)
class Listing:
    """Images in order, their labels, the names of the labels, and what a user should know about them."""

    images: list[FileImage]
    labels: list[int]
    class_names: tuple[str, ...]
    notes: tuple[str, ...] = ()


def read_text(path: Path) -> str:
    """The content of a text file in UTF-8."""
    try:
        return path.read_text(encoding="utf-8-sig")  # spreadsheets put a mark in front
    except OSError as error:
        raise UnreadableFile(f"cannot read {path}: {(error.strerror or 'unknown reason').lower()}") from None
    except UnicodeDecodeError:
        raise UnreadableFile(f"cannot read {path}: it is not text in UTF-8") from None

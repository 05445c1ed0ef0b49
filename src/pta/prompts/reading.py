"""Small text files that a user wrote: one clear line for whatever is wrong with them."""

import json
from pathlib import Path
from typing import Any

from pta.errors import UnreadableFile


def read_text(path: Path, kind: str, largest: int) -> str:
    """The text of a file of at most `largest` bytes; `kind` is what messages call it."""
    try:
        if not path.is_file():
            raise UnreadableFile(f"no such {kind} file: {path}")
        size = path.stat().st_size
        if size > largest:
            raise UnreadableFile(f"{path} has {size:,} bytes; a {kind} file has at most {largest:,}")
        return path.read_text("utf-8-sig")
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be read: {(error.strerror or 'unknown reason').lower()}") from None
    except UnicodeDecodeError:
        raise UnreadableFile(f"{path} is not UTF-8 text") from None


def read_json(path: Path, kind: str, largest: int) -> Any:
    """What a JSON file of at most `largest` bytes holds."""
    try:
        return json.loads(read_text(path, kind, largest))
    except (ValueError, RecursionError) as error:
        if isinstance(error, UnreadableFile):
            raise
        raise UnreadableFile(f"{path} is not JSON: {error}") from None

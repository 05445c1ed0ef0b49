"""Plugins: objects that other installed packages declare as entry points, by group and name."""

from importlib.metadata import entry_points
from typing import Any

from pta.errors import PtaError, first_line


def plugin_names(group: str) -> list[str]:
    """The names that installed packages declare in a group, sorted.

    >>> plugin_names("pta.nothing")
    []
    """
    return sorted(entry_points(group=group).names)


def load_plugin(group: str, name: str, refusal: type[PtaError]) -> Any:
    """The object that an installed package declares by this name, or None; an import error becomes a `refusal`."""
    for declared in entry_points(group=group, name=name):
        try:
            return declared.load()
        except Exception as error:
            raise refusal(f"{name} ({declared.value}) cannot be imported: {first_line(error)}") from error
    return None

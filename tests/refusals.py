"""What is refused is refused in one line."""

from collections.abc import Callable
from typing import TypeVar

from pta import PtaError

Result = TypeVar("Result")


def unless_refused(call: Callable[[], Result]) -> Result | None:
    """What a call gives, or None if it was refused in one line; any other error comes through."""
    try:
        return call()
    except PtaError as error:
        said = str(error)
    assert said
    assert "\n" not in said
    return None

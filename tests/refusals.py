"""What is refused is refused in one line."""

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from pta import PtaError

Result = TypeVar("Result")


def unless_refused(call: Callable[[], Result]) -> Result | None:
    """What a call gives, or None if it was refused in one line; any other error comes through."""
    try:
        return call()
    except PtaError:
        return None


def refusal(call: Callable[..., object], *given: Any, **named: Any) -> str:
    """What a call is refused with; a `PtaError` says it in one line, whatever it quotes."""
    with pytest.raises(PtaError) as caught:
        call(*given, **named)
    return str(caught.value)

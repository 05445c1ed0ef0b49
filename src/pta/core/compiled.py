"""Loops that numba compiles for this processor when they are first called."""

from collections.abc import Callable
from typing import Any

from numba import njit

Function = Callable[..., Any]


def compiled(**options: Any) -> Callable[[Function], Function]:
    """`njit`, whose result is kept for later processes if there is a folder to keep it in."""

    def compile_once(function: Function) -> Function:
        try:
            return njit(function, cache=True, **options)
        except RuntimeError:  # neither the package's folder nor the user's cache can be written to, as in a container
            return njit(function, **options)

    return compile_once

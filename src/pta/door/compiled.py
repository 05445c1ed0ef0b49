"""Loops that numba compiles for this processor when they are first called."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import config, njit

from pta.door.private_cache import private_cache

Function = Callable[..., Any]


def compiled(**options: Any) -> Callable[[Function], Function]:
    """`njit`, whose result is kept for later processes in a folder that only the user can write to, if there is one."""

    def compile_once(function: Function) -> Function:
        folder = private_cache("numba")
        return (folder and _kept_in(folder, function, options)) or njit(function, **options)

    return compile_once


def _kept_in(folder: Path, function: Function, options: dict[str, Any]) -> Function | None:
    """None where numba would keep the result elsewhere, as beside the package, or nowhere."""
    before, config.CACHE_DIR = config.CACHE_DIR, str(folder)
    try:
        kept = njit(function, cache=True, **options)
        return kept if folder in Path(kept.stats.cache_path).parents else None
    except (RuntimeError, AttributeError):  # no folder can be written to, or NUMBA_DISABLE_JIT: nothing is compiled
        return None
    finally:
        config.CACHE_DIR = before

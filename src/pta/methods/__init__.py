"""The methods: one file per paper, one line per method in `pta.methods.registry`. Simple loops: `pta.reference`."""

from typing import Any

from pta.methods.adapter import Adapter
from pta.methods.declaration import Origin
from pta.methods.registry import (
    BUILT_IN,
    DEFAULT_METHOD,
    adapter_class,
    create_adapter,
    from_bytes,
    list_adapters,
    load_adapter,
    needs_model,
    needs_of_samples,
    register,
)
from pta.methods.state import Snapshot

__all__ = [
    "DEFAULT_METHOD",
    "Adapter",
    "Origin",
    "Snapshot",
    "adapter_class",
    "create_adapter",
    "from_bytes",
    "list_adapters",
    "load_adapter",
    "needs_model",
    "needs_of_samples",
    "register",
]

METHOD_CLASSES = {place.rpartition(":")[2]: name for name, place in BUILT_IN.items()}
"""The classes of the package's methods, each with the method's name."""


def __getattr__(name: str) -> Any:
    """The class of a method of the package: `pta.methods.TDA`."""
    if name in METHOD_CLASSES:
        return adapter_class(METHOD_CLASSES[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

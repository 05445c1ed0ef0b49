"""The methods: one paper, one file, one line in `pta.adapters.registry`; as readable loops in `pta.reference`."""

from typing import Any

from pta.adapters.adapter import Adapter as Adapter
from pta.adapters.adapter import Origin as Origin
from pta.adapters.registry import BUILT_IN, adapter_class
from pta.adapters.registry import create_adapter as create_adapter
from pta.adapters.registry import list_adapters as list_adapters
from pta.adapters.registry import load_adapter as load_adapter
from pta.adapters.registry import needs_model as needs_model
from pta.adapters.registry import needs_of_samples as needs_of_samples
from pta.adapters.registry import register as register
from pta.adapters.state_file import Snapshot as Snapshot

__all__ = ["adapter_class"]

METHOD_CLASSES = {place.rpartition(":")[2]: name for name, place in BUILT_IN.items()}
"""The classes of the package's methods, each with the method's name."""


def __getattr__(name: str) -> Any:
    """The class of a method of the package: `pta.adapters.TDA`."""
    if name in METHOD_CLASSES:
        return adapter_class(METHOD_CLASSES[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

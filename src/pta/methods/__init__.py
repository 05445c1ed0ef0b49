"""The methods: one file per paper, one line per method in `pta.methods.registry`. Simple loops: `pta.reference`."""

from typing import Any

from pta.methods.adapter import Adapter as Adapter
from pta.methods.declaration import Origin as Origin
from pta.methods.registry import BUILT_IN
from pta.methods.registry import DEFAULT_METHOD as DEFAULT_METHOD
from pta.methods.registry import adapter_class as adapter_class
from pta.methods.registry import create_adapter as create_adapter
from pta.methods.registry import from_bytes as from_bytes
from pta.methods.registry import list_adapters as list_adapters
from pta.methods.registry import load_adapter as load_adapter
from pta.methods.registry import needs_model as needs_model
from pta.methods.registry import needs_of_samples as needs_of_samples
from pta.methods.registry import register as register

METHOD_CLASSES = {place.rpartition(":")[2]: name for name, place in BUILT_IN.items()}
"""The classes of the package's methods, each with the method's name."""


def __getattr__(name: str) -> Any:
    """The class of a method of the package: `pta.methods.TDA`."""
    if name in METHOD_CLASSES:
        return adapter_class(METHOD_CLASSES[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

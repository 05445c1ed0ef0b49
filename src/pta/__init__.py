"""Test-time adaptation of vision-language models: better zero-shot predictions from an unlabelled stream.

Public names are imported when they are first used, so that `import pta` loads no torch.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "Adapter": "pta.methods",
    "Classifier": "pta.run.classifier",
    "PTAClassifier": "pta.run.estimator",
    "PtaError": "pta.errors",
    "Samples": "pta.core.samples",
    "Segment": "pta.engines.segments.segment",
    "ZeroShotClassifier": "pta.core.classifier",
    "check_adapter": "pta.methods.checks",
    "compile": "pta.run.gpu.program",
    "compose": "pta.engines.segments.segment",
    "create_adapter": "pta.methods",
    "frames": "pta.data.sources.video",
    "list_adapters": "pta.methods",
    "load_adapter": "pta.methods",
    "register": "pta.methods",
}
"""The modules of the public names. The classes of all methods are public too."""

if TYPE_CHECKING:  # for type checkers and editors
    from pta.core.classifier import ZeroShotClassifier as ZeroShotClassifier
    from pta.core.samples import Samples as Samples
    from pta.data.sources.video import frames as frames
    from pta.engines.segments.segment import Segment as Segment
    from pta.engines.segments.segment import compose as compose
    from pta.errors import PtaError as PtaError
    from pta.methods import Adapter as Adapter
    from pta.methods import create_adapter as create_adapter
    from pta.methods import list_adapters as list_adapters
    from pta.methods import load_adapter as load_adapter
    from pta.methods import register as register
    from pta.methods.checks import check_adapter as check_adapter
    from pta.methods.pta import PTA as PTA
    from pta.run.classifier import Classifier as Classifier
    from pta.run.estimator import PTAClassifier as PTAClassifier
    from pta.run.gpu.program import compile as compile


def __getattr__(name: str) -> Any:
    if name == "__all__":
        here = [one for one in _HOMES if one != "PTAClassifier" or find_spec("sklearn")]
        return sorted([*here, *import_module("pta.methods").METHOD_CLASSES])
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if not name.startswith("_"):
        try:
            return import_module(f"pta.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"pta.{name}":
                raise
        if name in import_module("pta.methods").METHOD_CLASSES:
            return getattr(import_module("pta.methods"), name)
    raise AttributeError(f"module 'pta' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})

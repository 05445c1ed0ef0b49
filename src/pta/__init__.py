"""Test-time adaptation of vision-language models: better zero-shot predictions from an unlabelled stream.

Public names are imported when they are first used, so that `import pta` loads no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = "pta.adapters"  # whose public names are all public here
_ELSEWHERE = {
    "Classifier": "pta.inference.live_classifier",
    "PtaError": "pta.errors",
    "Samples": "pta.samples",
    "Segment": "pta.engines.segment",
    "ZeroShotClassifier": "pta.classifier",
    "check_adapter": "pta.adapters.checks",
    "compile": "pta.inference.program",
    "compose": "pta.engines.segment",
}

if TYPE_CHECKING:  # the same names for type checkers and editors
    from pta.adapters import *  # noqa: F403
    from pta.adapters.checks import check_adapter as check_adapter
    from pta.classifier import ZeroShotClassifier as ZeroShotClassifier
    from pta.engines.segment import Segment as Segment
    from pta.engines.segment import compose as compose
    from pta.errors import PtaError as PtaError
    from pta.inference.live_classifier import Classifier as Classifier
    from pta.inference.program import compile as compile
    from pta.samples import Samples as Samples
else:

    def __getattr__(name: str) -> Any:
        if name == "__all__":
            return sorted([*import_module(_HOME).__all__, *_ELSEWHERE])
        if name in _ELSEWHERE:
            return getattr(import_module(_ELSEWHERE[name]), name)
        if not name.startswith("_"):
            try:
                return import_module(f"pta.{name}")
            except ModuleNotFoundError as error:
                if error.name != f"pta.{name}":
                    raise
            if name in import_module(_HOME).__all__:
                return getattr(import_module(_HOME), name)
        raise AttributeError(f"module 'pta' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *import_module("pta").__all__})

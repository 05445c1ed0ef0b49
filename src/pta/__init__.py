"""Test-time adaptation of vision-language models: better zero-shot predictions from an unlabelled stream."""

from pta.adapters import CLIP, PTA, Adapter, create_adapter, list_adapters, load_adapter
from pta.adapters.checks import check_adapter
from pta.classifier import ZeroShotClassifier
from pta.engines.segment import Segment, compose
from pta.errors import PtaError
from pta.pipelines.classifier import Classifier
from pta.samples import Samples

__version__ = "0.1.0"
__all__ = [
    "CLIP",
    "PTA",
    "Adapter",
    "Classifier",
    "PtaError",
    "Samples",
    "Segment",
    "ZeroShotClassifier",
    "check_adapter",
    "compose",
    "create_adapter",
    "list_adapters",
    "load_adapter",
]

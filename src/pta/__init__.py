"""Test-time adaptation of vision-language models: better zero-shot predictions from an unlabelled stream."""

from pta.adapters import (
    ADAPT,
    BCA,
    CLIP,
    DOTA,
    MTA,
    OGA,
    PTA,
    SCA,
    TCA,
    TDA,
    ZERO,
    Adapter,
    BoostAdapter,
    Combined,
    FreeTTA,
    OnZeta,
    StatA,
    TransCLIP,
    TransductiveADAPT,
    create_adapter,
    list_adapters,
    load_adapter,
)
from pta.adapters.checks import check_adapter
from pta.classifier import ZeroShotClassifier
from pta.engines.segment import Segment, compose
from pta.errors import PtaError
from pta.inference.live_classifier import Classifier
from pta.inference.program import compile
from pta.samples import Samples

__version__ = "0.1.0"
__all__ = [
    "ADAPT",
    "BCA",
    "CLIP",
    "DOTA",
    "MTA",
    "OGA",
    "PTA",
    "SCA",
    "TCA",
    "TDA",
    "ZERO",
    "Adapter",
    "BoostAdapter",
    "Classifier",
    "Combined",
    "FreeTTA",
    "OnZeta",
    "PtaError",
    "Samples",
    "Segment",
    "StatA",
    "TransCLIP",
    "TransductiveADAPT",
    "ZeroShotClassifier",
    "check_adapter",
    "compile",
    "compose",
    "create_adapter",
    "list_adapters",
    "load_adapter",
]

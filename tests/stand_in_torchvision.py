"""A stand-in for torchvision, which open_clip imports; nothing in it can be used.

A module that has to be asked (`install`), not a package called torchvision: pytest imports every file it collects
doctests from, and a package would then be found by everything else in its process.
"""

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

MODULES = (
    "torchvision",
    *(f"torchvision.{part}" for part in ("transforms", "transforms.functional", "ops", "ops.misc")),
)


class Unusable:
    """Whatever it stands for is not needed to build a model and run it."""

    BILINEAR, BICUBIC = "bilinear", "bicubic"  # filters, which open_clip names in signatures

    def __init__(self, *_: object, **__: object) -> None:
        raise NotImplementedError("torchvision is a stand-in here")


def install() -> None:
    """Make this process believe that torchvision is there."""
    for name in MODULES:
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None, is_package=True)
        module.__dict__.update(__path__=[], __version__="0.0.stand-in", __getattr__=lambda name: Unusable)
        sys.modules[name] = module
        package, _, last = name.rpartition(".")
        if package:
            setattr(sys.modules[package], last, module)

"""A stand-in for torchvision with just the names that open_clip imports; none of them can be used.

A module that has to be asked (`install`), not a package called torchvision: pytest imports every file it collects
doctests from, and a package would then be found by everything else in its process.
"""

import sys
from enum import Enum
from importlib.machinery import ModuleSpec
from types import ModuleType


class Unusable:
    """Whatever it stands for is not needed to build a model and run it."""

    def __init__(self, *_: object, **__: object) -> None:
        raise NotImplementedError("torchvision is a stand-in here")


class InterpolationMode(Enum):
    """Names of filters, which open_clip uses in signatures."""

    BILINEAR = "bilinear"
    BICUBIC = "bicubic"


_TRANSFORMS = ["Normalize", "Compose", "RandomResizedCrop", "ToTensor", "Resize", "CenterCrop", "ColorJitter"]
_MODULES: dict[str, dict[str, object]] = {
    "torchvision": {"__version__": "0.0.stand-in"},
    "torchvision.transforms": {
        "InterpolationMode": InterpolationMode,
        **dict.fromkeys([*_TRANSFORMS, "Grayscale"], Unusable),
    },
    "torchvision.transforms.functional": {},
    "torchvision.ops": {},
    "torchvision.ops.misc": {"FrozenBatchNorm2d": Unusable},
}


def install() -> None:
    """Make this process believe that torchvision is there."""
    for name, content in _MODULES.items():
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None, is_package=True)
        module.__path__ = []
        module.__dict__.update(content)
        sys.modules[name] = module
        package, _, last = name.rpartition(".")
        if package:
            setattr(sys.modules[package], last, module)

"""What made a result: the version of a method's code, and the machine, which every reported time names."""

import hashlib
import inspect
import platform
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from types import ModuleType

import torch

from pta import __version__, engines
from pta.core import classifier, parameters, samples, towers
from pta.data import features
from pta.data import orders as streams
from pta.errors import InvalidParameter
from pta.measure import evaluate, metrics, record, stream, stream_run
from pta.methods import Adapter, adapter_class, stages
from pta.methods import adapter as contract

_SHARED = (
    *(contract, stages, classifier, parameters, samples, towers),  # what methods stand on
    *(features, streams, stream, evaluate, stream_run, record, metrics),  # what runs and counts
)


def hardware(device: torch.device | str = "cpu") -> str:
    """The name of the processor or GPU, the number of threads used and the version of torch."""
    if torch.device(device).type == "cuda":
        return f"{torch.cuda.get_device_name(device)}; torch {torch.__version__}"
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    return f"{name}; {torch.get_num_threads()} thread(s); torch {torch.__version__}"


def method_version(method: str) -> str:
    """The version of a method; it changes with its own file, the engines or the evaluation code.

    >>> method_version("pta") == method_version("tda")
    False
    """
    return _version(adapter_class(method))


@cache
def _version(adapter: type[Adapter]) -> str:
    own: list[type] = [one for one in adapter.__mro__ if one.__module__ not in ("builtins", "abc")]
    try:
        files = {Path(inspect.getfile(one)) for one in own} | {Path(inspect.getfile(one)) for one in _SHARED}
        return code_version(files | files_of(engines))
    except (TypeError, OSError):
        raise InvalidParameter(
            f"{adapter.name} has no version, because its code is not in a file; write the class into a module"
        ) from None


def code_version(files: Iterable[Path]) -> str:
    """The package's version, and a digest of some of its code, wherever that lies."""
    contents = sorted(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in files)
    return f"{__version__}+{hashlib.sha256(chr(10).join(contents).encode()).hexdigest()[:12]}"


def files_of(package: ModuleType) -> set[Path]:
    """The files of a package and of those within it."""
    return {path for folder in package.__path__ for path in Path(folder).rglob("*.py")}

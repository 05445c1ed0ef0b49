"""Which version of a method answered: the package's, and a digest of the code that decides what it answers."""

import hashlib
import inspect
from functools import cache
from importlib import metadata
from pathlib import Path

from pta import classifier, engines, samples, streams
from pta.adapters import base
from pta.adapters.base import adapter_class
from pta.experiments import evaluation, metrics, run

_SHARED = (base, classifier, samples, streams, run, evaluation, metrics)


@cache
def method_version(method: str) -> str:
    """The version of a method; another one after any change of its own file, of the engines or of what runs it.

    >>> method_version("pta") == method_version("tda")
    False
    """
    own = [ancestor for ancestor in adapter_class(method).__mro__ if ancestor.__module__ not in ("builtins", "abc")]
    files = {Path(inspect.getfile(one)) for one in (*own, *_SHARED)} | set(Path(*engines.__path__).glob("*.py"))
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(path.name.encode() + path.read_bytes())
    return f"{metadata.version('pta-vlm')}+{digest.hexdigest()[:12]}"

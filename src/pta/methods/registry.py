"""Methods by name: those of the package, those that installed packages declare, and those registered by hand."""

from collections.abc import Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, TypeVar

from pta.core.classifier import ZeroShotClassifier
from pta.core.plugins import load_plugin, plugin_names
from pta.core.samples import Samples
from pta.core.towers import Model
from pta.errors import InvalidParameter, nearest, shown
from pta.methods.adapter import Adapter
from pta.methods.declaration import TOWERS, Origin
from pta.methods.state_file import IN_MEMORY, load_state, unpack_state

GROUP = "pta.methods"
"""The entry-point group in which other packages declare methods, as `name = "package.module:Class"`."""

BUILT_IN = {
    "adapt": "pta.methods.adapt:ADAPT",
    "adapt-transductive": "pta.methods.adapt:TransductiveADAPT",
    "bca": "pta.methods.bca:BCA",
    "boostadapter": "pta.methods.boostadapter:BoostAdapter",
    "clip": "pta.methods.clip:CLIP",
    "combined": "pta.methods.combined:Combined",
    "difftpt": "pta.methods.difftpt:DiffTPT",
    "difftpt-augmented": "pta.methods.difftpt:AugmentedDiffTPT",
    "dota": "pta.methods.dota:DOTA",
    "dpe": "pta.methods.dpe:DPE",
    "freetta": "pta.methods.freetta:FreeTTA",
    "gs-bias": "pta.methods.gs_bias:GSBias",
    "histpt": "pta.methods.histpt:HisTPT",
    "mta": "pta.methods.mta:MTA",
    "oga": "pta.methods.oga:OGA",
    "onzeta": "pta.methods.onzeta:OnZeta",
    "point-cache": "pta.methods.point_cache:PointCache",
    "pta": "pta.methods.pta:PTA",
    "sca": "pta.methods.sca:SCA",
    "stata": "pta.methods.stata:StatA",
    "tca": "pta.methods.tca:TCA",
    "tda": "pta.methods.tda:TDA",
    "tpt": "pta.methods.tpt:TPT",
    "transclip": "pta.methods.transclip:TransCLIP",
    "wpta": "pta.methods.wpta:WPTA",
    "zero": "pta.methods.zero:ZERO",
}
"""One line per method."""

_registered: dict[str, type[Adapter]] = {}
AdapterClass = TypeVar("AdapterClass", bound=type[Adapter])


def register(adapter: AdapterClass) -> AdapterClass:
    """Register a method under its `name`; a class decorator."""
    _registered[_require_method(adapter).name] = adapter
    return adapter


def list_adapters() -> list[str]:
    """The names of all methods.

    >>> list_adapters()
    ['adapt', ..., 'zero']
    """
    return sorted({*BUILT_IN, *_registered, *plugin_names(GROUP)})


def adapter_class(name: str) -> type[Adapter]:
    """The class of a method, by name."""
    if name in _registered:
        return _registered[name]
    if name in BUILT_IN:
        return resolve_name(BUILT_IN[name])
    declared = load_plugin(GROUP, name, InvalidParameter)
    if declared is None:
        raise InvalidParameter(f"no method is called {shown(name)}; {nearest(name, list_adapters())}")
    if _require_method(declared).name != name:
        raise InvalidParameter(f"{shown(declared)} is not a method called {name!r}: its name is {declared.name!r}")
    return declared


def _require_method(given: Any) -> type[Adapter]:
    if not isinstance(given, type) or not issubclass(given, Adapter) or not isinstance(given.name, str):
        raise InvalidParameter(f"{shown(given)} is not a method: it must be a subclass of pta.Adapter with a name")
    return given


def create_adapter(
    name: str, classifier: ZeroShotClassifier, *, model: Model | None = None, source: object = None, **parameters: Any
) -> Adapter:
    """Create a method by its name in `list_adapters`.

    `model` is the model of the classifier's anchors, for methods that need a tower. `source` is the samples of the
    stream, or their number; if they lack an input that the method needs, it is refused at once.

    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"])
    >>> create_adapter("pta", classifier, hh=3)
    Traceback (most recent call last):
    pta.errors.InvalidParameter: pta has no parameter 'hh'; did you mean 'h'?
    """
    samples = source if isinstance(source, Samples | int | None) else Samples.of(source)
    length = len(samples) if isinstance(samples, Samples) else samples
    method, origin = adapter_class(name), Origin(classifier, model, length)
    adapter = method(classifier, model=model, checked=method.complete(parameters, origin))
    if isinstance(samples, Samples):
        adapter.require(samples)
    return adapter


def load_adapter(
    path: str | Path, classifier: ZeroShotClassifier | None = None, *, model: Model | None = None
) -> Adapter:
    """Load an adapter that `Adapter.save` wrote, with its parameters and state.

    A given classifier must equal the saved one; without it, the saved one is used. A method that needs a tower needs
    the model in both cases.
    """
    snapshot = load_state(path, classifier, model)
    return adapter_class(snapshot.method).of_snapshot(snapshot, model, str(path))


def from_bytes(content: bytes, classifier: ZeroShotClassifier | None = None, *, model: Model | None = None) -> Adapter:
    """The same from the content of such a file, as `Adapter.to_bytes` gives it.

    >>> adapter = create_adapter("clip", ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"]))
    >>> from_bytes(adapter.to_bytes()).classifier.class_names
    ('cat', 'dog')
    """
    snapshot = unpack_state(content, classifier, model)
    return adapter_class(snapshot.method).of_snapshot(snapshot, model, IN_MEMORY)


def needs_of_samples(name: str, parameters: Mapping[str, Any]) -> frozenset[str]:
    """What a method with these parameters needs of the samples."""
    return adapter_class(name).needs_with(parameters) - TOWERS


def needs_model(name: str, parameters: Mapping[str, Any]) -> bool:
    """Whether a method with these parameters needs a tower of the model."""
    return bool(adapter_class(name).needs_with(parameters) & TOWERS)

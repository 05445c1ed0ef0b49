"""Methods by name: those of the package, those that installed packages declare, and those registered by hand."""

from collections.abc import Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, TypeVar

from pta.adapters.adapter import TOWERS, Adapter, Origin, require_classifier
from pta.adapters.state_file import load_state
from pta.core.classifier import ZeroShotClassifier
from pta.core.plugins import load_plugin, plugin_names
from pta.core.samples import Samples
from pta.core.towers import Model
from pta.errors import UnknownAdapter, nearest, shown

GROUP = "pta.methods"
"""The entry-point group in which other packages declare methods, as `name = "package.module:Class"`."""

BUILT_IN = {
    "adapt": "pta.adapters.adapt:ADAPT",
    "adapt-transductive": "pta.adapters.adapt:TransductiveADAPT",
    "bca": "pta.adapters.bca:BCA",
    "boostadapter": "pta.adapters.boostadapter:BoostAdapter",
    "clip": "pta.adapters.clip:CLIP",
    "combined": "pta.adapters.combined:Combined",
    "difftpt": "pta.adapters.difftpt:DiffTPT",
    "difftpt-augmented": "pta.adapters.difftpt:AugmentedDiffTPT",
    "dota": "pta.adapters.dota:DOTA",
    "dpe": "pta.adapters.dpe:DPE",
    "freetta": "pta.adapters.freetta:FreeTTA",
    "gs-bias": "pta.adapters.gs_bias:GSBias",
    "histpt": "pta.adapters.histpt:HisTPT",
    "mta": "pta.adapters.mta:MTA",
    "oga": "pta.adapters.oga:OGA",
    "onzeta": "pta.adapters.onzeta:OnZeta",
    "point-cache": "pta.adapters.point_cache:PointCache",
    "pta": "pta.adapters.pta:PTA",
    "sca": "pta.adapters.sca:SCA",
    "stata": "pta.adapters.stata:StatA",
    "tca": "pta.adapters.tca:TCA",
    "tda": "pta.adapters.tda:TDA",
    "tpt": "pta.adapters.tpt:TPT",
    "transclip": "pta.adapters.transclip:TransCLIP",
    "wpta": "pta.adapters.wpta:WPTA",
    "zero": "pta.adapters.zero:ZERO",
}
"""One line per method."""

_registered: dict[str, type[Adapter]] = {}
AdapterClass = TypeVar("AdapterClass", bound=type[Adapter])


def register(adapter: AdapterClass) -> AdapterClass:
    """Register a method under its `name`; a class decorator."""
    if not isinstance(adapter, type) or not issubclass(adapter, Adapter) or not isinstance(adapter.name, str):
        raise UnknownAdapter(f"{shown(adapter)} is not a method: it must be a subclass of pta.Adapter with a name")
    _registered[adapter.name] = adapter
    return adapter


def list_adapters() -> list[str]:
    """The names of all methods.

    >>> list_adapters()
    ['adapt', ..., 'zero']
    """
    return sorted({*BUILT_IN, *_registered, *plugin_names(GROUP)})


def adapter_class(name: str) -> type[Adapter]:
    """The class of a method, by name."""
    if not isinstance(name, str):
        raise UnknownAdapter(f"the name of a method must be a text, not {shown(name)}; {nearest('', list_adapters())}")
    if name in _registered:
        return _registered[name]
    if name in BUILT_IN:
        return resolve_name(BUILT_IN[name])
    declared = load_plugin(GROUP, name, UnknownAdapter)
    if declared is None:
        raise UnknownAdapter(f"no method is called {shown(name)}; {nearest(name, list_adapters())}")
    if not isinstance(declared, type) or not issubclass(declared, Adapter) or declared.name != name:
        raise UnknownAdapter(f"{declared!r} is not a method called {name!r}: it must be a subclass of pta.Adapter")
    return declared


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
    require_classifier(classifier)
    samples = source if isinstance(source, Samples | int | None) else Samples.of(source)
    length = len(samples) if isinstance(samples, Samples) else samples
    method = adapter_class(name)
    adapter = method(classifier, model=model, **method.complete(parameters, Origin(classifier, model, length)))
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
    if classifier is not None:
        require_classifier(classifier)
    saved = load_state(path, classifier, model)
    method, origin = adapter_class(saved.method), Origin(saved.classifier, model)
    adapter = method(saved.classifier, model=model, **method.complete(saved.parameters, origin))
    adapter._put_checked(saved.tensors, str(path))
    return adapter


def needs_of_samples(name: str, parameters: Mapping[str, Any]) -> frozenset[str]:
    """What a method with these parameters needs of the samples."""
    return adapter_class(name).needs_with(parameters) - TOWERS


def needs_model(name: str, parameters: Mapping[str, Any]) -> bool:
    """Whether a method with these parameters needs a tower of the model."""
    return bool(adapter_class(name).needs_with(parameters) & TOWERS)

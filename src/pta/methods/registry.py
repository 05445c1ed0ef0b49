"""Methods by name: those of the package, those that installed packages declare, and those registered by hand.

Presets are the values that papers use for each dataset, as data, one file per method. A file holds named presets; each
gives parameters by dataset, or for every dataset under `*`.
"""

from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, TypeVar

from pta.core.classifier import ZeroShotClassifier
from pta.core.plugins import load_plugin, plugin_names
from pta.core.samples import Samples
from pta.core.towers import Model
from pta.door.files import packaged_json
from pta.errors import InvalidParameter, nearest, require_known, shown
from pta.methods.adapter import Adapter
from pta.methods.declaration import TOWERS, Origin
from pta.methods.state_file import IN_MEMORY, load_state, unpack_state

GROUP = "pta.methods"
"""The entry-point group in which other packages declare methods, as `name = "package.module:Class"`."""

DEFAULT_METHOD = "wpta"
"""The method where people label their own data, because it also gains on sorted streams and when frozen."""

BUILT_IN = {
    "adapt": "pta.methods.adapt:ADAPT",
    "adapt-transductive": "pta.methods.adapt:TransductiveADAPT",
    "bca": "pta.methods.bca:BCA",
    "boostadapter": "pta.methods.boostadapter:BoostAdapter",
    "clip": "pta.methods.clip:CLIP",
    "combined": "pta.methods.combined:Combined",
    "difftpt": "pta.methods.difftpt:DiffTPT",
    "difftpt-augmented": "pta.methods.difftpt:AugmentedDiffTPT",
    "dmn": "pta.methods.dmn:DMN",
    "dota": "pta.methods.dota:DOTA",
    "ecalp": "pta.methods.ecalp:ECALP",
    "dpe": "pta.methods.dpe:DPE",
    "etta": "pta.methods.etta:ETTA",
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
    "tps": "pta.methods.tps:TPS",
    "tpt": "pta.methods.tpt:TPT",
    "transclip": "pta.methods.transclip:TransCLIP",
    "wpta": "pta.methods.wpta:WPTA",
    "zero": "pta.methods.zero:ZERO",
}
"""One line per method."""

_LIKE_OTHERS = ("adapt-transductive", "combined")  # their own values for single datasets are not known
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
    name = getattr(given, "name", None)
    if not (isinstance(given, type) and issubclass(given, Adapter) and isinstance(name, str)):
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
    """What a method with these parameters needs of the samples and of the texts of their classes."""
    return adapter_class(name).needs_with(parameters) - TOWERS


def needs_model(name: str, parameters: Mapping[str, Any]) -> bool:
    """Whether a method with these parameters needs a tower of the model."""
    return bool(adapter_class(name).needs_with(parameters) & TOWERS)


# -- presets: parameters as papers use them ----------------------------------------------------------------------------


def preset_names() -> list[str]:
    """The names of all presets.

    >>> preset_names()
    ['non-iid', 'paper', 'points', 'tta-vlm']
    """
    return sorted({name for presets in _presets().values() for name in presets})


def require_preset(name: str, dataset: str | None = None) -> None:
    """Refuse a preset that no method has, or a dataset that none of that preset's values are for."""
    require_known("preset", name, preset_names())
    known = sorted({data for presets in _presets().values() for data in presets.get(name, {})})
    if dataset is not None and not {dataset.split("/")[0], "*"} & {*known}:
        raise InvalidParameter(
            f"the preset {name!r} has no values for the dataset {dataset!r}; {nearest(dataset, known)}"
        )


def depends_on_dataset(method: str) -> bool:
    """Whether papers use different values of this method per dataset; others use their defaults everywhere."""
    return method in (*_presets(), *_LIKE_OTHERS)


def load_preset(method: str, name: str, dataset: str) -> dict[str, Any] | None:
    """The parameters of a method for a dataset (`imagenet_c/fog/5` counts as `imagenet_c`), if they are known.

    >>> load_preset("pta", "paper", "caltech101")
    {'h': 50.0}
    >>> load_preset("pta", "paper", "my_photos") is None
    True
    """
    known = _presets().get(method, {}).get(name, {})
    found = known.get(dataset.split("/")[0], known.get("*"))
    return None if found is None else dict(found)


@cache
def _presets() -> dict[str, dict[str, dict[str, dict[str, Any]]]]:
    """The presets of each method by their names."""
    files = (resources.files("pta") / "assets" / "presets").iterdir()
    read = {file.name.removesuffix(".json"): packaged_json(f"presets/{file.name}") for file in files}
    return {
        method: {name: values for name, values in content.items() if not name.startswith("_")}
        for method, content in read.items()
    }

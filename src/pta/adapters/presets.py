"""Presets: the values that papers use for single datasets, as data, one file a method.

A file holds named presets; each gives parameters by dataset, or for every dataset under `*`.
"""

from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import Any

from pta.errors import InvalidParameter, nearest
from pta.files import packaged_json


def preset_names(methods: Iterable[str]) -> list[str]:
    """The presets that at least one of the methods has.

    >>> preset_names(["pta"])
    ['non-iid', 'paper']
    """
    return sorted({name for method in methods for name in _presets(method)})


def require_preset(name: str, methods: Iterable[str]) -> None:
    """Refuse a preset that none of the methods has."""
    known = preset_names(methods)
    if name not in known:
        raise InvalidParameter(f"no preset is called {name!r}; {nearest(name, known) if known else 'there are none'}")


def has_preset(method: str, name: str) -> bool:
    """Whether a method has such a preset at all; one without has the same values for every dataset, its defaults."""
    return name in _presets(method)


def load_preset(method: str, name: str, dataset: str) -> dict[str, Any] | None:
    """The parameters of a method for a dataset (`imagenet_c/fog/5` counts as `imagenet_c`), if they are known.

    >>> load_preset("pta", "paper", "caltech101")
    {'h': 50.0}
    >>> load_preset("pta", "paper", "my_photos") is None
    True
    """
    known = _presets(method).get(name, {})
    found = known.get(dataset.split("/")[0], known.get("*"))
    return None if found is None else dict(found)


@cache
def _presets(method: str) -> dict[str, dict[str, dict[str, Any]]]:
    if not (resources.files("pta") / "data" / "presets" / f"{method}.json").is_file():
        return {}
    content = packaged_json(f"presets/{method}.json")
    return {name: values for name, values in content.items() if not name.startswith("_")}

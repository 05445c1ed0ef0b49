"""Presets: the values that papers use for each dataset, as data, one file per method.

A file holds named presets; each gives parameters by dataset, or for every dataset under `*`.
"""

from functools import cache
from importlib import resources
from typing import Any

from pta.door.files import packaged_json
from pta.errors import InvalidParameter, nearest

_LIKE_OTHERS = ("adapt-transductive", "combined")  # their own values for single datasets are not known


def preset_names() -> list[str]:
    """The names of all presets.

    >>> preset_names()
    ['non-iid', 'paper', 'points']
    """
    return sorted({name for presets in _presets().values() for name in presets})


def require_preset(name: str, dataset: str | None = None) -> None:
    """Refuse a preset that no method has, or a dataset that none of that preset's values are for."""
    if name not in preset_names():
        raise InvalidParameter(f"no preset is called {name!r}; {nearest(name, preset_names())}")
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

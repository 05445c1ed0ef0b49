"""What changed between two JSON values, in a form that a few lines of any language apply (docs/serve.md).

An object holds the members that changed. A list is patched by `{"drop", "set", "add"}`: so many rows are dropped from
its front, then rows are patched by their index, then rows are added. Everything else is the new value.
"""

from typing import Any


class NotPatchable(ValueError):
    """The members of an object are others than before, so that the new value is to be sent as a whole."""


def difference(old: Any, new: Any) -> Any:
    """What turns one value into another.

    >>> difference({"a": 1, "b": [1, 2, 3], "c": None}, {"a": 1, "b": [2, 4, 5], "c": 0.5})
    {'b': {'drop': 1, 'set': {'1': 4}, 'add': [5]}, 'c': 0.5}
    """
    if isinstance(old, list) and isinstance(new, list):
        return _rows(old, new)
    if isinstance(new, dict) and isinstance(old, dict | list):
        if isinstance(old, list) or old.keys() != new.keys():
            raise NotPatchable
        return {name: difference(old[name], value) for name, value in new.items() if old[name] != value}
    return new


def _rows(old: list[Any], new: list[Any]) -> Any:
    drop = old.index(new[0]) if new and new[0] in old else 0
    kept = old[drop:]
    if len(kept) > len(new):
        return new
    try:
        pairs = enumerate(zip(kept, new, strict=False))
        changed = {str(index): difference(row, now) for index, (row, now) in pairs if row != now}
    except NotPatchable:
        return new
    return {"drop": drop, "set": changed, "add": new[len(kept) :]}

"""From the tables of a TOML file to dataclasses, every key and value checked."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from pta.errors import InvalidParameter, nearest

Content = dict[str, Any]
Made = TypeVar("Made")


def pop_table(content: Content, key: str) -> Content:
    """Take the table of that name out, an empty one if there is none."""
    given = content.pop(key, {})
    if not isinstance(given, dict):
        raise InvalidParameter(f"{key} must be a table, not {given!r:.60}")
    return given


def pop_tables(content: Content, key: str) -> list[Content]:
    """Take the tables of that name out, none if there are none."""
    given = content.pop(key, [])
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise InvalidParameter(f"{key} must be tables, each under [[{key}]]")
    return given


def make(kind: type[Made], content: Content) -> Made:
    """A dataclass from a table; where it takes a list, one text will do."""
    known, name = get_type_hints(kind), kind.__name__.lower()
    what = f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
    given = {}
    for key, value in content.items():
        if key not in known:
            raise InvalidParameter(f"{what} has no {key!r}; {nearest(key, known)}")
        listed = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value
        given[key] = listed if get_origin(known[key]) is tuple else value
        if not _fits(known[key], given[key]):
            raise InvalidParameter(f"{key} of {what} must be {_in_words(known[key])}, not {value!r:.60}")
    for one in fields(kind):  # type: ignore[arg-type]
        if one.name not in given and one.default is MISSING and one.default_factory is MISSING:
            raise InvalidParameter(f"{what} must have {one.name!r}")
    return kind(**given)


def _fits(hint: Any, value: Any) -> bool:
    """Whether a value is what a field takes; a whole number is a number, true is not one.

    >>> _fits(float | None, 3), _fits(int, True), _fits(tuple[str, ...], ("a", 1))
    (True, False, False)
    """
    origin, parts = get_origin(hint), get_args(hint)
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(parts[0], one) for one in value)
    if origin is UnionType:
        return any(_fits(one, value) for one in parts)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(_fits(parts[1], one) for one in value.values())
    if hint in (int, float):
        return isinstance(value, int | hint) and not isinstance(value, bool)
    return hint is Any or isinstance(value, hint)


def _in_words(hint: Any) -> str:
    """What a field takes.

    >>> _in_words(tuple[float | None, ...])
    'a list, each a number'
    """
    origin, parts = get_origin(hint), [part for part in get_args(hint) if part is not NoneType]
    if origin is tuple:
        return f"a list, each {_in_words(parts[0])}"
    if origin is UnionType:
        return " or ".join(map(_in_words, parts))
    return {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}.get(hint, "a table")

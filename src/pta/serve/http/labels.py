"""The labels in the body of a request: each names one sample and its class."""

from collections.abc import Iterable, Mapping
from typing import Any

from pta.errors import nearest, shown
from pta.serve.requests import LONGEST_TEXT, Refused, SampleLabel

_KEYS = ("sequence", "id", "place", "label")
_LARGEST = 2**62 - 1

LABEL_SCHEMA = {
    "type": "object",
    "properties": {
        "sequence": {"type": "integer", "minimum": 1, "maximum": _LARGEST},
        "id": {"type": "string", "minLength": 1, "maxLength": LONGEST_TEXT},
        "place": {"type": "integer", "minimum": 0, "maximum": _LARGEST, "description": "In the request with that id."},
        "label": {"type": ["string", "null"], "description": "A class, or null for none of the classes."},
    },
    "required": ["label"],
    "oneOf": [{"required": ["sequence"]}, {"required": ["id"]}],
    "additionalProperties": False,
}


def read_labels(entries: Iterable[Mapping[str, Any]]) -> list[SampleLabel]:
    """What a list of objects says of samples; the classes are not looked up yet."""
    return [_read(entry, f"labels[{number}]") for number, entry in enumerate(entries)]


def _read(entry: Mapping[str, Any], where: str) -> SampleLabel:
    for name in entry:
        if name not in _KEYS:
            raise Refused(f"{where}: {shown(name)} is not known; {nearest(name, _KEYS)}")
    if "label" not in entry or not isinstance(entry["label"], str | None):
        given = f", got {shown(entry['label'])}" if "label" in entry else ""
        raise Refused(f"{where}: label must be the name of a class, or null for none of the classes{given}")
    sequence, id, place = (entry.get(name) for name in ("sequence", "id", "place"))
    if (sequence is None) == (id is None) or (place is not None and id is None):
        raise Refused(f"{where} must have either sequence, or id and perhaps place")
    for name, number, least in (("sequence", sequence, 1), ("place", place, 0)):
        if number is not None and (type(number) is not int or not least <= number <= _LARGEST):
            raise Refused(f"{where}: {name} must be a whole number of at least {least}, got {shown(number)}")
    if id is not None and (not isinstance(id, str) or not 0 < len(id.encode()) <= LONGEST_TEXT):
        raise Refused(f"{where}: id must be a text of 1 to {LONGEST_TEXT} bytes, got {shown(id)}")
    return SampleLabel(entry["label"], sequence, id, place or 0)

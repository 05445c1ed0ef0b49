"""Sentences that describe classes, as language models write them: one JSON object, class name → sentences."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pta.errors import InvalidParameter, UnreadableFile, nearest
from pta.files import read_json, understanding
from pta.prompts.names import clean_name


def load_descriptions(path: str | Path) -> dict[str, list[str]]:
    """Read a file of the form that CuPL and DPE publish; keys are cleaned names (`_` is a blank)."""
    descriptions: dict[str, list[str]] = {}
    with understanding(path, "description file"):
        found = read_json(Path(path), "description")
        if not isinstance(found, dict) or not found:
            raise UnreadableFile(f"{path} must hold a JSON object, class name → list of sentences")
        for key, own in found.items():
            if not isinstance(own, list) or not own or not all(isinstance(one, str) and one.strip() for one in own):
                wanted = "must have a list of sentences, at least one and none of them blank"
                raise UnreadableFile(f"{path}: {key!r} {wanted}")
            if clean_name(key) in descriptions:
                raise UnreadableFile(f"{path}: two keys are the class {clean_name(key)!r}; keep one")
            descriptions[clean_name(key)] = own
    return descriptions


def sentences_of(class_name: str, descriptions: Mapping[str, Sequence[str]]) -> Sequence[str]:
    """The sentences of a class, by its cleaned name."""
    if class_name not in descriptions:
        raise InvalidParameter(f"the descriptions have no class {class_name!r}; {nearest(class_name, descriptions)}")
    sentences = descriptions[class_name]
    if isinstance(sentences, str):
        raise InvalidParameter(f"the description of {class_name!r} must be a list of sentences, not one string")
    return sentences

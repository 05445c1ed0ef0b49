"""Sentences that describe classes, as language models write them: one JSON object, class name → sentences."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pta.errors import InvalidParameter, UnreadableFile, nearest
from pta.files import read_json, understanding
from pta.prompts.names import clean_name


def load_descriptions(path: str | Path) -> dict[str, list[str]]:
    """Read a file of the form that CuPL and DPE publish; keys are cleaned names (`_` is a blank)."""
    with understanding(path, "description file"):
        return _checked(Path(path), read_json(Path(path), "description"))


def _checked(path: Path, found: object) -> dict[str, list[str]]:
    if not isinstance(found, dict) or not found:
        raise UnreadableFile(f"{path} must hold a JSON object, class name → list of sentences")
    descriptions: dict[str, list[str]] = {}
    for key, sentences in found.items():
        if not isinstance(sentences, list) or not sentences or not all(map(_is_sentence, sentences)):
            raise UnreadableFile(f"{path}: {key!r} must have a list of sentences, at least one and none of them blank")
        if clean_name(key) in descriptions:
            raise UnreadableFile(f"{path}: two keys are the class {clean_name(key)!r}; keep one")
        descriptions[clean_name(key)] = sentences
    return descriptions


def sentences_of(class_name: str, descriptions: Mapping[str, Sequence[str]]) -> Sequence[str]:
    """The sentences of a class, by its cleaned name."""
    if class_name not in descriptions:
        raise InvalidParameter(f"the descriptions have no class {class_name!r}; {nearest(class_name, descriptions)}")
    sentences = descriptions[class_name]
    if isinstance(sentences, str):
        raise InvalidParameter(f"the description of {class_name!r} must be a list of sentences, not one string")
    return sentences


def _is_sentence(found: object) -> bool:
    return isinstance(found, str) and bool(found.strip())

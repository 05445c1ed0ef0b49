"""The texts of each class: every template filled with its name, then the sentences that describe it."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pta.core.parameters import require_mapping, require_texts
from pta.data.prompts.templates import require_templates
from pta.door.files import read_json, understanding
from pta.errors import InvalidParameter, UnreadableFile, nearest, shown


def class_texts(
    class_names: Sequence[str], templates: Sequence[str], descriptions: Mapping[str, Sequence[str]] | None = None
) -> list[list[str]]:
    """The texts of each class: every template filled with its cleaned name, then its sentences.

    >>> class_texts(["cat", "sea_lion"], ["a photo of a {}."], {"cat": ["It purrs."], "sea lion": ["It barks."]})
    [['a photo of a cat.', 'It purrs.'], ['a photo of a sea lion.', 'It barks.']]
    """
    names, templates = _cleaned(class_names), require_templates(templates)
    if not templates and descriptions is None:
        raise InvalidParameter("give at least one template or description")
    filled = [[template.replace("{}", name) for template in templates] for name in names]
    if descriptions is None:
        return filled
    known = {clean_name(key): sentences for key, sentences in require_mapping("descriptions", descriptions).items()}
    return [texts + _sentences(name, known) for name, texts in zip(names, filled, strict=True)]


def clean_name(name: str) -> str:
    """A class name as it stands in a text.

    >>> clean_name("golden_retriever")
    'golden retriever'
    """
    return name.replace("_", " ")


def load_descriptions(path: str | Path) -> dict[str, list[str]]:
    """Sentences by cleaned class name from one JSON object, of the form that CuPL and DPE publish."""
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


def _cleaned(class_names: Sequence[str]) -> list[str]:
    """The names of at least two classes, cleaned."""
    if isinstance(class_names, str) or not isinstance(class_names, Sequence):
        raise InvalidParameter(f"class names must be a list of strings, not {shown(class_names)}")
    if len(class_names) < 2:
        raise InvalidParameter(f"a classifier needs at least two class names, got {len(class_names)}")
    for number, name in enumerate(class_names):
        if not isinstance(name, str):
            raise InvalidParameter(f"class name {number} must be a string, not {shown(name)}")
        if not clean_name(name).strip():
            raise InvalidParameter(f"class name {number} is blank")
        if any("\ud800" <= sign <= "\udfff" for sign in name):  # lone surrogates: undecodable bytes of a file name
            raise InvalidParameter(f"class name {number}, {name!a}, has bytes that are not UTF-8; rename it")
    return [clean_name(name) for name in class_names]


def _sentences(name: str, descriptions: Mapping[str, Sequence[str]]) -> list[str]:
    if name not in descriptions:
        raise InvalidParameter(f"the descriptions have no class {name!r}; {nearest(name, descriptions)}")
    if isinstance(descriptions[name], str):
        raise InvalidParameter(f"the description of {name!r} must be a list of sentences, not one string")
    return require_texts(f"the description of {name!r}", descriptions[name])

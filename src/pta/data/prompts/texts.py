"""The texts of each class: every template filled with its name, then the sentences that describe it."""

import re
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from pta.core.parameters import require_mapping, require_texts
from pta.data.prompts.templates import require_templates
from pta.door.files import read_json, understanding
from pta.errors import InvalidClassifier, InvalidParameter, UnreadableFile, nearest, shown, some_of


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
        raise InvalidClassifier(f"class names must be a list of strings, not {shown(class_names)}")
    if len(class_names) < 2:
        raise InvalidClassifier(f"a classifier needs at least two class names, got {len(class_names)}")
    for number, name in enumerate(class_names):
        if not isinstance(name, str):
            raise InvalidClassifier(f"class name {number} must be a string, not {shown(name)}")
        if not clean_name(name).strip():
            raise InvalidClassifier(f"class name {number} is blank")
        if any("\ud800" <= sign <= "\udfff" for sign in name):  # lone surrogates: undecodable bytes of a file name
            raise InvalidClassifier(f"class name {number}, {name!a}, has bytes that are not UTF-8; rename it")
    return [clean_name(name) for name in class_names]


def _sentences(name: str, descriptions: Mapping[str, Sequence[str]]) -> list[str]:
    if name not in descriptions:
        raise InvalidParameter(f"the descriptions have no class {name!r}; {nearest(name, descriptions)}")
    if isinstance(descriptions[name], str):
        raise InvalidParameter(f"the description of {name!r} must be a list of sentences, not one string")
    return require_texts(f"the description of {name!r}", descriptions[name])


_HEADINGS = re.compile(r"(class|category|label)( ?(id|names?))?|classes|categories|labels|names?|id|idx|index|number")


class DoubtfulClassNames(UserWarning):
    """Class names that are probably not what was meant."""


class DuplicateClassNames(DoubtfulClassNames):
    """Several classes have the same texts, up to case, so most models cannot tell them apart."""


def warn_about_names(class_names: Sequence[str], texts: Sequence[Sequence[str]], remark: str | None) -> None:
    """Warn about names that look like a heading or a comment, about classes of the same texts, and of the model's."""
    odd = [name for number, name in enumerate(class_names) if name.startswith("#") or (not number and is_heading(name))]
    if odd:
        warn = (
            f"{some_of(odd)} was taken as a class, but looks like the heading of a table, or a comment; remove it if so"
        )
        warnings.warn(warn, DoubtfulClassNames, stacklevel=3)
    names_by_text: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, own in zip(class_names, texts, strict=True):
        names_by_text[tuple(text.casefold() for text in own)].append(clean_name(name))
    if same := [names for names in names_by_text.values() if len(names) > 1]:
        _warn_about_duplicates(same)
    if remark:
        warnings.warn(remark, DoubtfulClassNames, stacklevel=3)


def is_heading(name: str) -> bool:
    """Whether a name is what tables of classes have in their first line.

    >>> [is_heading(name) for name in ("Class name", "id,name", "class_name", "name tag", "cat")]
    [True, True, True, False, False]
    """
    cells = re.split(r"[,;\t]", clean_name(name).casefold())
    return all(_HEADINGS.fullmatch(cell.strip()) for cell in cells)


def _warn_about_duplicates(same: Sequence[Sequence[str]]) -> None:
    called = some_of([name for names in same for name in dict.fromkeys(names)])
    is_same = all(len(set(names)) == 1 for names in same)
    equal = "are the same" if is_same else "differ at most in case, which most models ignore"
    warnings.warn(
        f"several classes are called {called}: their texts {equal}, so zero-shot always predicts the first of them; "
        "give them different names",
        DuplicateClassNames,
        stacklevel=4,
    )

"""Class names: what they must be, and how they stand in a text."""

from collections.abc import Sequence

from pta.errors import InvalidClassifier, shown


class DuplicateClassNames(UserWarning):
    """Several classes have one name, so they get the same texts, and the first of them wins every tie."""


def clean_name(name: str) -> str:
    """A class name as it stands in a text.

    >>> clean_name("golden_retriever")
    'golden retriever'
    """
    return name.replace("_", " ")


def cleaned(class_names: Sequence[str]) -> list[str]:
    """The names of at least two classes, cleaned."""
    if isinstance(class_names, str) or not isinstance(class_names, Sequence):
        raise InvalidClassifier(f"class names must be a list of strings, not {shown(class_names)}")
    names = list(class_names)
    if len(names) < 2:
        raise InvalidClassifier(f"a classifier needs at least two class names, got {len(names)}")
    for number, name in enumerate(names):
        if not isinstance(name, str):
            raise InvalidClassifier(f"class name {number} must be a string, not {shown(name)}")
        if not clean_name(name).strip():
            raise InvalidClassifier(f"class name {number} is blank")
        if any("\ud800" <= sign <= "\udfff" for sign in name):  # lone surrogates: undecodable bytes of a file name
            raise InvalidClassifier(f"class name {number}, {name!a}, has bytes that are not UTF-8; rename it")
    return [clean_name(name) for name in names]

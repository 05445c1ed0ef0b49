"""Warnings about class names that are accepted and are probably a mistake."""

import re
import warnings
from collections import defaultdict
from collections.abc import Sequence

from pta.data.prompts.texts import clean_name
from pta.errors import some_of

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

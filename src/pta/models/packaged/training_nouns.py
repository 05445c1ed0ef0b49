"""The nouns that a packaged model was trained on, and which class names it can read.

Its text features do not tell: whatever the text, they lie near those of a class of its training
(`benchmarks/embedded_words.py`). Words do.
"""

import re
from collections.abc import Iterable
from functools import cache

from pta.door.files import packaged_json

_SHORTEST_NOUN, _SHORTEST_FRONT = 4, 3  # letters of a compound's parts: "rain" and "coat", not "commit" and "tee"


def training_nouns(architecture: str) -> dict[str, list[str]]:
    """Other names of the same thing by class name.

    >>> training_nouns("embedded")["dress"][:2]
    ['gown', 'frock']
    """
    return packaged_json("training_nouns.json")[architecture]


def unread_names(architecture: str, names: Iterable[str]) -> list[str]:
    """The names without a noun of the training. It may be in the plural, among other words, or the end of a compound.

    >>> unread_names("embedded", ["coats", "Leather_Jacket", "raincoat", "t-shirt/top", "hat", "committee", "address"])
    ['hat', 'committee', 'address']
    """
    nouns = _nouns(architecture)
    return [name for name in names if not _has_noun(_words(name), nouns)]


def _has_noun(words: tuple[str, ...], nouns: frozenset[tuple[str, ...]]) -> bool:
    parts = (words[start:end] for end in range(1, len(words) + 1) for start in range(end))
    ends = tuple(noun[0] for noun in nouns if len(noun) == 1 and len(noun[0]) >= _SHORTEST_NOUN)
    return any(part in nouns for part in parts) or any(word[_SHORTEST_FRONT:].endswith(ends) for word in words)


@cache
def _nouns(architecture: str) -> frozenset[tuple[str, ...]]:
    listed = training_nouns(architecture)
    return frozenset(_words(noun) for name, others in listed.items() for noun in (name, *others))


def _words(text: str) -> tuple[str, ...]:
    return tuple(map(_singular, re.findall(r"[^\W_]+", text.casefold())))


def _singular(word: str) -> str:
    """The word without the ending of a plural; the same for both numbers is enough.

    >>> _singular("boots"), _singular("dresses"), _singular("dress"), _singular("wardrobes"), _singular("bodies")
    ('boot', 'dress', 'dress', 'wardrobe', 'body')
    """
    for plural, ending in (("sses", "ss"), ("shes", "sh"), ("ches", "ch"), ("xes", "x"), ("ies", "y"), ("ss", "ss")):
        if word.endswith(plural):
            return word.removesuffix(plural) + ending
    return word.removesuffix("s")

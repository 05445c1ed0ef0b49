"""Text from outside, such as the names of files and classes, made safe for terminals, JSON and CSV."""

import json
import re
import unicodedata
from typing import Any

# Control and format characters (escape sequences, changes of direction, no width), lone surrogates, line breaks.
_UNSAFE = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
_FORMULA = re.compile(r"'*[=+\-@]")
_ON_ONE_LINE = json.JSONEncoder(ensure_ascii=False)
_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?(e[-+]?\d+)?|inf)")


def printable(text: str) -> str:
    """The text with Python escapes for all characters that would change how the rest is displayed.

    A byte of a file name that is not UTF-8 is written as a byte.

    >>> print(printable("caf\\udce9 \\x1b[2J\\u202e.jpg"))
    caf\\xe9 \\x1b[2J\\u202e.jpg
    """
    return text if text.isprintable() else "".join(map(_escaped, text))


def to_json(content: Any, indent: int | None = None) -> str:
    """JSON with readable texts, valid UTF-8, and no control characters for a terminal.

    >>> print(to_json(["caf\\udce9", "\\u202e", "ünï"]))
    ["caf\\\\xe9", "\\u202e", "ünï"]
    """
    text = _ON_ONE_LINE.encode(content) if indent is None else json.dumps(content, ensure_ascii=False, indent=indent)
    return text if text.isprintable() else "".join(map(_escaped_in_json, text))


def csv_cell(value: Any) -> Any:
    """A value for a CSV file: a text is printable, and where a spreadsheet would take it for a formula, quoted by `'`.

    >>> [csv_cell(value) for value in ("=1+1", "cat", "-1.5", -1.5)]
    ["'=1+1", 'cat', '-1.5', -1.5]
    """
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def from_csv_cell(text: str) -> str:
    """A text without the quote that `csv_cell` put in front of it.

    >>> [from_csv_cell(text) for text in ("'=1+1", "cat", "'cat'")]
    ['=1+1', 'cat', "'cat'"]
    """
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def _escaped(sign: str) -> str:
    if unicodedata.category(sign) not in _UNSAFE:
        return sign
    if "\udc80" <= sign <= "\udcff":  # what Python makes of a byte that is not UTF-8
        return f"\\x{ord(sign) - 0xDC00:02x}"
    return sign.encode("unicode_escape").decode()


def _escaped_in_json(sign: str) -> str:
    if sign == "\n" or unicodedata.category(sign) not in _UNSAFE:  # a line break of the JSON itself
        return sign
    return f"\\{_escaped(sign)}" if unicodedata.category(sign) == "Cs" else json.dumps(sign)[1:-1]

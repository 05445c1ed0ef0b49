"""HTML reports: one self-contained page each, filled from the templates in the package's data."""

import re
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from pta.door.safe_text import printable
from pta.measure.texts import microseconds, signed, with_minus


def percent(value: float, digits: int = 2) -> str:
    """A percentage."""
    return f"{value:.{digits}f}\N{NO-BREAK SPACE}%"


def points(value: float, digits: int = 2) -> str:
    """A difference, with its sign."""
    return with_minus(signed(value, digits))


def mood(points: float, digits: int = 2) -> str:
    """The CSS class of a difference as it is written: a gain, a loss or neither.

    >>> mood(0.3), mood(-0.3), mood(-0.001)
    ('gain', 'loss', '')
    """
    shown = round(points, digits)
    return "gain" if shown > 0 else "loss" if shown < 0 else ""


def breakable(text: str) -> Markup:
    """A heading, which may be broken between the parts of a file's name, but not inside a word."""
    return Markup(re.sub(r"(?<=[_/])(?=\w)", "<wbr>", escape(text)))


_TEMPLATES = Environment(
    loader=PackageLoader("pta", "assets"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_TEMPLATES.filters |= {
    one.__name__: one for one in (percent, points, mood, breakable, with_minus, microseconds, printable)
}


def render(template: str, **values: Any) -> str:
    """The page of a template; it loads nothing, and the browser is told to refuse what it would ask for on its own."""
    return _TEMPLATES.get_template(template).render(values)

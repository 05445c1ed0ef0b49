"""The common parts of HTML reports: a self-contained page and its elements."""

from collections.abc import Mapping
from html import escape
from importlib import resources
from string import Template


def page(title: str, body: str, *, kind: str, script: str = "") -> str:
    """One HTML file; the browser is told to refuse even what it would ask for on its own.

    The title is plain text. The kind chooses rules of the style: `demo` or `tables`. Without a script, none may run.
    """
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    policy += "; script-src 'unsafe-inline'" if script else ""
    script = f"<script>\n{script}</script>\n" if script else ""
    given = {"policy": policy, "kind": kind, "body": body, "script": script}
    return fill("page.html", title=escape(title), style=packaged_text("page.css"), **given)


def fill(template: str, **values: object) -> str:
    """A template of the package's data with its values (HTML); what they are is written out in the template."""
    return Template(packaged_text(template)).substitute(values)


def packaged_text(name: str) -> str:
    """A style, a script or a template of the package's data."""
    return (resources.files("pta") / "assets" / name).read_text(encoding="utf-8")


def tiles(*values: tuple[str, str]) -> str:
    """A few large numbers (HTML), each with plain words below it."""
    inside = "\n".join(f"<div><b>{value}</b><span>{escape(words)}</span></div>" for value, words in values)
    return f'<div class="tiles">\n{inside}\n</div>'


def facts(values: Mapping[str, str]) -> str:
    """Plain names and plain texts, one below the other."""
    inside = "\n".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in values.items())
    return f"<dl>\n{inside}\n</dl>"


def mood(points: float, digits: int = 2) -> str:
    """The CSS class of a difference as it is written: a gain, a loss or neither.

    >>> mood(0.3), mood(-0.3), mood(-0.001)
    ('gain', 'loss', '')
    """
    shown = round(points, digits)
    return "gain" if shown > 0 else "loss" if shown < 0 else ""

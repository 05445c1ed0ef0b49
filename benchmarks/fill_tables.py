"""Fill in the tables and numbers of the documents from the committed results.

    python benchmarks/fill_tables.py          or `make tables`

In Markdown, `<!-- table: PAGE.NAME -->` and `<!-- end -->` enclose the table that the function NAME of shown/PAGE.py
gives. `<!-- n: FILE COLUMN FORMAT KEY=VALUE … -->` and `<!-- end -->` enclose one number: what FILE.csv has in COLUMN
where each KEY matches its VALUE (with * for anything), as Python's FORMAT writes it. A text needs no FORMAT.
"""

import re
import shlex
from importlib import import_module

from shown.results import ROOT, only, written

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "docs" / "results" / "README.md"]
MARKED = re.compile(r"(<!-- (table|n): (.+?) -->)(.*?)(<!-- end -->)", flags=re.DOTALL)


def filled(text: str) -> str:
    """A page with everything between markers made anew."""
    return MARKED.sub(lambda found: found[1] + (_table if found[2] == "table" else _number)(found[3]) + found[5], text)


def _table(name: str) -> str:
    page, _, function = name.partition(".")
    head, *rows = getattr(import_module(f"shown.{page}"), function)()
    lines = [head, ["---"] * len(head), *rows]
    return "\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _number(query: str) -> str:
    parts = shlex.split(query)
    where = dict(part.split("=", 1) for part in parts if "=" in part)
    name, column, *form = [part for part in parts if "=" not in part]
    return written(only(name, column, **where), *form)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")

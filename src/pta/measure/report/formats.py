"""A filled table as text: Markdown as GitHub reads it, LaTeX to be input, and CSV and JSON for programs.

The output of a reproduction is every table in the formats asked for, every figure, and one page.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pta import __version__
from pta.door.files import write_atomically
from pta.errors import MissingPackage, require_known
from pta.measure.report.figures import draw
from pta.measure.report.reproduction_page import render_report
from pta.measure.reproduce.declaration import Row
from pta.measure.reproduce.table import Cell, Table, said
from pta.measure.texts import csv_text

FORMATS = ("md", "csv", "html", "tex")
"""Markdown, CSV, one page of all tables (`report.html`), and LaTeX."""

_WITH_FIGURES = {"md", "html"}
FIELDS = (
    *("experiment", "place", "section", "row", "method", "params", "dataset", "metric", "statistic"),
    *("ours", "paper", "printed", "difference", "erratum", "missing", "partial"),
    *("prompts", "views", "seeds", "per_seed", "keys", "features", "version", "hardware"),
)
# At the beginning of a line, a bracket or star would belong to the end of the line before, so they are in braces.
_SIGN_TEXT = r"""
    \ \textbackslash{}  { \{  } \}  & \&  % \%  $ \$  # \#  _ \_  ~ \textasciitilde{}  ^ \textasciicircum{}
    < \textless{}  > \textgreater{}  | \textbar{}  ` \textasciigrave{}  " ''  [ {[}  ] {]}  * {*}  – \textendash{}
    — \textemdash{}  … \dots{}  ‘ `  ’ '  “ ``  ” ''  ß ß  ø ø  Ø Ø  æ æ  Æ Æ  ł ł  Ł Ł
    · $\cdot$  ± $\pm$  × $\times$  − $-$  ≈ $\approx$  ≠ $\neq$  ≤ $\leq$  ≥ $\geq$  → $\rightarrow$
    ← $\leftarrow$  ↑ $\uparrow$  ↓ $\downarrow$  ∞ $\infty$  ∈ $\in$  √ $\surd$  ° $^{\circ}$  ² $^{2}$  ³ $^{3}$
    µ $\mu$
    α $\alpha$  β $\beta$  γ $\gamma$  δ $\delta$  ε $\epsilon$  ζ $\zeta$  η $\eta$  θ $\theta$  ι $\iota$
    κ $\kappa$  λ $\lambda$  μ $\mu$  ν $\nu$  ξ $\xi$  π $\pi$  ρ $\rho$  σ $\sigma$  τ $\tau$  υ $\upsilon$
    φ $\phi$  χ $\chi$  ψ $\psi$  ω $\omega$  Γ $\Gamma$  Δ $\Delta$  Θ $\Theta$  Λ $\Lambda$  Ξ $\Xi$  Π $\Pi$
    Σ $\Sigma$  Υ $\Upsilon$  Φ $\Phi$  Ψ $\Psi$  Ω $\Omega$  ο $o$  Α $A$  Β $B$  Ε $E$  Ζ $Z$  Η $H$  Ι $I$  Κ $K$
    Μ $M$  Ν $N$  Ο $O$  Ρ $P$  Τ $T$  Χ $X$
"""  # each sign and what sets it
_SIGNS = dict(zip(_SIGN_TEXT.split()[::2], _SIGN_TEXT.split()[1::2], strict=True))


def to_markdown(table: Table, figure: str = "") -> str:
    """Heading, what the numbers were made with, the figure if it has a file, the table, and what must be said below."""
    width = len(table.headings)
    rows = [_row(map(_plain, (table.experiment.unit, *table.headings))), _row([":--", *["--:"] * width])]
    for section, line in table.sections:
        if section is not None:
            rows.append(_row([f"**{_plain(section)}**" if section else "", *[""] * width]))
        rows.append(_row([_plain(line.row.label), *map(_markdown_cell, line.cells)]))
    title = _plain(table.title)
    above = [f"# {title}", _plain(table.experiment.note), _plain(table.made_with)]
    above += [f"![{title}]({figure})"] if figure else []
    notes = "\n".join(f"- {_plain(note)}" for note in table.remarks)
    return "\n\n".join(filter(None, [*above, "\n".join(rows), notes])) + "\n"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown_cell(cell: Cell) -> str:
    ours = _plain(cell.ours_text)
    beside = ", ".join(filter(None, (cell.starred(cell.paper_text, "paper: "), cell.difference_text)))
    parts = (f"**{ours}**" if cell.is_best else ours, _plain(f"({beside})") if beside else "", _plain(cell.remark))
    return " ".join(filter(None, parts))


def _plain(given: str) -> str:
    r"""A text that Markdown shows as it is.

    >>> _plain("a_b | <i>*")
    'a\\_b \\| &lt;i&gt;\\*'
    """
    escaped = re.sub(r"([\\`*_\[\]|~$#])", r"\\\1", " ".join(given.split()))
    return escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def to_latex(table: Table) -> str:
    """A table environment: ours, with the paper's number and the difference small beside it, and notes below."""
    width = len(table.headings)
    caption = ". ".join(part.rstrip(".") for part in (table.title, table.made_with) if part)
    notes = "".join(f"{latex_text(note)}\\par\n" for note in (table.experiment.note, *table.remarks) if note)
    below = f"\\par\\smallskip\n{{\\footnotesize\\raggedright\n{notes}}}\n" if notes else ""
    rows = [f"{' & '.join(map(latex_text, [table.experiment.unit, *table.headings]))} \\\\\n\\midrule\n"]
    for at, (section, line) in enumerate(table.sections):
        if section is not None:
            space = "\\addlinespace\n" if at else ""
            heading = f"\\emph{{{latex_text(section)}}}" if section else ""
            rows.append(f"{space}\\multicolumn{{{width + 1}}}{{l}}{{{heading}}} \\\\\n")
        rows.append(f"{' & '.join([latex_text(line.row.label), *map(_latex_cell, line.cells)])} \\\\\n")
    return (
        "\\begin{table}[t]\n\\centering\n"
        f"\\caption{{{latex_text(caption)}.}}\n"
        "\\resizebox{\\linewidth}{!}{%\n"
        f"\\begin{{tabular}}{{l{'r' * width}}}\n\\toprule\n{''.join(rows)}"
        f"\\bottomrule\n\\end{{tabular}}}}\n{below}\\end{{table}}\n"
    )


def _latex_cell(cell: Cell) -> str:
    ours, paper, difference = cell.ours_text, cell.paper_text, cell.difference_text
    ours = f"${ours}$" if cell.is_gain and cell.ours is not None else latex_text(ours)
    starred = cell.starred(f"${paper}$" if cell.is_gain and paper else paper, "paper: ", "$^{*}$")
    beside = ", ".join(filter(None, (starred, f"${difference}$" if difference else "")))
    small = f" {{\\scriptsize ({beside})}}" if beside else ""
    remark = f" {latex_text(cell.remark)}" if cell.remark else ""
    return (f"\\textbf{{{ours}}}" if cell.is_best else ours) + small + remark


def latex_text(given: str) -> str:
    r"""A text that LaTeX sets as it is; signs it does not have are named by their number.

    >>> print(latex_text("50 % of β_t – é"))
    50 \% of $\beta$\_t \textendash{} é
    """
    written = "".join(map(_latex_sign, " ".join(given.split())))
    return re.sub("-(?=-)", "-{}", written)  # or hyphens would run together to a dash


def _latex_sign(sign: str) -> str:
    if sign in _SIGNS:
        return _SIGNS[sign]
    if sign.isascii():
        return sign if sign.isprintable() else ""
    is_accented = sign < "ſ" and unicodedata.normalize("NFD", sign)[0].isascii()
    return sign if is_accented else f"\\texttt{{U+{ord(sign):04X}}}"


def to_csv(table: Table) -> str:
    """One line per cell; numbers in full, nothing where there is nothing.

    `paper` is the number compared with, `printed` the one on paper. `params` is JSON, as is `per_seed`: dataset → seed
    → value. Several keys, fingerprints, versions or machines are parted by semicolons.
    """
    rows = []
    for line in table.lines:
        for heading, cell in zip(table.headings, line.cells, strict=True):
            if cell.ours_text:
                place = {"experiment": table.experiment.id, "place": table.experiment.place, "dataset": heading}
                values = place | _csv_values(line.row, cell)
                rows.append([values.get(name, "") for name in FIELDS])
    return csv_text(FIELDS, *rows)


def _csv_values(row: Row, cell: Cell) -> dict[str, Any]:
    records = cell.records
    ran = said(records, "params")
    params = ran[0] if len(ran) == 1 else dict(row.params)  # what was run, if it was the same on every dataset
    values = {
        "section": row.section,
        "row": row.label,
        "method": row.method,
        "params": json.dumps(params, ensure_ascii=False, sort_keys=True) if params else "",
        "metric": "gain" if cell.is_gain else cell.metric,
        "statistic": row.statistic,
        **_numbers(cell),
    }
    if not records:
        return values
    per_seed = {source.dataset: source.by_seed(cell.metric) for source in cell.sources}
    return values | {
        **{
            name: ";".join(dict.fromkeys(getattr(source, name) for source in cell.sources))
            for name in ("prompts", "views")
        },
        "seeds": " ".join(map(str, said(records, "seed"))),
        "per_seed": json.dumps(per_seed, ensure_ascii=False),
        "keys": ";".join(said(records, "key")),
        **{name: ";".join(said(records, name)) for name in ("features", "version")},
        "hardware": ";".join(one.replace(";", ",") for one in said(records, "on")),
    }


def to_json(table: Table) -> dict[str, Any]:
    """All that a program may want to know of a table."""
    rows = []
    for line in table.lines:
        declared = {name: getattr(line.row, name) for name in ("section", "label", "method")}
        row: dict[str, Any] = {**declared, "cells": {}, "gain": None}
        for heading, cell in zip(table.headings, line.cells, strict=True):
            numbers = {name: None if value == "" else value for name, value in _numbers(cell).items()}
            written = {**numbers, "results": said(cell.records, "key")} if cell.ours_text else None
            (row if cell.is_gain else row["cells"])["gain" if cell.is_gain else heading] = written
        rows.append(row)
    return {
        "experiment": table.experiment.id,
        **{name: getattr(table.experiment, name) for name in ("place", "title", "unit")},
        **{name: getattr(table, name) for name in ("comparable", "about", "notes", "absent")},
        "rows": rows,
    }


def _numbers(cell: Cell) -> dict[str, Any]:
    numbers = {name: getattr(cell, name) for name in ("ours", "paper", "printed", "difference")}
    why = cell.erratum.why if cell.erratum else ""
    return numbers | {"erratum": why, "missing": cell.missing, "partial": cell.partial}


def parse_formats(given: str) -> tuple[str, ...]:
    """The formats that are named, parted by commas.

    >>> parse_formats("tex, csv")
    ('tex', 'csv')
    """
    formats = tuple(name.strip() for name in given.split(","))
    for name in formats:
        require_known("format", name, FORMATS)
    return formats


def write_results(tables: Sequence[Table], folder: Path, formats: Sequence[str]) -> str:
    """Write the tables, and the figures where a format shows them; why there are no figures, if there are none."""
    figures, without = {}, ""
    for table in tables:
        id = table.experiment.id
        try:
            if table.experiment.figure is not None and _WITH_FIGURES.intersection(formats):
                figures[id] = [draw(table, across=across) for across in (1, 2)]
                write_atomically(folder / f"{id}.svg", figures[id][0].encode())
        except MissingPackage as error:
            without = str(error)
        with_figure = partial(to_markdown, figure=f"{id}.svg" if id in figures else "")
        writers: dict[str, Callable[[Table], str]] = {"md": with_figure, "csv": to_csv, "tex": to_latex}
        for ending in writers.keys() & set(formats):
            write_atomically(folder / f"{id}.{ending}", writers[ending](table).encode())
    if "html" in formats:
        records = [record for table in tables for cell in table.cells for record in cell.records]
        origin = {"pta": __version__, "measured on": "; ".join(said(records, "on")) or "nothing was measured"}
        write_atomically(folder / "report.html", render_report(tables, figures, made=origin).encode())
    return without

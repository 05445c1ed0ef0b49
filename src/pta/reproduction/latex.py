r"""A filled table as LaTeX, to be \input where booktabs and graphicx are loaded."""

import re
import unicodedata

from pta.evaluation.number_text import number, signed
from pta.reproduction import text
from pta.reproduction.table import Cell, Line, Table

_SIGNS = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "`": r"\textasciigrave{}",
    '"': "''",
    "[": "{[}",  # at the beginning of a line it would belong to the end of the one before, as would a star
    "]": "{]}",
    "*": "{*}",
    "–": r"\textendash{}",
    "—": r"\textemdash{}",
    "…": r"\dots{}",
    "‘": "`",
    "’": "'",
    "“": "``",
    "”": "''",
    "ß": r"\ss{}",
    "ø": r"\o{}",
    "Ø": r"\O{}",
    "æ": r"\ae{}",
    "Æ": r"\AE{}",
    "ł": r"\l{}",
    "Ł": r"\L{}",
    "·": r"$\cdot$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "−": "$-$",
    "≈": r"$\approx$",
    "≠": r"$\neq$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "→": r"$\rightarrow$",
    "←": r"$\leftarrow$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "∞": r"$\infty$",
    "∈": r"$\in$",
    "√": r"$\surd$",
    "°": r"$^{\circ}$",
    "²": r"$^{2}$",
    "³": r"$^{3}$",
    "µ": r"$\mu$",
}
_GREEK = (
    *(
        "alpha",
        "beta",
        "gamma",
        "delta",
        "epsilon",
        "zeta",
        "eta",
        "theta",
        "iota",
        "kappa",
        "lambda",
        "mu",
        "nu",
        "xi",
    ),
    *("pi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega"),
)
_ACCENTS = {"\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0308": '"', "\u030a": "r", "\u030c": "v"}
_ACCENTS |= {"\u0327": "c", "\u0304": "=", "\u0306": "u", "\u030b": "H", "\u0307": "."}


def to_latex(table: Table) -> str:
    """A table environment: ours, with the paper's number and the difference small beside it, and notes below."""
    columns = 1 + len(table.headings) + text.has_gains(table)
    headings = [table.experiment.unit, *table.headings, *([text.gain_heading(table)] if text.has_gains(table) else [])]
    caption = ". ".join(part.rstrip(".") for part in (text.title_of(table), text.about_text(table)) if part)
    notes = "".join(f"{escape(note)}\\par\n" for note in (table.experiment.note, *text.footnotes(table)) if note)
    below = f"\\par\\smallskip\n{{\\footnotesize\\raggedright\n{notes}}}\n" if notes else ""
    return (
        "\\begin{table}[t]\n\\centering\n"
        f"\\caption{{{escape(caption)}.}}\n"
        "\\resizebox{\\linewidth}{!}{%\n"
        f"\\begin{{tabular}}{{l{'r' * (columns - 1)}}}\n\\toprule\n"
        f"{' & '.join(map(escape, headings))} \\\\\n\\midrule\n"
        f"{_rows(table, columns)}"
        f"\\bottomrule\n\\end{{tabular}}}}\n{below}\\end{{table}}\n"
    )


def _rows(table: Table, columns: int) -> str:
    written, section = [], ""
    best = text.best_cells(table)
    for at, line in enumerate(table.lines):
        if line.row.section != section:
            section = line.row.section
            space = "\\addlinespace\n" if at else ""
            heading = f"\\emph{{{escape(section)}}}" if section else ""
            written.append(f"{space}\\multicolumn{{{columns}}}{{l}}{{{heading}}} \\\\\n")
        cells = _cells(table, line, {column for own, column in best if own == at})
        written.append(f"{' & '.join([escape(line.row.label), *cells])} \\\\\n")
    return "".join(written)


def _cells(table: Table, line: Line, bold: set[int]) -> list[str]:
    cells = []
    for column, cell in enumerate(line.cells):
        digits = text.digits_of(table, cell)
        paper, difference = text.paper_number(table, cell), text.difference_from_paper(table, cell)
        ours = escape(text.ours_text(table, cell))
        beside = ["" if paper is None else number(paper, digits) + _star(cell)]
        beside += [] if difference is None else [_signed(difference, digits)]
        cells.append((f"\\textbf{{{ours}}}" if column in bold else ours) + _small(beside) + _partial(cell))
    if text.has_gains(table):
        cells.append(_gain(line.gain, table.experiment.digits) if line.gain else "")
    return cells


def _gain(cell: Cell, digits: int) -> str:
    ours = escape(text.missing_text(cell)) if cell.ours is None else _signed(cell.ours, digits)
    return (
        ours
        + _small(["" if cell.paper is None else f"paper: {_signed(cell.paper, digits)}{_star(cell)}"])
        + _partial(cell)
    )


def _small(beside: list[str]) -> str:
    said = ", ".join(part for part in beside if part)
    return f" {{\\scriptsize ({said})}}" if said else ""


def _star(cell: Cell) -> str:
    return "$^{*}$" if text.star(cell) else ""


def _partial(cell: Cell) -> str:
    return f" {escape(text.partial_text(cell))}" if cell.partial else ""


def _signed(value: float, digits: int) -> str:
    return f"${signed(value, digits)}$"


def escape(given: str) -> str:
    r"""A text that LaTeX sets as it is; signs it does not have are named by their number.

    >>> print(escape("50 % of β_t – é"))
    50 \% of $\beta$\_t \textendash{} \'{e}
    """
    written = "".join(map(_sign, " ".join(given.split())))
    return re.sub("-(?=-)", "-{}", written)  # or hyphens would run together to a dash


def _sign(sign: str) -> str:
    if sign in _SIGNS:
        return _SIGNS[sign]
    if sign.isascii():
        return sign if sign.isprintable() else ""
    return _greek(sign) or _accented(sign) or f"\\texttt{{U+{ord(sign):04X}}}"


def _greek(sign: str) -> str:
    r"""The letter's command, or the Latin capital that it looks like.

    >>> print(_greek("γ"), _greek("Ω"), _greek("Α"))
    $\gamma$ $\Omega$ $A$
    """
    name = re.fullmatch(r"GREEK (SMALL|CAPITAL) LETTER ([A-Z]+)", unicodedata.name(sign, ""))
    if not name:
        return ""
    letter = name[2].replace("LAMDA", "LAMBDA").lower()
    like = dict(zip("οΑΒΕΖΗΙΚΜΝΟΡΤΧ", "oABEZHIKMNOPTX", strict=True))
    if sign in like:
        return f"${like[sign]}$"
    return f"$\\{letter if name[1] == 'SMALL' else letter.capitalize()}$" if letter in _GREEK else ""


def _accented(sign: str) -> str:
    base, *marks = list(unicodedata.normalize("NFKD", sign))
    if not base.isascii() or not all(mark in _ACCENTS for mark in marks):
        return ""
    written = _SIGNS.get(base, base)
    for mark in marks:
        written = f"\\{_ACCENTS[mark]}{{{written}}}"
    return written

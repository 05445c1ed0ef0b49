r"""A filled table as LaTeX, to be \input where booktabs and graphicx are loaded."""

import re
import unicodedata

from pta.measure.reproduce.cell import Cell
from pta.measure.reproduce.table import Table

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


def to_latex(table: Table) -> str:
    """A table environment: ours, with the paper's number and the difference small beside it, and notes below."""
    width = len(table.headings)
    caption = ". ".join(part.rstrip(".") for part in (table.title, table.made_with) if part)
    notes = "".join(f"{escape(note)}\\par\n" for note in (table.experiment.note, *table.remarks) if note)
    below = f"\\par\\smallskip\n{{\\footnotesize\\raggedright\n{notes}}}\n" if notes else ""
    rows = [f"{' & '.join(map(escape, [table.experiment.unit, *table.headings]))} \\\\\n\\midrule\n"]
    for at, (section, line) in enumerate(table.sections):
        if section is not None:
            space = "\\addlinespace\n" if at else ""
            heading = f"\\emph{{{escape(section)}}}" if section else ""
            rows.append(f"{space}\\multicolumn{{{width + 1}}}{{l}}{{{heading}}} \\\\\n")
        rows.append(f"{' & '.join([escape(line.row.label), *map(_cell, line.cells)])} \\\\\n")
    return (
        "\\begin{table}[t]\n\\centering\n"
        f"\\caption{{{escape(caption)}.}}\n"
        "\\resizebox{\\linewidth}{!}{%\n"
        f"\\begin{{tabular}}{{l{'r' * width}}}\n\\toprule\n{''.join(rows)}"
        f"\\bottomrule\n\\end{{tabular}}}}\n{below}\\end{{table}}\n"
    )


def _cell(cell: Cell) -> str:
    ours = f"${cell.ours_text}$" if cell.is_gain and cell.ours is not None else escape(cell.ours_text)
    paper = f"paper: ${cell.paper_text}$" if cell.is_gain else cell.paper_text
    starred = paper + ("$^{*}$" if cell.star else "") if cell.paper_text else ""
    beside = ", ".join(filter(None, (starred, f"${cell.difference_text}$" if cell.difference_text else "")))
    small = f" {{\\scriptsize ({beside})}}" if beside else ""
    remark = f" {escape(cell.remark)}" if cell.remark else ""
    return (f"\\textbf{{{ours}}}" if cell.is_best else ours) + small + remark


def escape(given: str) -> str:
    r"""A text that LaTeX sets as it is; signs it does not have are named by their number.

    >>> print(escape("50 % of β_t – é"))
    50 \% of $\beta$\_t \textendash{} é
    """
    written = "".join(map(_sign, " ".join(given.split())))
    return re.sub("-(?=-)", "-{}", written)  # or hyphens would run together to a dash


def _sign(sign: str) -> str:
    if sign in _SIGNS:
        return _SIGNS[sign]
    if sign.isascii():
        return sign if sign.isprintable() else ""
    is_accented = sign < "ſ" and unicodedata.normalize("NFD", sign)[0].isascii()
    return sign if is_accented else f"\\texttt{{U+{ord(sign):04X}}}"

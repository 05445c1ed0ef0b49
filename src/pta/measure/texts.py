"""Numbers as tables, pages and sentences show them, and tables as CSV."""

import csv
import io
from collections.abc import Iterable
from typing import Any

from pta.door.safe_text import csv_cell


def number(value: float, digits: int) -> str:
    """A number, never a negative zero.

    >>> number(-0.001, 2)
    '0.00'
    """
    return f"{round(value, digits) + 0.0:.{digits}f}"


def signed(value: float, digits: int) -> str:
    """A number with its sign, unless it is written as zero.

    >>> signed(0.736, 2), signed(-0.736, 1), signed(-0.001, 2)
    ('+0.74', '-0.7', '0.00')
    """
    written = number(value, digits)
    return written if float(written) <= 0 else f"+{written}"


def with_minus(written: str) -> str:
    """The same with a minus sign where it has a hyphen.

    >>> with_minus("-0.7")
    '−0.7'
    """
    return written.replace("-", "−")


def microseconds(value: float) -> str:
    """As many digits as repeat from run to run.

    >>> microseconds(0.4567), microseconds(12.34), microseconds(1234.5)
    ('0.46', '12', '1,234')
    """
    return f"{value:.2f}" if value < 1 else f"{value:.1f}" if value < 10 else f"{value:,.0f}"


def csv_text(*rows: Iterable[Any]) -> str:
    """Rows as CSV, the headings first; no text is taken for a formula.

    >>> csv_text(["name", "h"], ["=1+1", 5])
    "name,h\\n'=1+1,5\\n"
    """
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(map(csv_cell, row) for row in rows)
    return out.getvalue()

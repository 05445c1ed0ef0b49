"""Numbers as tables, pages and sentences show them."""


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

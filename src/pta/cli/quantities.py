"""Sizes, durations and moments as options give them: 32M, 10G, 30s, 2026-05-01T12:00:00."""

import re
from datetime import datetime

from typer import BadParameter

_BYTES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}


def parse_size(given: object) -> int:
    """Bytes.

    >>> parse_size("32M"), parse_size(100)
    (33554432, 100)
    """
    match = re.fullmatch(r"(\d{1,12})([KMGT]?)(?:i?B)?", str(given).strip())
    if match is None or int(match[1]) == 0:
        raise BadParameter(f"{given} is not a size; write 500K, 32M or 10G")
    return int(match[1]) * _BYTES[match[2]]


def parse_duration(given: object) -> float:
    """Seconds.

    >>> parse_duration("30s"), parse_duration("2m"), parse_duration(0.5)
    (30.0, 120.0, 0.5)
    """
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([smh]?)", str(given).strip())
    if match is None:
        raise BadParameter(f"{given} is not a duration; write 30s, 2m or 1h")
    return float(match[1]) * _SECONDS[match[2]]


def parse_moment(given: object) -> float:
    """Seconds since 1970 of a moment, in local time unless it names another zone.

    >>> parse_moment("2026-05-01T12:00:00+00:00"), parse_moment(5.0)
    (1777636800.0, 5.0)
    """
    if isinstance(given, float):
        return given
    try:
        return datetime.fromisoformat(str(given)).timestamp()
    except (ValueError, OverflowError, OSError):
        raise BadParameter(f"{given} is not a moment; write it as 2026-05-01T12:00:00") from None

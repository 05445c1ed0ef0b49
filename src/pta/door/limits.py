"""Limits: how large a sample may be. Larger ones are refused before any work."""

from dataclasses import dataclass

from pta.errors import InvalidParameter

_MOST_PIXELS = 178_956_970  # more are refused by Pillow itself


@dataclass(frozen=True)
class Limits:
    """The largest sample that is read.

    >>> Limits(max_pixels=10**6).max_bytes
    268435456
    """

    max_bytes: int = 256 * 2**20  # of a file or a frame, still encoded
    max_pixels: int = 89_478_485  # of a picture; they take 256 MiB as bytes of red, green and blue

    def __post_init__(self) -> None:
        for name, largest in (("max_bytes", 2**40), ("max_pixels", _MOST_PIXELS)):
            given = getattr(self, name)
            if type(given) is not int or not 1 <= given <= largest:
                raise InvalidParameter(f"{name} must be a whole number from 1 to {largest:,}, not {given!r}")


USUAL_LIMITS = Limits()

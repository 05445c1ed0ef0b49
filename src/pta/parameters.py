"""Refusing what a parameter cannot be, in one line that says what it can be."""

from numbers import Integral, Real

from pta.errors import InvalidParameter, nearest


def require_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Refuse a value that is not one of the choices, naming the nearest."""
    if value not in choices:
        raise InvalidParameter(f"{name}={value!r} is not a choice; {nearest(str(value), choices)}")


def require_number(name: str, value: object, low: float, high: float) -> float:
    """The value as a float, if it is a number from low to high."""
    number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else float("nan")
    if not low <= number <= high:
        raise InvalidParameter(f"{name} must be a number from {low:g} to {high:g}, got {value!r}")
    return number


def require_count(name: str, value: object, low: int, high: int) -> int:
    """The value as an int, if it is a whole number from low to high."""
    if not isinstance(value, Integral) or isinstance(value, bool) or not low <= int(value) <= high:
        raise InvalidParameter(f"{name} must be a whole number from {low} to {high}, got {value!r}")
    return int(value)


def require_switch(name: str, value: object) -> None:
    """Refuse what is neither True nor False."""
    if not isinstance(value, bool):
        raise InvalidParameter(f"{name} must be True or False, got {value!r}")

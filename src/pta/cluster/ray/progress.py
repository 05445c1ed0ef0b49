"""How much of its task this process has done, for a driver that asks between two blocks."""

_shares = [0.0]


def note(done: int, count: int) -> None:
    """So many samples of the task's are done."""
    _shares[0] = done / max(count, 1)


def share() -> float:
    """The part of the task that is done."""
    return _shares[0]

"""The corruptions of ModelNet-C by name, and how many points each leaves or adds."""

from pta.core.parameters import require_count
from pta.door.points.cloud import FEWEST_POINTS
from pta.errors import InvalidParameter, InvalidSamples, nearest, shown

CORRUPTIONS = ("add_global", "add_local", "dropout_global", "dropout_local", "rotate", "scale", "jitter")
"""In the order of the paper's tables."""

SEVERITIES = range(5)
DROPPED_SHARES = (0.25, 0.375, 0.5, 0.625, 0.75)


def corrupted_size(points: int, corruption: str, severity: int) -> int:
    """How many points a cloud has after a corruption; refused if it has too few for it.

    >>> [corrupted_size(1024, "dropout_global", severity) for severity in SEVERITIES]
    [768, 640, 512, 384, 256]
    """
    require_corruption(corruption, severity)
    change = {"add_global": 10, "add_local": 100, "dropout_local": -100}.get(corruption, 0) * (severity + 1)
    left = int(points * (1 - DROPPED_SHARES[severity])) if corruption == "dropout_global" else points + change
    if left < FEWEST_POINTS or (corruption == "add_local" and points < change):  # it adds at most as many as there are
        raise InvalidSamples(f"{points} points are too few for {corruption} of severity {severity}")
    return left


def require_corruption(corruption: str, severity: int) -> None:
    """Refuse what is not a corruption or not a severity."""
    if corruption not in CORRUPTIONS:
        raise InvalidParameter(f"unknown corruption {shown(corruption)}; {nearest(corruption, CORRUPTIONS)}")
    require_count("severity", severity, 0, SEVERITIES[-1])

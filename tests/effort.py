"""How often tests repeat themselves: PTA_TEST_EFFORT=1, as in `make test-all`, or a part of that, as in `make test`."""

import os

EFFORT = float(os.environ.get("PTA_TEST_EFFORT", "0.25"))


def repeated(count: int) -> int:
    """So many repetitions in `make test-all`, and fewer in `make test`."""
    return max(1, round(count * EFFORT))

"""Blocks that a worker keeps in memory, so that the pass after the next need not read them again."""

from collections import OrderedDict
from typing import Any

USUAL_MEMORY = 2**30  # bytes


class BlockMemory:
    """What was kept last, of together at most `limit` bytes. It stays in its process: sent elsewhere, it is empty."""

    def __init__(self, limit: int = USUAL_MEMORY) -> None:
        self.limit, self._kept = limit, OrderedDict[int, tuple[Any, int]]()

    def __reduce__(self) -> tuple[Any, ...]:
        return BlockMemory, (self.limit,)

    def get(self, k: int) -> Any:
        """What is kept of a block, or None."""
        if k not in self._kept:
            return None
        self._kept.move_to_end(k)
        return self._kept[k][0]

    def keep(self, k: int, block: Any, size: int) -> None:
        """Keep a block of so many bytes, and no longer what was not used for longest, if it is too much."""
        self._kept.pop(k, None)
        self._kept[k] = block, size
        while self._kept and sum(size for _, size in self._kept.values()) > self.limit:
            self._kept.popitem(last=False)

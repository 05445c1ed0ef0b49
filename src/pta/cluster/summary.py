"""What the first pass keeps of a block."""

from dataclasses import dataclass

from torch import Tensor

from pta.adapters.adapter import Adapter
from pta.adapters.wpta import Sums
from pta.cluster.block import Block
from pta.engines.segment import Segment
from pta.engines.touches import Touches

State = dict[str, Tensor]
"""The state of an adapter by name, as `Adapter.state` gives it and `Snapshot` holds it."""


@dataclass(frozen=True)
class Summary:
    """What a block teaches, and what the second pass needs beside its features."""

    start: int  # number of its first sample
    count: int  # of numbers
    learned: int  # samples that have features
    segment: Segment | None = None  # pta; None if no sample has features
    touches: Touches | None = None  # pta, of all rows; None if the rule has too many to be kept: they are found again
    sums: tuple[Sums, ...] = ()  # wpta: until the last refresh within the block, and since

    def to_bytes(self) -> bytes:
        """A safetensors file."""
        raise NotImplementedError

    @classmethod
    def of_bytes(cls, content: bytes) -> "Summary":
        """What `to_bytes` gave; anything that `summarise_block` could not have made is refused (StateMismatch)."""
        raise NotImplementedError


def summarise_block(adapter: Adapter, block: Block, failed_before: int = 0) -> Summary:
    """What a block teaches; so many samples with smaller numbers have no features (only wpta needs to know)."""
    raise NotImplementedError


def require_summable(adapter: Adapter) -> None:
    """Refuse a method that has no summary: its streams run in parallel by key (`--by`) only."""
    raise NotImplementedError

"""The scan: what was learned before each block, from summaries alone and in float64."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from pta.adapters.adapter import Adapter
from pta.cluster.summary import State, Summary

GROUP = 256  # beyond so many blocks the scan has two levels


@dataclass(frozen=True)
class Before:
    """What was learned before a block."""

    position: int  # samples learned
    tensors: dict[str, Tensor]  # float64; P (and the un-normalised R where it is linear), or sums

    def to_bytes(self) -> bytes:
        """A safetensors file."""
        raise NotImplementedError

    @classmethod
    def of_bytes(cls, content: bytes) -> "Before":
        """What `to_bytes` gave."""
        raise NotImplementedError


def start_of(adapter: Adapter) -> Before:
    """What the adapter has learned: it is as it is to be at the first sample."""
    raise NotImplementedError


def scan(adapter: Adapter, before: Before, summaries: Sequence[Summary]) -> list[Before]:
    """What was learned before each block and after the last: one more than there are summaries, in order of numbers."""
    raise NotImplementedError


def across(adapter: Adapter, summaries: Sequence[Summary]) -> Summary:
    """One summary of consecutive blocks, for the upper level of a scan: it has no touches."""
    raise NotImplementedError


def boundary(adapter: Adapter, before: Before, previous: tuple[Before, Summary] | None) -> State:
    """The state at the start of a block; `previous` is the block before it with what was learned before that."""
    raise NotImplementedError

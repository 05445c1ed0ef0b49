"""Verify where blocks meet, and repair the classes that differ."""

from dataclasses import dataclass

from torch import Tensor

from pta.adapters.adapter import Adapter
from pta.cluster.block import Block
from pta.cluster.summary import State, Summary

EPSILON = 1e-6


@dataclass(frozen=True)
class Repaired:
    """A block whose start has moved for some classes."""

    start: State
    end: State
    rows: int  # the first so many answers may differ: `replay_block(…, rows=rows)` from the new start gives them


def mismatches(end: State, start: State, epsilon: float = EPSILON) -> Tensor:
    """The classes (int64, ascending) whose R at the end of a block is not the R that the next block started from."""
    raise NotImplementedError


def repair_block(
    adapter: Adapter, block: Block, summary: Summary, start: State, end: State, before: State, epsilon: float = EPSILON
) -> Repaired:
    """Follow the classes of `mismatches(before, start, epsilon)` from their R in `before`, the end of the block before.

    Only they are followed, until they are within ε of where they were, or to the end.
    """
    raise NotImplementedError

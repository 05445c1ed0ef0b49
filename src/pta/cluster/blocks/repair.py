"""Verify where blocks meet, and repair the classes that differ.

Of the tolerance ε one half is for where two blocks meet and the other for where a repair ends. So a block that starts
within e of the stream's R hands on one that is within κ·e + ε. A block that is repaired again is compared with the path
that its end is of, not with the last repair, so that halves do not add up.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pta.cluster.blocks.block import Block
from pta.cluster.blocks.prototype_blocks import in_parts
from pta.cluster.blocks.summary import BlockSummary, State
from pta.engines.pta.advance import advance
from pta.engines.pta.rule import Prototypes
from pta.engines.pta.touches import Touches
from pta.methods.adapter import Adapter
from pta.methods.pta import PTA

EPSILON = 1e-6
_OF_R = ("anchored", "length", "resting")


@dataclass(frozen=True)
class Repaired:
    """A block whose start has moved for some classes."""

    start: State
    path: State  # the start that `end` was computed from: this one, or the former if both agree from some sample on
    end: State
    rows: int  # how many of the first answers may differ: `replay_block(…, rows=rows)` from the new start gives them


def mismatches(end: State, start: State, epsilon: float = EPSILON) -> Tensor:
    """The classes (ascending) whose R at the end of a block is not the R that the next block started from."""
    if "anchored" not in start:
        return torch.zeros(0, dtype=torch.int64)  # sums have no R
    return torch.nonzero(apart(end, start) > epsilon / 2)[:, 0].cpu()


def apart(one: State, other: State) -> Tensor:
    """How far the R of two states are from each other in each class, C, float64; in length as well, if it matters."""
    distance = torch.linalg.vector_norm(one["anchored"] - other["anchored"], dim=1, dtype=torch.float64)
    longest = torch.maximum(one["length"], other["length"]).clamp_min(torch.finfo(torch.float64).tiny)
    return distance.maximum((one["length"] - other["length"]).abs() / longest)


@torch.no_grad()
def repair_block(
    adapter: Adapter,
    block: Block,
    summary: BlockSummary,
    path: State,
    end: State,
    before: State,
    epsilon: float = EPSILON,
) -> Repaired:
    """Follow the classes of `mismatches(before, path, epsilon)` from their R in `before`, the end of the block before.

    Only they are followed, until they are within ε/2 of the path that led from `path` to `end`, or to the last sample.
    """
    assert isinstance(adapter, PTA)  # others have no R that could differ
    classes = mismatches(before, path, epsilon)
    moved = _with_rows(path, before, classes, classes)
    was, now = (
        {name: moved_or_not[name][classes] for name in vars(adapter.prototypes)} for moved_or_not in (path, moved)
    )
    both = Prototypes(**{name: torch.cat([was[name], now[name]]) for name in was})
    anchors, halves = adapter.classifier.anchors, (slice(0, len(classes)), slice(len(classes), None))
    learned = block.learned
    for last, features, touches in in_parts(adapter, learned, summary):
        advance(both, anchors[classes].repeat(2, 1), features, _twice(touches, classes.numpy()), adapter.rule)
        was, now = ({name: rows[half] for name, rows in vars(both).items()} for half in halves)
        if bool((apart(was, now) <= epsilon / 2).all()):
            return Repaired(moved, path, end, int(torch.searchsorted(block.numbers, learned.numbers[last - 1])) + 1)
    return Repaired(moved, moved, _with_rows(end, now, classes, torch.arange(len(classes))), len(block))


def _with_rows(state: State, source: State, rows: Tensor, of_source: Tensor) -> State:
    """The state with the R of some classes from another."""
    return {
        name: tensor.index_copy(0, rows, source[name][of_source]) if name in _OF_R else tensor
        for name, tensor in state.items()
    }


def _twice(touches: Touches, classes: np.ndarray) -> Touches:
    """The touches of some classes, numbered anew, and the same once more for as many further classes."""
    chosen = touches.only(np.isin(touches.classes, classes))
    number = np.searchsorted(classes, chosen.classes)
    samples, probabilities = (np.concatenate([part, part]) for part in (chosen.samples, chosen.probabilities))
    return Touches(samples, np.concatenate([number, number + len(classes)]), probabilities, touches.count)

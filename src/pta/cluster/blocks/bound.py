"""How far R can be from the stream's at the start of each block: e(k+1) ≤ κ(k)·e(k) + ε."""

from collections.abc import Sequence

import torch
from torch import Tensor

from pta.cluster.blocks.block import Block
from pta.cluster.blocks.prototype_blocks import in_parts
from pta.cluster.blocks.repair import EPSILON
from pta.cluster.blocks.replay import at_state
from pta.cluster.blocks.summary import BlockSummary, State
from pta.engines.pta.chunk import contraction_by_chunk
from pta.methods.pta import PTA


@torch.no_grad()
def contraction(adapter: PTA, block: Block, summary: BlockSummary, start: State) -> Tensor:
    """κ of a block, C, float64: the product of w/‖w·R+(1−w)·P‖ over its samples.

    It is zero where R at the start of every block follows from the scan alone: with a fixed anchor, without
    renormalising, and at w = 0.
    """
    rule, anchors = adapter.rule, adapter.classifier.anchors
    share = torch.ones(len(anchors), dtype=torch.float64)
    if rule.w == 0 or rule.anchor == "fixed" or not rule.renormalise:
        return share * 0
    there = at_state(adapter, start)
    for _, features, touches in in_parts(there, block.learned, summary):
        share *= contraction_by_chunk(there.prototypes, anchors, features, touches, rule)
    return share


def error_bounds(contractions: Sequence[Tensor], touched: Sequence[Tensor], epsilon: float = EPSILON) -> list[Tensor]:
    """e at the start of each block and after the last, C each, from κ of every block and from what was touched by then.

    A class that was never touched has its first R. The first block starts from the state that was given.
    """
    bounds = [torch.zeros_like(contractions[0])]
    for kappa, known in zip(contractions, touched, strict=True):
        bounds.append(torch.where(known, kappa * bounds[-1] + epsilon, 0.0).clamp_max(2.0))
    return bounds

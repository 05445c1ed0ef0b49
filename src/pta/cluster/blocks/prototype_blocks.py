"""PTA in blocks: P follows from affine maps; R from a map of its own or, if it has none, from the tail before."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from pta.cluster.blocks.block import AT_ONCE, Block
from pta.cluster.blocks.summary import BlockGroup, BlockSummary, Part, State
from pta.core.samples import Samples
from pta.engines.pta.advance import advance
from pta.engines.pta.rule import Prototypes, Rule
from pta.engines.pta.touches import Touches
from pta.engines.segments.affine import AffineMap, AnchoredMap, unit
from pta.engines.segments.segment import Segment
from pta.methods.pta import PTA

_MOST_TOUCHES = 16  # per sample, that are kept for the second pass


@dataclass(frozen=True)
class Knowledge:
    """What was learned before a block, in float64."""

    position: int  # samples learned
    knowledge: Tensor  # P, C×d
    touched: Tensor  # C flags
    unscaled: Tensor | None  # length·R, C×d, where it is linear


class PrototypeBlocks:
    """The blocks of a stream that begins where the adapter is."""

    def __init__(self, adapter: PTA) -> None:
        self.adapter, self.rule, self.anchors = adapter, adapter.rule, adapter.classifier.anchors
        self.fingerprint = adapter.classifier.fingerprint

    def summarise(self, block: Block, _: int) -> BlockSummary:
        """What a block teaches; if many classes may learn from one sample, touches are not kept but found again."""
        counts = block.start, block.count, len(block)
        if not len(block):
            return BlockSummary(*counts)
        about = self.rule, len(self.anchors), self.fingerprint
        parts = [part.to(self.anchors) for part in Samples.unchecked(block.features).batches(AT_ONCE)]
        ends = [(first, first + AT_ONCE) for first in range(0, len(block), AT_ONCE)]
        known = ((block.labels_of(*rows), block.logits_of(*rows)) for rows in ends)
        found = (self.adapter.touches(part, *one) for part, one in zip(parts, known, strict=True))
        if self.rule.threshold * _MOST_TOUCHES < 1:
            segments = (Segment.of(part.features, touches, *about) for part, touches in zip(parts, found, strict=True))
            return BlockSummary(*counts, reduce(Segment.followed_by, segments))
        touches = Touches.joined(list(found))
        return BlockSummary(*counts, Segment.of(block.features.to(self.anchors), touches, *about), touches)

    def start(self) -> Knowledge:
        """What the adapter has learned."""
        own = self.adapter.prototypes
        unscaled = own.length[:, None] * own.anchored.double() if self.rule.fades_linearly else None
        return Knowledge(self.adapter.position, own.knowledge.double(), own.touched.clone(), unscaled)

    def after(self, before: Knowledge, part: Part) -> Knowledge:
        """What is learned after one more block, or group of blocks."""
        if isinstance(part, BlockSummary) and part.segment:
            part.segment.require_for(self.rule, self.fingerprint, tuple(self.anchors.shape), self.anchors.dtype)
        return _after(before, part.maps, self.rule)

    def across(self, parts: Sequence[BlockSummary]) -> BlockGroup:
        """What consecutive blocks teach together, as one map in float64; its spread, which the scan ignores, is 0."""
        classes = len(self.anchors)
        nothing, everyone = torch.zeros_like(self.anchors, dtype=torch.float64), torch.arange(classes)
        linear = self.rule.fades_linearly
        learned = Knowledge(0, nothing, torch.zeros(classes, dtype=torch.bool), nothing if linear else None)
        log_decay, share = nothing.new_zeros(classes), nothing.new_zeros(classes)
        for change in (change for part in parts for change in part.maps):
            learned = _after(learned, [change], self.rule)
            wide = change.for_classes(everyone, self.rule)
            if wide.anchored:
                share = self.rule.w**change.count * share + wide.anchored.from_knowledge * log_decay.exp()
            log_decay = log_decay + wide.log_decay
        anchored = None if learned.unscaled is None else AnchoredMap(share, learned.unscaled)
        spread = nothing.new_zeros(classes)
        return BlockGroup([AffineMap(learned.position, everyone, log_decay, learned.knowledge, spread, anchored)])

    def state_at(self, before: Knowledge, previous: tuple[Knowledge, BlockSummary]) -> State:
        """The state at the start of a block that is not the first."""
        own, w = self.adapter.prototypes, self.rule.w
        first_R, length, touched = own.anchored.double(), own.length.clone(), before.touched.clone()
        resting = torch.ones_like(touched)
        if before.unscaled is not None:
            length, resting = torch.linalg.vector_norm(before.unscaled, dim=1), ~touched
            R = torch.where(touched[:, None], unit(before.unscaled, first_R), first_R)
        elif self.rule.anchor == "fixed":
            mixed = w * self.anchors.double() + (1 - w) * before.knowledge
            R = torch.where(touched[:, None], unit(mixed, first_R), first_R)
        else:
            replayed = self._replayed_tail(*previous)
            R, resting = replayed.anchored, replayed.resting
        state = Prototypes(before.knowledge.to(own.knowledge), R.to(own.anchored), length, touched, resting)
        return {**vars(state), "seen": torch.full_like(self.adapter.seen, before.position)}

    def _replayed_tail(self, before: Knowledge, block: BlockSummary) -> Prototypes:
        """The prototypes after a block, if R was P/‖P‖ before its tail: it was close to that, and forgets the rest."""
        own, segment = self.adapter.prototypes, block.segment
        before = _after(before, block.maps[:1], self.rule)
        first_R = own.anchored.double()
        R = unit(before.knowledge, first_R) if self.rule.w < 1 else first_R
        flags = before.touched.clone(), torch.ones_like(before.touched)
        prototypes = Prototypes(before.knowledge.to(own.knowledge), R.to(own.anchored), own.length.clone(), *flags)
        if segment is not None:
            advance(prototypes, self.anchors, segment.tail.to(self.anchors), segment.touches, self.rule)
        return prototypes


def in_parts(adapter: PTA, block: Block, summary: BlockSummary) -> Iterator[tuple[int, Tensor, Touches]]:
    """The samples that a block teaches, some at a time: how many so far, their features and their touches."""
    for first in range(0, len(block), AT_ONCE):
        last = min(first + AT_ONCE, len(block))
        samples = Samples.unchecked(block.features[first:last]).to(adapter.classifier.anchors)
        if summary.touches is None:
            touches = adapter.touches(samples, block.labels_of(first, last))
        else:
            touches = summary.touches.between(first, last)
        yield last, samples.features, touches


def _after(before: Knowledge, changes: Iterable[AffineMap], rule: Rule) -> Knowledge:
    position, P, touched, U = before.position, before.knowledge, before.touched.clone(), before.unscaled
    for change in changes:
        touched[change.classes[change.log_decay < 0]] = True
        if U is not None:
            wide = change.for_classes(torch.arange(len(P)), rule).anchored
            assert wide is not None  # a segment is refused without it
            U = rule.w**change.count * U + wide.from_knowledge[:, None] * P + wide.offset
        decay, offset = change.log_decay.exp(), change.offset.double()
        if P is before.knowledge:
            everyone = torch.ones(len(P), dtype=P.dtype).index_copy_(0, change.classes, decay)
            P = (P * everyone[:, None]).index_add_(0, change.classes, offset)
        else:  # a tail, of few classes
            P.index_copy_(0, change.classes, torch.addcmul(offset, P[change.classes], decay[:, None]))
        position += change.count
    return Knowledge(position, P, touched, U)

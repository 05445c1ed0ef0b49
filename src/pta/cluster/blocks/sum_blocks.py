"""WPTA in blocks: sums add. Centre and metric are those of the last refresh, so the sums of that moment are kept."""

from collections.abc import Sequence
from dataclasses import dataclass

from pta.cluster.blocks.block import Block
from pta.cluster.blocks.summary import BlockGroup, BlockSummary, Part, State
from pta.core.samples import Samples
from pta.methods.wpta import WPTA, Sums


@dataclass(frozen=True)
class Totals:
    """What was learned before a block."""

    sums: Sums
    refreshed: Sums | None  # at the last refresh; None if it was before the stream began: centre and metric still hold


class SumBlocks:
    """The blocks of a stream that begins where the adapter is."""

    def __init__(self, adapter: WPTA) -> None:
        self.adapter, self.fresh = adapter, adapter.clone()
        self.fresh.reset()

    def summarise(self, block: Block, failed_before: int) -> BlockSummary:
        """What a block teaches until the last refresh within it, and after that."""
        position = self.adapter.position + block.start - failed_before
        due, refresh = 0, self.adapter.refreshes.next(position)
        while refresh <= position + len(block):
            due, refresh = refresh - position, self.adapter.refreshes.next(refresh)
        samples = Samples.unchecked(block.features)
        first, then = (
            self.fresh.summarise(samples[begin:end], block.labels_of(begin, end)) if begin < end else self.fresh.learned
            for begin, end in ((0, due), (due, len(block)))
        )
        return BlockSummary(block.start, block.count, len(block), sums=(first, then))

    def start(self) -> Totals:
        """What the adapter has learned."""
        return Totals(self.adapter.learned, None)

    def after(self, before: Totals, part: Part) -> Totals:
        """What is learned after one more block, or group of blocks."""
        assert part.sums is not None
        until_refresh, since = part.sums
        if not until_refresh.count:
            return Totals(before.sums + since, before.refreshed)
        refreshed = before.sums + until_refresh
        return Totals(refreshed + since, refreshed)

    def across(self, parts: Sequence[BlockSummary]) -> BlockGroup:
        """What consecutive blocks teach together."""
        nothing = self.fresh.learned
        until_refresh, since = nothing, nothing
        for part in parts:
            assert part.sums is not None
            first, then = part.sums
            if first.count:
                until_refresh, since = until_refresh + since + first, nothing
            since = since + then
        return BlockGroup(sums=(until_refresh, since))

    def state_at(self, before: Totals, _: object) -> State:
        """The state at the start of a block that is not the first."""
        there = self.adapter.clone()
        there.take(before.sums, before.refreshed)
        return there.state()

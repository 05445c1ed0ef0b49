"""All passes in one process, or in a few on one machine: what a cluster must equal."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from pta.cluster.blocks.block import Block, require_whole_stream
from pta.cluster.blocks.prototype_blocks import Knowledge
from pta.cluster.blocks.repair import EPSILON, mismatches, repair_block
from pta.cluster.blocks.replay import Answers, replay_block
from pta.cluster.blocks.scanning import (
    GROUP,
    Before,
    across,
    boundary,
    require_summable,
    scan,
    start_of,
    summarise_block,
)
from pta.cluster.blocks.summary import State, Summary
from pta.errors import InvalidSamples
from pta.methods.adapter import Adapter

Each = Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]], Sequence[Any]]
"""Calls a function with each of several arguments, in parallel or not, and gives the results in their order."""

_USUAL_ROUNDS = 4


@dataclass(frozen=True)
class Run:
    """What all passes gave."""

    answers: list[Answers]  # by block
    summaries: list[Summary]
    starts: list[State]  # of the blocks
    end: State  # after the last sample: P of the scan, R of the last block
    rounds: int  # of repair
    repaired: list[int]  # for each block, how many answers were computed again

    @property
    def remark(self) -> str | None:
        """What a user should know of a rule that needs many rounds."""
        return remark_on_rounds(self.rounds, len(self.answers))


def remark_on_rounds(rounds: int, blocks: int) -> str | None:
    """What a user should know of a rule that needs this number of repair rounds."""
    if rounds <= max(_USUAL_ROUNDS, blocks // 2):
        return None
    return (
        f"{rounds} rounds of repair for {blocks} blocks: with these parameters R hardly forgets, so this rule is "
        "sequential by nature; a smaller w or h, or one stream per key (--by), runs in parallel"
    )


def in_turn(function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
    """One call after the other."""
    return [function(*given) for given in arguments]


def run_blocks(adapter: Adapter, blocks: Iterable[Block], epsilon: float = EPSILON, each: Each = in_turn) -> Run:
    """Answer a stream that is given in blocks, in any order of arrival.

    Numbers that are missing or come twice are refused. The adapter is as at the start of the stream, and stays so.
    """
    require_summable(adapter)
    mismatches({}, {}, epsilon)  # refuses an epsilon that is none before any work
    ordered = sorted(blocks, key=lambda block: block.start)
    if not ordered:
        raise InvalidSamples("no samples: there is no block")
    require_whole_stream((block.start, block.count) for block in ordered)
    failed = accumulate((block.count - len(block) for block in ordered), initial=0)
    summaries = each(
        summarise_block, [(adapter, block, before) for block, before in zip(ordered, failed, strict=False)]
    )
    learned = scan_in_groups(adapter, summaries, each)
    previous = [None, *zip(learned, summaries, strict=False)]
    starts = list(each(boundary, [(adapter, *known) for known in zip(learned[:-1], previous, strict=False)]))
    work = list(zip(ordered, summaries, strict=True))
    replayed = each(replay_block, [(adapter, *work[k], starts[k]) for k in range(len(work))])
    answers, ends = [given for given, _ in replayed], [end for _, end in replayed]
    paths = starts.copy()  # that led to the ends
    rounds, repaired = 0, [0] * len(work)
    while moved := [
        k
        for k, (end, start) in enumerate(zip(ends, starts[1:], strict=False), 1)
        if len(mismatches(end, start, epsilon))
    ]:
        rounds += 1
        repairs = each(repair_block, [(adapter, *work[k], paths[k], ends[k], ends[k - 1], epsilon) for k in moved])
        for k, repair in zip(moved, repairs, strict=True):
            starts[k], paths[k], ends[k] = repair.start, repair.path, repair.end
            repaired[k] = max(repaired[k], repair.rows)
    moved = [k for k, rows in enumerate(repaired) if rows]
    again = each(replay_block, [(adapter, *work[k], starts[k], repaired[k]) for k in moved])
    for k, (given, _) in zip(moved, again, strict=True):
        answers[k] = answers[k].starting_with(given)
    return Run(answers, list(summaries), starts, end_state(learned[-1], ends[-1]), rounds, repaired)


def scan_in_groups(adapter: Adapter, summaries: Sequence[Summary], each: Each = in_turn) -> list[Before]:
    """`scan` from the start of the stream, in two levels if there are many blocks."""
    if len(summaries) <= GROUP:
        return scan(adapter, start_of(adapter), summaries)
    groups = [summaries[first : first + GROUP] for first in range(0, len(summaries), GROUP)]
    upper = scan(adapter, start_of(adapter), each(across, [(adapter, group) for group in groups]))
    lower = each(scan, [(adapter, before, group) for before, group in zip(upper, groups, strict=False)])
    return [*(before for part in lower for before in part[:-1]), upper[-1]]


def end_state(learned: Before, end: State) -> State:
    """The state after the stream: R of the last block, and P of the scan, which is exact."""
    return {**end, "knowledge": learned.knowledge.to(end["knowledge"])} if isinstance(learned, Knowledge) else end

"""The loop over all blocks of a stream: summarise, scan, replay, then verify and repair until all ends meet.

The work is cut into tasks for a pool: this process, or workers elsewhere. A task begins as soon as what it needs is
there. What tasks find is kept by `BlockWork`, in memory or in files. A task that finds its result there does nothing,
so it may run twice, anywhere and in any order, and the same call resumes after a kill.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf
from typing import Any, Protocol

from pta.cluster.blocks.block import Block, in_blocks, require_whole_stream
from pta.cluster.blocks.prototype_blocks import Knowledge
from pta.cluster.blocks.repair import EPSILON, mismatches, repair_block
from pta.cluster.blocks.replay import BlockAnswers, replay_block
from pta.cluster.blocks.scanning import GROUP, Before, across, boundary, scan, start_of, summarise_block
from pta.cluster.blocks.summary import BlockGroup, BlockSummary, State
from pta.cluster.blocks.tasks import OnPhase, Pool, Task, ThisProcess, no_progress
from pta.core.parameters import require_number
from pta.errors import InvalidSamples
from pta.methods.adapter import Adapter

SUMMARIES, BEFORE, _ANSWERS = "summaries", "before", "answers"
_USUAL_ROUNDS = 4


@dataclass(frozen=True)
class Round:
    """The states at both ends of a block after its replay or a repair."""

    start: State
    end: State
    rows: int = 0  # of a repair: how many of the first answers may differ
    path: int = 0  # the round whose start led to the end


class BlockWork(Protocol):
    """The blocks of a stream, and what the passes find."""

    @property
    def adapter(self) -> Adapter:
        """The method, as at the first sample."""

    @property
    def epsilon(self) -> float:
        """How far R may be off where two blocks meet."""

    def block(self, k: int) -> Block:
        """The features of a block."""

    def scored(self, k: int) -> Block:
        """The same with zero-shot logits, if they can be kept until the block is replayed."""

    def has(self, part: str, k: int) -> bool:
        """Whether a part of what is known about a block was found."""

    def get(self, part: str, k: int) -> Any:
        """What was found: a summary, what was learned before the block, or a round."""

    def put(self, part: str, k: int, found: Any) -> None:
        """Keep it."""

    def answered(self, k: int, version: int | None = None) -> Any:
        """What `answer` gave for a block, if that was done (for these states)."""

    def answer(self, k: int, answers: BlockAnswers, version: int) -> Any:
        """Keep the answers to a block from its states after this round."""

    def answers(self, k: int) -> BlockAnswers:
        """The answers that are kept."""


@dataclass(frozen=True)
class Passed:
    """What all passes gave."""

    answers: list[Any]  # by block, what `BlockWork.answer` gave
    end: State  # after the last sample: P of the scan, R of the last block
    rounds: int  # of repair
    repaired: list[int]  # for each block, how many answers were computed again
    versions: list[int]  # for each block, the round of its last states

    @property
    def remark(self) -> str | None:
        """What a user should know of a rule that needs many rounds."""
        blocks = len(self.answers)
        if self.rounds <= max(_USUAL_ROUNDS, blocks // 2):
            return None
        return (
            f"{self.rounds} rounds of repair for {blocks} blocks: with these parameters R hardly forgets, so this rule "
            "is sequential by nature; a smaller w or h, or one stream per key (--by), runs in parallel"
        )


def run_passes(work: BlockWork, pool: Pool, failed: Sequence[int], told: OnPhase = no_progress) -> Passed:
    """Answer one stream; `failed` samples of each block are not learned: they could not be read, or are not to be."""
    count = len(failed)
    first = FirstPasses(work, count, told)
    pool.each([Task(_summarise, given) for given in enumerate(accumulate(failed[:-1], initial=0))], work, then=first)
    moved, rounds = first.moved, 0
    version, path, rows = [0] * count, [0] * count, [0] * count
    while moved:
        rounds += 1
        for k, (more, of_end) in moved.items():
            version[k], path[k], rows[k] = rounds, of_end, max(rows[k], more)
        suspects = [k + 1 for k in sorted(moved) if k + 1 < count]
        tasks = [Task(_repair, (k, rounds + 1, version[k], path[k], version[k - 1])) for k in suspects]
        found = pool.each(tasks, work, told(f"verification, round {rounds + 1}", len(tasks)))
        moved = {k: more for k, more in zip(suspects, found, strict=True) if more is not None}
    answers, repaired = first.answers, [k for k in range(count) if rows[k]]
    if repaired:
        again = [Task(_answer, (k, version[k], rows[k])) for k in repaired]
        answers |= zip(repaired, pool.each(again, work, told("labels", len(again))), strict=True)
    end = work.get(_round(version[-1]), count - 1).end
    if isinstance(first.after, Knowledge):
        end = {**end, "knowledge": first.after.knowledge.to(end["knowledge"])}  # which is exact
    return Passed([answers[k] for k in range(count)], end, rounds, rows, version)


class FirstPasses:
    """What can begin after each task: a block is scanned once all before it are summarised, and replayed once scanned.

    It is verified once the block before is replayed. With many blocks the scan has two levels: groups are composed, and
    a group is scanned from what all groups before it teach together. So what is added to what never depends on time.
    """

    def __init__(self, work: BlockWork, count: int, told: OnPhase = no_progress) -> None:
        self.answers: dict[int, Any] = {}
        self.moved: dict[int, tuple[int, int]] = {}  # by the first verification: the rows and the path
        self.after: Before | None = None  # what was learned after the last block
        self._work, self._count, self._size = work, count, GROUP
        self._summarised: set[int] = set()
        self._groups = in_blocks(count, GROUP)
        self._scanned = {group: group.start for group in self._groups}
        self._being_scanned: set[range] = set()
        self._before: list[Before | None] = [None]  # of groups; the first begins where the adapter is
        self._composed: dict[range, BlockGroup] = {}
        self._told = [told(what, count) for what in ("summaries", "answers")]

    def __call__(self, task: Task, result: Any) -> Iterator[Task]:
        """The tasks that can begin after one."""
        block = task.arguments[0]
        if task.function is _scan:
            group = self._group(block.start)
            self._being_scanned.remove(group)
            self._scanned[group] = block.stop
            self.after = result or self.after  # groups end in any order
            yield from self._scan(group)
            for k in block:
                yield Task(_replay, (k,))
        elif task.function is _across:
            self._composed[block] = result
            yield from self._chain()
        elif task.function is _summarise:
            self._summarised.add(block)
            self._told[0](len(self._summarised))
            group = self._group(block)
            yield from self._scan(group)
            if group.stop < self._count and self._summarised.issuperset(group):
                yield Task(_across, (group,))
        elif task.function is _replay:
            self.answers[block] = result
            self._told[1](len(self.answers))
            for k in (block, block + 1):
                if k in self.answers and k - 1 in self.answers:
                    yield Task(_repair, (k, 1, 0, 0, 0))
        elif result is not None:
            self.moved[block] = result

    def _group(self, k: int) -> range:
        return self._groups[k // self._size]

    def _scan(self, group: range) -> Iterator[Task]:
        """Scan as many blocks of a group as follow without a gap; one such task at a time."""
        number, first = group.start // self._size, self._scanned[group]
        last = first
        while last < group.stop and last in self._summarised:
            last += 1
        if last > first and number < len(self._before) and group not in self._being_scanned:
            self._being_scanned.add(group)
            yield Task(_scan, (range(first, last), group, self._before[number], last == self._count))

    def _chain(self) -> Iterator[Task]:
        """Scan the groups before which all are composed."""
        while (group := self._groups[len(self._before) - 1]) in self._composed:
            before = self._before[-1] or start_of(self._work.adapter)
            self._before.append(scan(self._work.adapter, before, [self._composed.pop(group)])[-1])
            yield from self._scan(self._groups[len(self._before) - 1])


def _round(number: int) -> str:
    return f"states-{number:04d}"


def _summarise(work: BlockWork, k: int, failed_before: int) -> None:
    if not work.has(SUMMARIES, k):
        work.put(SUMMARIES, k, summarise_block(work.adapter, work.scored(k), failed_before))


def _across(work: BlockWork, group: range) -> BlockGroup:
    return across(work.adapter, [work.get(SUMMARIES, k) for k in group])


def _scan(work: BlockWork, blocks: range, group: range, before: Before | None, is_last: bool) -> Before | None:
    """Keep what was learned before each of some blocks of a group, and before the one that follows in the group.

    `before` is what was learned before the group. Gives what was learned after the last block of all.
    """
    if blocks.start > group.start:
        before = work.get(BEFORE, blocks.start)
    learned = scan(work.adapter, before or start_of(work.adapter), [work.get(SUMMARIES, k) for k in blocks])
    for k, one in enumerate(learned, blocks.start):
        if k < group.stop and (k > blocks.start or k == group.start):
            work.put(BEFORE, k, one)
    return learned[-1] if is_last else None


def _replay(work: BlockWork, k: int) -> Any:
    if work.has(_round(0), k) and (done := work.answered(k)) is not None:
        return done
    previous = (work.get(BEFORE, k - 1), work.get(SUMMARIES, k - 1)) if k else None
    start = boundary(work.adapter, work.get(BEFORE, k), previous)
    answers, end = replay_block(work.adapter, work.block(k), work.get(SUMMARIES, k), start)
    done = work.answer(k, answers, 0)
    work.put(_round(0), k, Round(start, end))
    return done


def _repair(
    work: BlockWork, k: int, number: int, version: int, path: int, version_before: int
) -> tuple[int, int] | None:
    """Compare a block's start with the end of the block before, each after its last round, and repair it.

    How many of the first answers may differ, and the round whose start leads to the end; None if both agree.
    """
    if work.has(_round(number), k):
        done = work.get(_round(number), k)
        return done.rows, done.path
    before, own = work.get(_round(version_before), k - 1).end, work.get(_round(version), k)
    if not len(mismatches(before, own.start, work.epsilon)):
        return None
    former = work.get(_round(path), k).start
    found = repair_block(work.adapter, work.block(k), work.get(SUMMARIES, k), former, own.end, before, work.epsilon)
    path = path if found.path is former else number
    work.put(_round(number), k, Round(found.start, found.end, found.rows, path))
    return found.rows, path


def _answer(work: BlockWork, k: int, version: int, rows: int) -> Any:
    """Keep the answers again, of which the first `rows` are those of the repaired start."""
    if (done := work.answered(k, version)) is not None:
        return done
    start = work.get(_round(version), k).start
    again = replay_block(work.adapter, work.block(k), work.get(SUMMARIES, k), start, rows)[0]
    return work.answer(k, work.answers(k).starting_with(again), version)


@dataclass(frozen=True)
class BlocksInMemory:
    """Blocks and findings of this process."""

    adapter: Adapter
    blocks: Sequence[Block]
    epsilon: float = EPSILON
    found: dict[tuple[str, int], Any] = field(default_factory=dict)

    def block(self, k: int) -> Block:
        """A block."""
        return self.blocks[k]

    scored = block

    def has(self, part: str, k: int) -> bool:
        """Whether it was found."""
        return (part, k) in self.found

    def get(self, part: str, k: int) -> Any:
        """What was found."""
        return self.found[part, k]

    def put(self, part: str, k: int, found: Any) -> None:
        """Keep it."""
        self.found[part, k] = found

    def answered(self, k: int, version: int | None = None) -> None:
        """Nothing is answered twice."""

    def answer(self, k: int, answers: BlockAnswers, version: int) -> BlockAnswers:
        """The answers themselves."""
        self.put(_ANSWERS, k, answers)
        return answers

    def answers(self, k: int) -> BlockAnswers:
        """The answers that are kept."""
        return self.get(_ANSWERS, k)


@dataclass(frozen=True)
class BlockRun(Passed):
    """The same of a stream whose blocks are in memory."""

    summaries: list[BlockSummary]
    starts: list[State]  # of the blocks


def run_blocks(adapter: Adapter, blocks: Iterable[Block], epsilon: float = EPSILON) -> BlockRun:
    """Answer a stream that is given in blocks, in any order of arrival.

    Numbers that are missing or come twice are refused. The adapter is as at the start of the stream, and stays so.
    """
    epsilon = require_number("epsilon", epsilon, 0.0, inf)
    ordered = sorted(blocks, key=lambda block: block.start)
    if not ordered:
        raise InvalidSamples("no samples: there is no block")
    require_whole_stream((block.start, block.count) for block in ordered)
    work = BlocksInMemory(adapter, ordered, epsilon)
    passed = run_passes(work, ThisProcess(), [block.count - len(block.learned) for block in ordered])
    summaries = [work.get(SUMMARIES, k) for k in range(len(ordered))]
    starts = [work.get(_round(version), k).start for k, version in enumerate(passed.versions)]
    return BlockRun(**vars(passed), summaries=summaries, starts=starts)

"""The loop over all blocks of a stream: summarise, scan, replay, then verify and repair until all ends meet.

Each pass is a list of tasks for a pool: this process, or workers elsewhere. What tasks find is kept by `BlockWork`, in
memory or in files. A task that finds its result there does nothing, so it may run twice, anywhere and in any order, and
the same call resumes after a kill.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf
from typing import Any, Protocol, TypeVar

from pta.cluster.blocks.block import Block, require_whole_stream
from pta.cluster.blocks.prototype_blocks import Knowledge
from pta.cluster.blocks.repair import EPSILON, mismatches, repair_block
from pta.cluster.blocks.replay import BlockAnswers, replay_block
from pta.cluster.blocks.scanning import (
    GROUP,
    Before,
    across,
    boundary,
    scan,
    start_of,
    summarise_block,
)
from pta.cluster.blocks.summary import BlockGroup, BlockSummary, State
from pta.core.parameters import require_number
from pta.errors import InvalidSamples
from pta.methods.adapter import Adapter

Shared = TypeVar("Shared")
Result = TypeVar("Result")
OnProgress = Callable[[int], None]
"""How many tasks are done, after each and now and then between."""
OnPhase = Callable[[str, int], OnProgress]
"""OnProgress what begins and of how many tasks it consists."""

SUMMARIES, BEFORE = "summaries", "before"
_USUAL_ROUNDS = 4


def no_progress(what: str, count: int) -> OnProgress:
    """Tell nobody."""
    return lambda done: None


class Pool(Protocol):
    """Where tasks run."""

    @property
    def workers(self) -> int:
        """How many tasks can run at once."""

    def each(
        self, tasks: Sequence[Callable[[Shared], Result]], shared: Shared, told: OnProgress = lambda done: None
    ) -> list[Result]:
        """The results of all tasks, in the order of the tasks; each is called with what they share."""


class ThisProcess:
    """One task after another, here: what workers elsewhere must equal."""

    workers = 1

    def each(
        self, tasks: Sequence[Callable[[Shared], Result]], shared: Shared, told: OnProgress = lambda done: None
    ) -> list[Result]:
        """The results of all tasks."""
        results: list[Result] = []
        for task in tasks:
            results.append(task(shared))
            told(len(results))
        return results


@dataclass(frozen=True, repr=False)
class Task:
    """A call of a function with what all tasks share, and with arguments of its own; it can be sent elsewhere."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]

    def __call__(self, shared: Any) -> Any:
        """Do it."""
        return self.function(shared, *self.arguments)

    def __repr__(self) -> str:
        return f"{self.function.__name__}{self.arguments}"


@dataclass(frozen=True)
class Round:
    """The states at both ends of a block after its replay or a repair."""

    start: State
    end: State
    rows: int = 0  # of a repair: how many of the first answers may differ
    path: int = 0  # the round whose start led to the end
    answers: BlockAnswers | None = None  # of the replay


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

    def has(self, part: str, k: int) -> bool:
        """Whether a part of what is known about a block was found."""

    def get(self, part: str, k: int) -> Any:
        """What was found: a summary, what was learned before the block, or a round."""

    def put(self, part: str, k: int, found: Any) -> None:
        """Keep it."""

    def answered(self, k: int) -> Any:
        """What `answer` gave for a block, if that was done."""

    def answer(self, k: int, answers: BlockAnswers) -> Any:
        """Keep the final answers to a block."""


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
    all_blocks = [(k,) for k in range(count)]

    def each(what: str, function: Callable[..., Result], arguments: Sequence[tuple[Any, ...]]) -> list[Result]:
        tasks = [Task(function, given) for given in arguments]
        return pool.each(tasks, work, told(what, len(tasks)))

    each(SUMMARIES, _summarise, list(enumerate(accumulate(failed[:-1], initial=0))))
    after = scan_blocks(work, pool, count)
    each("answers", _replay, all_blocks)
    version, path, rows = [0] * count, [0] * count, [0] * count
    suspects, rounds = list(range(1, count)), 0
    while suspects:
        arguments = [(k, rounds + 1, version[k], path[k], version[k - 1]) for k in suspects]
        found = each(f"verification, round {rounds + 1}", _repair, arguments)
        moved = {k: more for k, more in zip(suspects, found, strict=True) if more is not None}
        rounds += bool(moved)
        for k, (more, of_end) in moved.items():
            version[k], path[k], rows[k] = rounds, of_end, max(rows[k], more)
        suspects = [k + 1 for k in moved if k + 1 < count]
    answers = each("labels", _answer, list(zip(range(count), version, rows, strict=True)))
    end = work.get(_round(version[-1]), count - 1).end
    if isinstance(after, Knowledge):
        end = {**end, "knowledge": after.knowledge.to(end["knowledge"])}  # which is exact
    return Passed(answers, end, rounds, rows, version)


def scan_blocks(work: BlockWork, pool: Pool, count: int) -> Before:
    """Keep what was learned before each block, and give what was learned after the last; many blocks in two levels."""
    groups = [range(first, min(first + GROUP, count)) for first in range(0, count, GROUP)]
    before = [start_of(work.adapter)]
    if len(groups) > 1:
        before = scan(work.adapter, before[0], pool.each([Task(_across, (group,)) for group in groups], work))[:-1]
    return pool.each([Task(_scan, given) for given in zip(groups, before, strict=True)], work)[-1]


def _round(number: int) -> str:
    return f"round-{number:04d}"


def _summarise(work: BlockWork, k: int, failed_before: int) -> None:
    if not work.has(SUMMARIES, k):
        work.put(SUMMARIES, k, summarise_block(work.adapter, work.block(k), failed_before))


def _across(work: BlockWork, group: range) -> BlockGroup:
    return across(work.adapter, [work.get(SUMMARIES, k) for k in group])


def _scan(work: BlockWork, group: range, before: Before) -> Before:
    *found, after = scan(work.adapter, before, [work.get(SUMMARIES, k) for k in group])
    for k, learned in zip(group, found, strict=True):
        work.put(BEFORE, k, learned)
    return after


def _replay(work: BlockWork, k: int) -> None:
    if work.has(_round(0), k):
        return
    previous = (work.get(BEFORE, k - 1), work.get(SUMMARIES, k - 1)) if k else None
    start = boundary(work.adapter, work.get(BEFORE, k), previous)
    answers, end = replay_block(work.adapter, work.block(k), work.get(SUMMARIES, k), start)
    work.put(_round(0), k, Round(start, end, answers=answers))


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
    """Keep the answers, of which the first `rows` are those of the repaired start."""
    if (done := work.answered(k)) is not None:
        return done
    answers = work.get(_round(0), k).answers
    if rows:
        start = work.get(_round(version), k).start
        answers = answers.starting_with(
            replay_block(work.adapter, work.block(k), work.get(SUMMARIES, k), start, rows)[0]
        )
    return work.answer(k, answers)


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

    def has(self, part: str, k: int) -> bool:
        """Whether it was found."""
        return (part, k) in self.found

    def get(self, part: str, k: int) -> Any:
        """What was found."""
        return self.found[part, k]

    def put(self, part: str, k: int, found: Any) -> None:
        """Keep it."""
        self.found[part, k] = found

    def answered(self, k: int) -> None:
        """Nothing is answered twice."""

    def answer(self, k: int, answers: BlockAnswers) -> BlockAnswers:
        """The answers themselves."""
        return answers


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

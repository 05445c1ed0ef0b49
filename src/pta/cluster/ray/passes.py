"""The passes over one stream as tasks: each reads blocks of files and writes one, under a name that says which.

Files are in a work folder of the run. A task whose file is there does nothing, so that a dead driver is resumed by the
same tasks. States of a repaired block are in the folder of the round that repaired it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import accumulate

from safetensors.torch import load, save
from torch import Tensor

from pta.cluster.blocks.before_file import pack_before, unpack_before
from pta.cluster.blocks.driver import end_state
from pta.cluster.blocks.repair import mismatches, repair_block
from pta.cluster.blocks.replay import Answers, replay_block
from pta.cluster.blocks.scanning import GROUP, Before, across, boundary, scan, start_of, summarise_block
from pta.cluster.blocks.summary import Group, State, Summary
from pta.cluster.ray.feature_block import FeatureBlock, block_name, read_block
from pta.cluster.ray.label_block import Labelled, Said, labelled, write_labels
from pta.cluster.ray.pool import Phases, Pool
from pta.cluster.ray.storage import Folder
from pta.methods.adapter import Adapter


@dataclass(frozen=True)
class Passes:
    """What all tasks of a run share."""

    run: str
    adapter: Adapter  # as at the first sample
    features: Folder
    features_run: str
    work: Folder
    out: Folder
    blocks: Sequence[range]
    epsilon: float

    def name(self, k: int) -> str:
        """The file of a block in each folder."""
        return block_name(self.blocks[k])

    def block(self, k: int) -> FeatureBlock:
        """The features of a block."""
        return read_block(self.features, self.blocks[k], self.features_run)

    def summary(self, k: int) -> Summary:
        """What the first pass found."""
        return Summary.of_bytes(self.work.sub("summaries").read(self.name(k)))

    def before(self, k: int) -> Before:
        """What the scan found."""
        return unpack_before(self.work.sub("before").read(self.name(k)))

    def round(self, number: int) -> Folder:
        """Where the states of a round are."""
        return self.work.sub(f"round-{number:04d}")

    def tensors(self, k: int, number: int, part: str) -> dict[str, Tensor]:
        """`start`, `end` or `answers` of a block after a round."""
        content = load(self.round(number).read(self.name(k)))
        return {
            name.removeprefix(f"{part}."): one.clone() for name, one in content.items() if name.startswith(f"{part}.")
        }


def _prefixed(part: str, tensors: State) -> State:
    return {f"{part}.{name}": tensor.contiguous() for name, tensor in tensors.items()}


@dataclass(frozen=True)
class _Summarise:
    block: int
    failed_before: int

    def __call__(self, own: Passes) -> None:
        folder, name = own.work.sub("summaries"), own.name(self.block)
        if not folder.is_whole(name):
            found = summarise_block(own.adapter, own.block(self.block).block, self.failed_before)
            folder.write(name, found.to_bytes())


@dataclass(frozen=True)
class _Across:
    group: range

    def __call__(self, own: Passes) -> Group:
        return across(own.adapter, [own.summary(k) for k in self.group])


@dataclass(frozen=True)
class _Scan:
    group: range
    before: Before

    def __call__(self, own: Passes) -> Before:
        """Write what was learned before each block; give what was learned after the last."""
        *found, after = scan(own.adapter, self.before, [own.summary(k) for k in self.group])
        for k, before in zip(self.group, found, strict=True):
            own.work.sub("before").write(own.name(k), pack_before(before))
        return after


@dataclass(frozen=True)
class _Replay:
    block: int

    def __call__(self, own: Passes) -> None:
        k, folder = self.block, own.round(0)
        if folder.is_whole(own.name(k)):
            return
        previous = None if k == 0 else (own.before(k - 1), own.summary(k - 1))
        start = boundary(own.adapter, own.before(k), previous)
        answers, end = replay_block(own.adapter, own.block(k).block, own.summary(k), start)
        parts = _prefixed("start", start) | _prefixed("end", end) | _prefixed("answers", vars(answers))
        folder.write(own.name(k), save(parts))


@dataclass(frozen=True)
class _Repair:
    """Compare a block's start with the end of the block before, each after its last round, and repair it."""

    block: int
    round: int
    version: int
    path: int  # the round whose start led to the end
    version_before: int

    def __call__(self, own: Passes) -> tuple[int, int] | None:
        """How many of the first answers may differ, and the round whose start leads to the end; None if both agree."""
        k, folder = self.block, own.round(self.round)
        if done := folder.about(own.name(k)):
            return done["rows"], done["path"]
        before, start = own.tensors(k - 1, self.version_before, "end"), own.tensors(k, self.version, "start")
        if not len(mismatches(before, start, own.epsilon)):
            return None
        end = own.tensors(k, self.version, "end")
        block, summary, former = own.block(k).block, own.summary(k), own.tensors(k, self.path, "start")
        repaired = repair_block(own.adapter, block, summary, former, end, before, own.epsilon)
        parts = _prefixed("start", repaired.start) | _prefixed("end", repaired.end)
        path = self.path if repaired.path is former else self.round
        folder.write(own.name(k), save(parts, {"about": json.dumps({"rows": repaired.rows, "path": path})}))
        return repaired.rows, path


@dataclass(frozen=True)
class _Label:
    block: int
    version: int
    rows: int  # whose answers are those of the repaired start

    def __call__(self, own: Passes) -> Labelled:
        """Write the labels."""
        k, name = self.block, block_name(own.blocks[self.block], "parquet")
        there = labelled(own.out, name, own.run)
        if there is not None:
            return there
        block, answers = own.block(k), Answers(**own.tensors(k, 0, "answers"))
        if self.rows:
            start = own.tensors(k, self.version, "start")
            renewed, _ = replay_block(own.adapter, block.block, own.summary(k), start, self.rows)
            answers = answers.starting_with(renewed)
        said = _said(answers, own.adapter.classifier.class_names)
        write_labels(own.out, name, own.run, dict(sorted(block.keys.items())), said, block.failed)
        changed = int((answers.labels != answers.zero_shot).sum())
        return Labelled(len(said), changed, block.failed)


def _said(answers: Answers, names: Sequence[str]) -> dict[int, Said]:
    columns = [getattr(answers, one.name).tolist() for one in fields(Answers)]
    return {number: (names[a], p, names[b]) for number, a, p, b in zip(*columns, strict=True)}


@dataclass(frozen=True)
class Passed:
    """What the passes gave beside the labels."""

    end: State
    rounds: int
    repaired: int  # rows whose answers were computed again
    labels: list[Labelled]  # by block


def run_passes(own: Passes, pool: Pool, failed: Sequence[int], told: Phases) -> Passed:
    """Answer one stream; `failed` samples of each block could not be read."""
    count = len(own.blocks)
    so_far = [0, *accumulate(failed)]
    pool.each([_Summarise(k, so_far[k]) for k in range(count)], own, told("summaries", count))
    after = _scan_all(own, pool)
    pool.each([_Replay(k) for k in range(count)], own, told("answers", count))
    version, path, rows = [0] * count, [0] * count, [0] * count
    suspects, rounds = list(range(1, count)), 0
    while suspects:
        tasks = [_Repair(k, rounds + 1, version[k], path[k], version[k - 1]) for k in suspects]
        found = pool.each(tasks, own, told(f"verification, round {rounds + 1}", len(tasks)))
        moved = {k: more for k, more in zip(suspects, found, strict=True) if more is not None}
        rounds += bool(moved)
        for k, (more, of_end) in moved.items():
            version[k], path[k], rows[k] = rounds, of_end, max(rows[k], more)
        suspects = [k + 1 for k in moved if k + 1 < count]
    tasks_of_labels = [_Label(k, version[k], rows[k]) for k in range(count)]
    labels = pool.each(tasks_of_labels, own, told("labels", count))
    end = own.tensors(count - 1, version[-1], "end")
    return Passed(end_state(after, end), rounds, sum(rows), labels)


def _scan_all(own: Passes, pool: Pool) -> Before:
    """Write what was learned before each block, and give what was learned after the last."""
    count = len(own.blocks)
    groups = [range(first, min(first + GROUP, count)) for first in range(0, count, GROUP)]
    before = [start_of(own.adapter)]
    if len(groups) > 1:
        before = scan(own.adapter, before[0], pool.each([_Across(group) for group in groups], own))[:-1]
    return pool.each([_Scan(group, start) for group, start in zip(groups, before, strict=True)], own)[-1]

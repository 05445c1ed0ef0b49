"""One stream in blocks against the stream itself: is it equal, what does it cost, and what would 1,000 GPUs do?

    python benchmarks/cluster.py exact                        writes results/segments-exact.csv
    python benchmarks/cluster.py costs                        writes results/cluster-costs.csv
    python benchmarks/cluster.py scaling [--processes 1 4 16] writes results/cluster-scaling.csv
    python benchmarks/cluster.py simulated                    writes results/cluster-simulated.csv from the costs

Synthetic features like CLIP's, 1,000 classes, 512 dimensions, one thread per process, plain processes without Ray.
`exact` replaces the tail of a segment by L samples. The work of `costs` is processor time.
`scaling` gives each process four blocks in files, which it has made itself. It compares the wall time of one stream
with that of independent processes: each summarises and replays its own four blocks, as if every one began the stream.
Pipes carry the names of tasks alone.
"""

import argparse
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import wait
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Self
from unittest.mock import patch

import numpy as np
import torch
from result_file import RESULTS, Row, write
from synthetic import clip_like
from torch import Tensor

from pta import PTA
from pta.cluster import (
    EPSILON,
    Block,
    BlockAnswers,
    boundary,
    cut,
    mismatches,
    replay_block,
    run_blocks,
    scan,
    start_of,
    summarise_block,
)
from pta.cluster.blocks.loop import run_passes
from pta.cluster.blocks.replay import at_state
from pta.cluster.blocks.tasks import OnProgress, OnResult, Task, TaskQueue, nothing_more, silent
from pta.cluster.ray.extraction import FeatureBlock
from pta.cluster.ray.findings import BlockMemory, StoredBlocks
from pta.cluster.ray.storage import Folder
from pta.core.samples import Samples
from pta.engines.gpu.processors import numba_is_installed
from pta.engines.pta.rule import Rule
from pta.measure.provenance import hardware

CLASSES, DIM, BLOCKS, BATCH = 1000, 512, 16, 256
EACH = 4  # blocks per process
RULES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "h = 1000": {"h": 1000.0},
    "w = 0.3": {"w": 0.3},
    "w = 0.9": {"w": 0.9},
    "h = 1000, w = 0.9": {"h": 1000.0, "w": 0.9},
    "fixed anchor": {"anchor": "fixed"},
    "not renormalised": {"renormalise": False},
}
TAILS = dict.fromkeys(("defaults", "h = 1000", "w = 0.3", "w = 0.9"), (16, 64, 256))  # one of 64 for the others


def exact(samples: int, rules: Sequence[str]) -> Iterator[Row]:
    """How far blocks are from the stream, rule by rule and tail by tail."""
    classifier, features = clip_like(CLASSES, DIM, samples)
    blocks = cut(range(samples), features, samples // BLOCKS)
    for name in rules:
        adapter = PTA(classifier, **RULES[name])
        for tail in TAILS.get(name, (64,)):
            with patch.object(Rule, "tail", tail):
                run = run_blocks(adapter, blocks)
            stream = adapter.clone()
            of_r, of_logits, changed = 0.0, 0.0, 0
            for block, start, answers in zip(blocks, run.starts, run.answers, strict=True):
                apart = start["anchored"].double() - stream.anchored.double()
                of_r = max(of_r, float(torch.linalg.vector_norm(apart, dim=1).max()))
                there = at_state(adapter, start)
                for part, label in zip(block.features.split(BATCH), answers.labels.split(BATCH), strict=True):
                    given, logits = (one.step(Samples(part)) for one in (there, stream))
                    of_logits = max(of_logits, float((given - logits).abs().max()))
                    changed += int((label != logits.argmax(dim=1)).sum())
            yield {
                "rule": name,
                "L": tail,
                "blocks": len(blocks),
                "samples": samples,
                "rounds": run.rounds,
                "rows_repaired": sum(run.repaired),
                "delta_R": f"{of_r:.1e}",
                "delta_logit": f"{of_logits:.1e}",
                "changed": changed,
                "hardware": hardware(),
            }


def costs(samples: int) -> Iterator[Row]:
    """Work of the single stream, of blocks in one process, and of each pass."""
    classifier, features = clip_like(CLASSES, DIM, samples)
    adapter, common = PTA(classifier), {"samples": samples, "classes": CLASSES}
    blocks = cut(torch.arange(samples), Samples(features), math.ceil(samples / BLOCKS))
    common |= {"blocks": len(blocks), "hardware": described()}
    replay_block(adapter, blocks[0], summarise_block(adapter, blocks[0]), adapter.state(), BATCH)  # compiles
    labels, alone = measured(single_stream, adapter, features)
    yield {"part": "single stream", **alone, "work": 1.0, "changed": 0, **common}
    run, cost = measured(run_blocks, adapter, blocks)
    changed = int((torch.cat([answers.labels for answers in run.answers]) != labels).sum())
    work = round(cost["work_seconds"] / alone["work_seconds"], 3)
    yield {"part": "blocks", **cost, "work": work, "changed": changed, **common}
    for part, cost in passes(adapter, blocks):
        work = round(cost["work_seconds"] * BLOCKS / alone["work_seconds"], 4)
        yield {"part": part, **cost, "work": work, "changed": "", **common}


def scaling(block: int, processes: Sequence[int], times: int) -> Iterator[Row]:
    """Wall time of one stream in so many processes, and of as many independent ones; both alternate."""
    classifier, _ = clip_like(CLASSES, DIM, 1)
    adapter, alone = PTA(classifier), 0.0
    for count in processes:
        total = count * EACH
        with TemporaryDirectory() as place:
            rows = [range(k * block, (k + 1) * block) for k in range(total)]
            files = "", Folder(place), "", Folder(place)
            works = [
                OwnBlocks(
                    adapter, Folder(f"{place}/work-{number}"), rows, EPSILON, BlockMemory(), *files, processes=count
                )
                for number in range(times)
            ]
            with Processes(count, works[0]) as pool:
                pool.each([Task(_make, (k,)) for k in range(total)], works[0])
            found: dict[str, list[float]] = {"independent": [], "blocks": [], "ratio": []}
            for work in works:
                with Processes(count, work) as pool:
                    pool.each([Task(_warm, (k,)) for k in range(count)], work)
                    _, bound = measured(pool.each, [Task(_independent, (k,)) for k in range(count)], work)
                with Processes(count, work) as pool:  # which have read nothing
                    pool.each([Task(_warm, (k,)) for k in range(count)], work)
                    run, cost = measured(run_passes, work, pool, [0] * total)
                for name, seconds in (("independent", bound["seconds"]), ("blocks", cost["seconds"])):
                    found[name].append(seconds)
                found["ratio"].append(bound["seconds"] / cost["seconds"])
        seconds = {f"{name}_seconds": round(median(found[name]), 2) for name in ("independent", "blocks")}
        alone = alone or seconds["blocks_seconds"] / count
        yield {
            "processes": count,
            **seconds,
            "efficiency": round(median(found["ratio"]), 3),
            "least": round(min(found["ratio"]), 3),
            "most": round(max(found["ratio"]), 3),
            "speed_up": round(count * alone / seconds["blocks_seconds"], 2),
            "rounds": run.rounds,
            "samples": total * block,
            "blocks": total,
            "times": times,
            "classes": CLASSES,
            "hardware": described(),
        }


def described() -> str:
    """The machine, and whether the engine of pta is compiled."""
    return f"{hardware()}; {'numba' if numba_is_installed() else 'no numba'}"


def single_stream(adapter: PTA, features: Tensor) -> Tensor:
    """The labels of one process that steps through batches; probabilities are computed as well."""
    stream, labels = adapter.clone(), []
    for part in features.split(BATCH):
        logits = stream.step(Samples(part))
        stream.probabilities(logits).amax(dim=1)
        labels.append(logits.argmax(dim=1))
    return torch.cat(labels)


def passes(adapter: PTA, blocks: Sequence[Block]) -> Iterator[tuple[str, dict[str, float]]]:
    """What one block costs in each pass; the cheap ones are the best of several."""
    a, b = blocks[:2]
    summary, cost = measured(summarise_block, adapter, a)
    yield "summarise a block", cost
    then = summarise_block(adapter, b)
    start = start_of(adapter)
    learned = scan(adapter, start, [summary, then])
    (state, cost) = best_of(boundary, adapter, learned[1], (start, summary))
    yield "boundary of a block", cost
    yield "scan a block", best_of(scan, adapter, learned[1], [then] * 8, times=8)[1]
    (_, end), cost = measured(replay_block, adapter, b, then, state)
    yield "replay a block", cost
    yield "verify a block", best_of(mismatches, end, state)[1]


def measured(function: Callable[..., Any], *given: Any, **named: Any) -> tuple[Any, dict[str, float]]:
    """What a function gives, its wall time and its processor time."""
    wall, work = time.perf_counter(), time.process_time()
    result = function(*given, **named)
    return result, {
        "seconds": round(time.perf_counter() - wall, 5),
        "work_seconds": round(time.process_time() - work, 5),
    }


def best_of(function: Callable[..., Any], *given: Any, times: int = 1) -> tuple[Any, dict[str, float]]:
    """The least of 20 measurements, of a call that does the same so many times."""
    found = [measured(function, *given) for _ in range(20)]
    cost = min((cost for _, cost in found), key=lambda one: one["work_seconds"])
    return found[-1][0], {name: round(value / times, 6) for name, value in cost.items()}


@dataclass(frozen=True)
class OwnBlocks(StoredBlocks):
    """Blocks whose features each process makes or reads itself; labels are files as well."""

    processes: int = 1

    @property
    def place(self) -> Path:
        """The folder of all files."""
        return Path(self.out.address)

    def _from_file(self, k: int) -> FeatureBlock:
        rows = self.blocks[k]
        features = np.fromfile(self.place / f"{k}.features", np.float32).reshape(len(rows), DIM)
        return FeatureBlock(Block.of(rows.start, len(rows), np.arange(rows.start, rows.stop), features), [], [])

    def answered(self, k: int, version: int | None = None) -> None:
        """Nothing is answered twice."""

    def answer(self, k: int, answers: BlockAnswers, version: int) -> None:
        """Write the labels."""
        torch.save(vars(answers), self.place / f"{k}.answers")

    def answers(self, k: int) -> BlockAnswers:
        """What was written."""
        return BlockAnswers(**torch.load(self.place / f"{k}.answers"))


def _make(work: OwnBlocks, k: int) -> None:
    clip_like(CLASSES, DIM, len(work.blocks[k]), part=k)[1].numpy().tofile(work.place / f"{k}.features")


def _warm(work: OwnBlocks, k: int) -> None:
    block = Block.of(0, BATCH, np.arange(BATCH), clip_like(CLASSES, DIM, BATCH)[1])
    replay_block(work.adapter, block, summarise_block(work.adapter, block), work.adapter.state())


def _independent(work: OwnBlocks, k: int) -> None:
    """Summarise and replay every block of one process, as if each began the stream."""
    for own in range(k, len(work.blocks), work.processes):
        summary = summarise_block(work.adapter, work.scored(own))
        answers, _ = replay_block(work.adapter, work.block(own), summary, work.adapter.state())
        work.answer(own, answers, 0)


class Processes:
    """Tasks in so many processes, which share what they had when they began."""

    def __init__(self, count: int, shared: Any) -> None:
        context, self._pipes, self._processes, self._keepers = get_context("fork"), list[Any](), list[Any](), {}
        for _ in range(count):
            here, there = context.Pipe()
            self._processes.append(context.Process(target=_serve, args=(there, shared), daemon=True))
            self._processes[-1].start()
            there.close()
            self._pipes.append(here)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            pipe.close()
            process.terminate()
            process.join()

    def each(
        self, tasks: Sequence[Any], shared: object, told: OnProgress = silent, then: OnResult = nothing_more
    ) -> list[Any]:
        """The results in order."""
        queue, busy, idle = TaskQueue(tasks, then, self._keepers), dict[Any, int](), self._pipes[::-1]
        while not queue.is_done:
            while idle and (number := queue.take(idle[-1])) is not None:
                busy[pipe := idle.pop()] = number
                pipe.send(queue.tasks[number])
            for pipe in wait(list(busy)):
                queue.finish(busy.pop(pipe), pipe.recv())
                idle.append(pipe)
        return queue.ordered()


def _serve(pipe: Any, shared: Any) -> None:
    torch.set_num_threads(1)
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        pipe.send(task(shared))


def main() -> None:
    """Read the command line, measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["exact", "costs", "scaling", "simulated"])
    parser.add_argument("--samples", type=int)
    parser.add_argument("--block", type=int, default=2**16, help="of `scaling`: samples")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--times", type=int, default=2)
    parser.add_argument("--rules", nargs="+", choices=RULES, default=[*RULES])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.what == "exact":
        write(given.out or RESULTS / "segments-exact.csv", exact(given.samples or 2**15, given.rules))
    elif given.what == "costs":
        write(given.out or RESULTS / "cluster-costs.csv", costs(given.samples or 2**18))
    elif given.what == "scaling":
        rows = scaling(given.block, given.processes, given.times)
        write(given.out or RESULTS / "cluster-scaling.csv", rows)
    else:
        from cluster_simulation import simulated

        write(given.out or RESULTS / "cluster-simulated.csv", simulated())


if __name__ == "__main__":
    main()

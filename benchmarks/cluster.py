"""One stream in blocks against the stream itself: is it equal, what does it cost, and what would 1,000 GPUs do?

    python benchmarks/cluster.py exact                        writes results/segments-exact.csv
    python benchmarks/cluster.py scaling [--processes 1 2]    writes results/cluster-scaling.csv
    python benchmarks/cluster.py simulated                    writes results/cluster-simulated.csv from the others

Synthetic features like CLIP's, 1,000 classes, 512 dimensions, one thread per process, plain processes without Ray and
files in memory.
`exact` replaces the tail of a segment by L samples. Work is processor time, all processes together.
"""

import argparse
import math
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self
from unittest.mock import patch

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
from pta.cluster.ray.passes import StoredBlocks
from pta.cluster.ray.storage import Folder
from pta.core.samples import Samples
from pta.engines.pta.rule import Rule
from pta.measure.provenance import hardware

CLASSES, DIM, BLOCKS, BATCH = 1000, 512, 16, 256
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


def scaling(samples: int, processes: Sequence[int]) -> Iterator[Row]:
    """Time and work of the single stream, of blocks in so many processes, and of each pass."""
    classifier, features = clip_like(CLASSES, DIM, samples)
    adapter, common = PTA(classifier), {"samples": samples, "classes": CLASSES}
    blocks = cut(torch.arange(samples), Samples(features), math.ceil(samples / BLOCKS))
    common |= {"blocks": len(blocks), "hardware": hardware()}
    replay_block(adapter, blocks[0], summarise_block(adapter, blocks[0]), adapter.state(), BATCH)  # compiles
    labels, alone = measured(single_stream, adapter, features)
    yield {"part": "single stream", "processes": 1, **alone, "work": 1.0, "speed_up": "", "changed": 0, **common}
    first: float | None = None
    for count in processes:
        _blocks[:] = blocks
        with TemporaryDirectory(dir="/dev/shm") as place, Processes(count) as pool:
            folders = [Folder(f"{place}/{name}") for name in ("features", "work", "out")]
            rows = [range(block.start, block.start + block.count) for block in blocks]
            work = SharedBlocks("", adapter, folders[0], "", *folders[1:], rows, EPSILON)
            run, cost = measured(run_passes, work, pool, [0] * len(blocks))
            cost["work_seconds"] = round(cost["work_seconds"] + pool.work, 5)
        first = first or cost["seconds"]
        changed = int((torch.cat(run.answers) != labels).sum())
        yield {
            "part": "blocks",
            "processes": count,
            **cost,
            "work": round(cost["work_seconds"] / alone["work_seconds"], 3),
            "speed_up": round(first / cost["seconds"], 2),
            "changed": changed,
            **common,
        }
    for part, cost in passes(adapter, blocks):
        work = round(cost["work_seconds"] * BLOCKS / alone["work_seconds"], 4)
        yield {"part": part, "processes": 1, **cost, "work": work, "speed_up": "", "changed": "", **common}


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


class Processes:
    """Tasks in so many processes."""

    def __init__(self, count: int) -> None:
        self.work = 0.0
        self.pool = get_context("fork").Pool(count)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.terminate()

    def each(self, tasks: Sequence[Callable[[Any], Any]], shared: Any, told: object = None) -> list[Any]:
        """The results in order."""
        results = []
        for result, work in self.pool.imap(_call, [(task, shared) for task in tasks]):
            results.append(result)
            self.work += work
        return results


_blocks: list[Block] = []


class SharedBlocks(StoredBlocks):
    """Blocks are in the memory that processes share; what the passes find is in files."""

    def block(self, k: int) -> Block:
        """A block."""
        return _blocks[k]

    def answered(self, k: int) -> None:
        """Nothing is answered twice."""

    def answer(self, k: int, answers: BlockAnswers) -> Tensor:  # type: ignore[override]
        """The labels."""
        return answers.labels


def _call(given: tuple[Callable[[Any], Any], Any]) -> tuple[Any, float]:
    torch.set_num_threads(1)
    begun = time.process_time()
    task, shared = given
    result = task(shared)
    return result, time.process_time() - begun


def main() -> None:
    """Read the command line, measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["exact", "scaling", "simulated"])
    parser.add_argument("--samples", type=int)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rules", nargs="+", choices=RULES, default=[*RULES])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.what == "exact":
        write(given.out or RESULTS / "segments-exact.csv", exact(given.samples or 2**15, given.rules))
    elif given.what == "scaling":
        write(given.out or RESULTS / "cluster-scaling.csv", scaling(given.samples or 2**20, given.processes))
    else:
        from cluster_simulation import simulated

        write(given.out or RESULTS / "cluster-simulated.csv", simulated())


if __name__ == "__main__":
    main()

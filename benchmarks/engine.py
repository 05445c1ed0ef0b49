"""How long PTA takes beside the zero-shot product it stands on: every engine, in one run, on the same features.

    python benchmarks/engine.py            writes benchmarks/results/engine-cpu.csv and engine-stream-cpu.csv

Each figure is the median over repetitions that take turns between the engines, so that a busy machine slows all of
them alike: trust the ratios, not the microseconds. With one thread, only the time that it runs is counted. Features are
synthetic, made to be like CLIP's: images lie in a cone apart from the texts, and a sample touches one or two classes.
"peak bytes" is how far the process grew during a call.
"""

import argparse
import ctypes
import statistics
import time
from collections.abc import Callable
from functools import partial
from itertools import chain, product
from pathlib import Path

import numpy as np
import torch
from naive import PaperLoop
from result_file import RESULTS, Row, write
from synthetic import clip_like
from torch import Tensor

from pta import PTA, Samples, ZeroShotClassifier
from pta.engines.pta.advance import Engine, advance_in_chunks
from pta.engines.pta.chunk import advance_by_chunk
from pta.engines.pta.numba_loops import advance_by_numba
from pta.engines.pta.step import advance_by_step
from pta.engines.pta.touches import find_touches
from pta.engines.zero_shot import ZeroShot
from pta.measure.provenance import hardware

CLASSES, DIMS, BATCHES = (10, 100, 1000, 21841), (512, 768), (1, 16, 64, 256)
VARIETY = 8  # different batches that take turns
WARM_UP = 1024  # samples before the first measurement, so that prototypes are in their steady state


def with_engine(classifier: ZeroShotClassifier, engine: Engine, max_batch: int) -> Callable[[Tensor], Tensor]:
    """PTA's whole way from features to logits, with one engine, whatever `advance` would choose."""
    adapter = PTA(classifier)

    def run(features: Tensor) -> Tensor:
        zero_shot = ZeroShot(classifier, Samples.unchecked(features))
        logits = zero_shot.logits
        touches = find_touches(zero_shot, logits, adapter.rule)
        state = adapter.prototypes, classifier.anchors
        cosines = advance_in_chunks(engine, max_batch, *state, features, touches, adapter.rule)
        return logits.add_(cosines, alpha=classifier.scale)

    return run


def median_seconds(
    runs: dict[str, Callable[[int], object]],
    repetitions: dict[str, int],
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """The median duration of each run, measured in turns; a run is told the number of its turn."""
    durations: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(max(repetitions.values())):
        for name, run in runs.items():
            if turn < repetitions[name]:
                begun = clock()
                run(turn)
                durations[name].append(clock() - begun)
    return {name: statistics.median(found) for name, found in durations.items()}


def peak_growth(run: Callable[[], object]) -> int:
    """How many bytes the process grew beyond its size before the call (Linux)."""
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # start the high-water mark anew
    before = _status("VmRSS")
    run()
    return max(0, _status("VmHWM") - before)


def _status(key: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(key))
    return int(line.split()[1]) * 1024


def measure(classes: int, dim: int, batch: int, budget: float) -> list[Row]:
    """One row for each implementation at one size."""
    classifier, stream = clip_like(classes, dim, WARM_UP + VARIETY * batch)
    warm, features = stream[:WARM_UP], stream[WARM_UP:]
    batches = features.split(batch)
    few = [part[:16] for part in batches]  # enough for what does one sample after the other anyway
    implementations: dict[str, Callable[[Tensor], object]] = {
        "zero-shot product": lambda f: f @ classifier.anchors.T,
        "per-sample loop": PaperLoop(classifier),
        "step": with_engine(classifier, advance_by_step, 1),
        "chunk": with_engine(classifier, advance_by_chunk, 128),
        "chunk, compiled": with_engine(classifier, advance_by_numba, 256),
    }
    given = {name: few if name in ("per-sample loop", "step") else batches for name in implementations}
    repetitions = {}
    for name, run in implementations.items():
        run(warm[:64] if given[name] is few else warm)
        begun = time.perf_counter()
        run(given[name][0])
        repetitions[name] = int(np.clip(budget / (time.perf_counter() - begun), 3, 200))
    calls = {
        name: (lambda turn, run=run, parts=given[name]: run(parts[turn % VARIETY]))
        for name, run in implementations.items()
    }
    durations = median_seconds(calls, repetitions, _clock())
    seconds = {name: durations[name] / len(given[name][0]) for name in implementations}
    zero_shot = ZeroShot(classifier, Samples.unchecked(features))
    touches = find_touches(zero_shot, zero_shot.logits, PTA(classifier).rule)
    return [
        {
            "implementation": name,
            "C": classes,
            "d": dim,
            "B": batch,
            "us_per_sample": round(1e6 * seconds[name], 2),
            "speedup_over_loop": round(seconds["per-sample loop"] / seconds[name], 2),
            "cost_in_zero_shot_products": round(seconds[name] / seconds["zero-shot product"], 2),
            "peak_bytes": peak_growth(partial(calls[name], 0)),
            "touches_per_sample": round(len(touches.samples) / len(features), 2),
            "hardware": hardware(),
        }
        for name in implementations
    ]


def _clock() -> Callable[[], float]:
    return time.thread_time if torch.get_num_threads() == 1 else time.perf_counter


def measure_stream(length: int = 50_000, block: int = 5_000) -> list[Row]:
    """Cost per sample and size of state along one long stream, C = 1000, d = 512, batches of 256."""
    classifier, features = clip_like(1000, 512, length)
    adapter = PTA(classifier)
    adapter.step(features[:256])
    adapter.reset()
    rows = []
    for start in range(0, length, block):
        begun = _clock()()
        for batch in features[start : start + block].split(256):
            adapter.step(batch)
        seconds = _clock()() - begun
        rows.append(
            {
                "samples_seen": start + block,
                "us_per_sample": round(1e6 * seconds / block, 2),
                "state_bytes": adapter.state_bytes,
                "state_bytes_beyond_2Cd_floats": adapter.state_bytes - 2 * 1000 * 512 * 4,
                "hardware": hardware(),
            }
        )
    return rows


def main() -> None:
    """Measure everything and write both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--budget", type=float, default=1.0, help="seconds per implementation and size")
    parser.add_argument("--classes", type=int, nargs="+", default=CLASSES)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    with torch.inference_mode():
        sizes = product(arguments.classes, DIMS, BATCHES)
        rows = chain.from_iterable(measure(*size, arguments.budget) for size in sizes)
        write(arguments.out / "engine-cpu.csv", rows)
        write(arguments.out / "engine-stream-cpu.csv", measure_stream())


if __name__ == "__main__":
    main()

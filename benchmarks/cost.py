"""What a step of the default method costs on a CPU beside PTA and TDA, and how much each method keeps.

    OMP_NUM_THREADS=1 python benchmarks/cost.py      writes benchmarks/results/cost-cpu.csv

Each figure is the median over turns that the methods take on the same synthetic samples, through `adapter.step`. A turn
is 256 samples in batches of B, so that refreshes are included. What is counted is the time that the one thread is
running, so that others on the machine matter less. Trust the ratios, not the microseconds.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from engine import WARM_UP, median_seconds
from result_file import RESULTS, Row, write
from synthetic import clip_like
from torch import Tensor

from pta import Adapter, create_adapter
from pta.measure.provenance import hardware

CLASSES, DIM, TURN, VARIETY = (100, 1000), 512, 256, 4
BATCHES = (1, 64, 256)
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "pta": ("pta", {"prior": "none", "gate": "none", "calibration": "fixed"}),
    "wpta without stages": ("wpta", {"prior": "none", "gate": "none", "calibration": "fixed"}),
    "wpta": ("wpta", {"prior": "local", "gate": "balance", "calibration": "matched"}),
    "tda": ("tda", {"prior": "none", "gate": "none", "calibration": "fixed"}),
}


def in_batches(adapter: Adapter, parts: list[list[Tensor]]) -> Callable[[int], None]:
    """A turn: one part of the stream, batch by batch."""

    def run(turn: int) -> None:
        for batch in parts[turn % len(parts)]:
            adapter.step(batch)

    return run


def measure(classes: int, turns: int) -> Iterator[Row]:
    """A row for each method and size of batches."""
    classifier, stream = clip_like(classes, DIM, WARM_UP + VARIETY * TURN)
    parts = stream[WARM_UP:].split(TURN)
    for size in BATCHES:
        adapters = {title: create_adapter(method, classifier, **given) for title, (method, given) in METHODS.items()}
        batches = [list(part.split(size)) for part in parts]
        calls = {title: in_batches(adapter, batches) for title, adapter in adapters.items()}
        for title, adapter in adapters.items():
            adapter.step(stream[:WARM_UP])
            calls[title](0)
        seconds = median_seconds(calls, dict.fromkeys(calls, turns), time.thread_time)
        for title, adapter in adapters.items():
            yield {
                "method": title,
                "C": classes,
                "d": DIM,
                "B": size,
                "us_per_sample": round(1e6 * seconds[title] / TURN, 1),
                "of_pta": round(seconds[title] / seconds["pta"], 2),
                "state_bytes": adapter.state_bytes,
                "hardware": hardware(),
            }


def main() -> None:
    """Measure everything and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=12)
    measured = partial(measure, turns=parser.parse_args().turns)
    torch.set_num_threads(1)
    write(RESULTS / "cost-cpu.csv", (row for classes in CLASSES for row in measured(classes)))


if __name__ == "__main__":
    main()

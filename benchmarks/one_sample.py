"""How long PTA takes for one sample on a CPU, through `adapter.step`, beside the two products that its rule needs.

    python benchmarks/one_sample.py        writes benchmarks/results/one-sample-cpu.csv

Figures are medians of calls that take turns, as in `engine.py`: trust the ratios, not the microseconds. A call finds
neither numbers nor code in the processor's first caches, because the calls before it have used them.
"""

import argparse
from pathlib import Path

import torch
from engine import WARM_UP, median_seconds
from result_file import RESULTS, Row, write
from synthetic import clip_like

from pta import PTA
from pta.measure.provenance import hardware
from pta.methods import Adapter

VARIETY = 64  # different samples that take turns


def measure(classes: int, dim: int) -> list[Row]:
    """One row for each way to take a step."""
    classifier, stream = clip_like(classes, dim, WARM_UP + VARIETY)
    samples = stream[WARM_UP:].split(1)
    plain, compiled = PTA(classifier), PTA(classifier)
    for adapter in (plain, compiled):
        adapter.step(stream[:WARM_UP])
    anchored = compiled.anchored.clone()
    calls = {
        "two products": lambda turn: (samples[turn] @ classifier.anchors.T, samples[turn] @ anchored.T),
        "step": lambda turn: Adapter.step(plain, samples[turn]),
        "step, compiled": lambda turn: compiled.step(samples[turn]),
    }
    for call in calls.values():
        call(0)
    taken = {name: (lambda turn, call=call: call(turn % VARIETY)) for name, call in calls.items()}
    seconds = median_seconds(taken, dict.fromkeys(calls, 100 if classes > 1000 else 2000))
    return [
        {
            "way": name,
            "C": classes,
            "d": dim,
            "us": round(1e6 * seconds[name], 1),
            "in_two_products": round(seconds[name] / seconds["two products"], 2),
            "speedup_over_step": round(seconds["step"] / seconds[name], 2),
            "hardware": hardware(),
        }
        for name in calls
    ]


def main() -> None:
    """Measure every size and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    sizes = [(classes, dim) for dim in (512, 768) for classes in (10, 100, 1000, 21841)]
    rows = (row for size in sizes for row in measure(*size))
    write(arguments.out / "one-sample-cpu.csv", rows)


if __name__ == "__main__":
    main()

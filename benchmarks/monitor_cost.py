"""What monitors cost, beside the step of the method and beside all that `pta predict` computes of a sample.

    python benchmarks/monitor_cost.py            writes benchmarks/results/monitor-cost.csv
    python benchmarks/monitor_cost.py --gpu      writes benchmarks/results/monitor-cost-gpu.csv

Ways: `step` is `adapter.step` alone; `monitor` is `Monitor.add` alone, given the logits that are computed anyway;
`answers` is `Classifier.answers` without a monitor, `watched` the same with one. All take turns in one process on one
thread, so that ratios can be trusted where microseconds cannot. On a GPU a model is put in front, as many products of
matrices as take about as long as ViT-B/16; what counts there is how many samples per second are left.
"""

import argparse
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from engine import median_seconds
from result_file import RESULTS, Row, write
from synthetic import clip_like

from pta import Samples, create_adapter
from pta.measure.provenance import hardware
from pta.methods import Adapter
from pta.monitor import Monitor, StreamGuard, takes_order
from pta.run.classifier import AnswerBatch, answer_numbers
from pta.run.watched import WatchedStream

CLASSES, DIM, WARM, VARIETY = 1000, 512, 1024, 4096


def classifier_of(adapter: Adapter) -> Any:
    """What `WatchedStream` needs of a `pta.Classifier`, without its encoder."""
    names = adapter.classifier.class_names
    return SimpleNamespace(
        adapter=adapter, classes=names, shadow=False, raw_probability=False, reject_below=None, reject_holds=None
    )


def ways(method: str, batch: int, device: str) -> dict[str, Any]:
    """The calls that are compared, by name; each takes the number of its turn."""
    classifier, stream = clip_like(CLASSES, DIM, VARIETY)
    stream = stream.to(device)
    classifier = classifier.to(device=torch.device(device))
    parts = [Samples.unchecked(part) for part in stream.split(batch)]
    made = {name: create_adapter(method, classifier) for name in ("step", "answers", "watched", "monitor")}
    monitors = [Monitor(classifier, takes_order=takes_order(made["step"])) for _ in range(2)]
    watch = WatchedStream(classifier_of(made["watched"]), StreamGuard(monitors[0], {}), lambda alarm: None)

    def answers(turn: int) -> Any:
        samples = parts[turn % len(parts)]
        alone, logits = classifier.logits(samples.features), made["answers"].step(samples)
        chances = made["answers"].probabilities_unchecked(logits)
        return AnswerBatch(answer_numbers(logits, chances, alone), classifier.class_names)

    def watched(turn: int) -> Any:
        return watch.answers(parts[turn % len(parts)], learn=True, top=1, labels=None, sources=())

    seen, learned = list[Any](), np.ones(batch, np.bool_)
    for part in parts:
        logits = made["monitor"].step(part)
        chances = made["monitor"].probabilities_unchecked(logits)
        seen.append((part.features, classifier.logits(part.features), chances, logits.argmax(dim=1)))

    def monitor(turn: int) -> Any:
        return monitors[1].add(*seen[turn % len(parts)], learned, (), made["monitor"])

    def step(turn: int) -> Any:
        return made["step"].step(parts[turn % len(parts)])

    found = {"step": step, "answers": answers, "watched": watched, "monitor": monitor}
    for call in found.values():  # past the first 500 samples, which become the reference
        for turn in range(WARM // batch):
            call(turn)
    return found


def on_host(method: str, batch: int) -> Row:
    """One row: microseconds per sample, and what monitors add."""
    calls = ways(method, batch, "cpu")
    seconds = median_means(calls, 48 if batch > 1 else 4096 // 64, 1 if batch > 1 else 64)
    us = {name: 1e6 * seconds[name] / batch for name in calls}
    return {
        "method": method,
        "batch": batch,
        "C": CLASSES,
        **{f"{name}_us": round(value, 2) for name, value in us.items()},
        "monitor_of_step": round(us["monitor"] / us["step"], 4),
        "watched_of_answers": round(us["watched"] / us["answers"], 4),
        "hardware": hardware(),
    }


def median_means(calls: dict[str, Any], turns: int, each: int) -> dict[str, float]:
    """The median over turns of the mean of some calls, so that each turn has a whole block of 64 samples."""

    def several(call: Any) -> Any:
        return lambda turn: [call(turn * each + i) for i in range(each)]

    grouped = {name: several(call) for name, call in calls.items()}
    found = median_seconds(grouped, dict.fromkeys(calls, turns))
    return {name: value / each for name, value in found.items()}


def on_gpu(method: str, batch: int) -> Row:
    """One row: samples per second behind a stand-in for a model, with and without monitors."""
    calls = ways(method, batch, "cuda")
    weights = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    rounds = 12 * batch // 256

    def speed(call: Any) -> float:
        kept: list[Any] = []
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for turn in range(100):
            for _ in range(rounds):
                torch.mm(weights, weights)
            kept = [*kept[-2:], call(turn)]
        torch.cuda.synchronize()
        return 100 * batch / (time.perf_counter() - begun)

    for call in calls.values():
        speed(call)
    found = {name: max(speed(calls[name]) for _ in range(3)) for name in ("step", "answers", "watched")}
    return {
        "method": method,
        "batch": batch,
        "C": CLASSES,
        **{f"{name}_per_second": round(value) for name, value in found.items()},
        "watched_of_answers": round(found["watched"] / found["answers"], 4),
        "hardware": f"{torch.cuda.get_device_name()}; {hardware()}",
    }


def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", action="store_true")
    gpu = parser.parse_args().gpu
    torch.set_num_threads(1)
    sizes = [(method, batch) for method in ("pta", "wpta") for batch in ((256,) if gpu else (256, 1))]
    name = "monitor-cost-gpu.csv" if gpu else "monitor-cost.csv"
    write(RESULTS / name, ((on_gpu if gpu else on_host)(method, batch) for method, batch in sizes))


if __name__ == "__main__":
    main()

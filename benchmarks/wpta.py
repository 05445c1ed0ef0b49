"""WPTA: what each of its parts is worth on real features, and what it costs beside PTA.

    python benchmarks/wpta.py --features FOLDER      writes benchmarks/results/wpta-ablation.csv and wpta-shards.csv
    OMP_NUM_THREADS=1 python benchmarks/wpta.py      writes benchmarks/results/wpta-cpu.csv

Accuracies are those of seeds 1 and 2 without prior and gate. Durations are medians of turns that WPTA and PTA's engines
take on the same synthetic batches, refreshes included, in time that the one thread runs: trust the ratios.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from engine import median_seconds, with_engine
from result_file import RESULTS, Row, write
from synthetic import clip_like
from torch import Tensor

from pta import PTA, WPTA, Adapter, Samples, ZeroShotClassifier
from pta.data.features import FeatureFile, load_features
from pta.data.orders import iid
from pta.engines.pta.chunk import advance_by_chunk
from pta.engines.pta.numba_loops import advance_by_numba
from pta.engines.whitened.layer_state import TextPrototypes
from pta.measure.provenance import hardware
from pta.measure.stream import Stream
from pta.measure.stream_run import run_stream

FILES = ("caltech101_test_sub", "stanford_cars_val", "ucf101_test_sub_nounproxy")
SEEDS = (1, 2)
NEVER = 2**31
PARTS_OF_A_STREAM = (2, 8)
CLASSES, DIM, BATCH, WARM_UP, VARIETY = 1000, 512, 256, 1024, 8


class WithoutCentre(WPTA):
    """Measures angles between features and texts as they are."""

    name = "wpta-without-centre"

    def __init__(self, classifier: ZeroShotClassifier, **given: Any) -> None:
        super().__init__(classifier, **given)
        self._uncentre()

    def refresh_state(self) -> None:
        super().refresh_state()
        self._uncentre()

    @property
    def _texts(self) -> TextPrototypes:
        return TextPrototypes(self.classifier, torch.zeros_like(self.total), self.text_weight * self.classifier.anchors)

    def _uncentre(self) -> None:
        self.centre.zero_()
        self._state_replaced()
        for layer in self._layers:
            layer.measure()


class WithoutItself(WPTA):
    """Scores a sample before it is learned."""

    name = "wpta-without-itself"

    def __init__(self, classifier: ZeroShotClassifier, **given: Any) -> None:
        super().__init__(classifier, **given)
        self.max_batch = 1

    def _step(self, samples: Samples) -> Tensor:
        z = self.zero_shot(samples).exact_logits
        (layer,) = self._layers
        nothing = torch.zeros_like(z)
        scores = layer.score(samples.features, nothing, z, learn=False)
        super()._step(samples)
        return scores


BARE: dict[str, Any] = {"prior": "none", "gate": "none", "calibration": "fixed"}
PLAIN = partial(WPTA, **BARE)
PARTS: dict[str, Callable[[ZeroShotClassifier], Adapter]] = {
    "pta": PTA,
    "wpta": PLAIN,
    "no centring": partial(WithoutCentre, **BARE),
    "no whitening": partial(PLAIN, first_metric=NEVER),
    "no text": partial(PLAIN, text_weight=0.0),
    "own sample left out": partial(WithoutItself, **BARE),
    "refresh only by doubling": partial(PLAIN, refresh_every=NEVER),
    "depth 2": partial(PLAIN, depth=2),
}


def accuracy(make: Callable[[ZeroShotClassifier], Adapter], data: FeatureFile, seed: int) -> float:
    """Of a stream in the order of a seed, in percent."""
    run = run_stream(make(data.classifier), data.samples, data.labels, iid(len(data.samples), seed), batch=BATCH)
    return run.accuracy or 0.0


def ablation(folder: Path) -> Iterator[Row]:
    """The mean over files and seeds, and each file's."""
    files = {name: load_features(folder / f"{name}.npz") for name in FILES}
    for part, make in PARTS.items():
        own = {name: fmean(accuracy(make, data, seed) for seed in SEEDS) for name, data in files.items()}
        each = {name: round(value, 2) for name, value in own.items()}
        yield {"method": part, "accuracy": round(fmean(own.values()), 2), **each, "hardware": hardware()}


def shards(folder: Path) -> Iterator[Row]:
    """What an adapter has learned of whole streams, and of parts apart whose sums were added.

    Either is judged by answers to all samples that learn nothing and have no prior.
    """
    files = [load_features(folder / f"{name}.npz") for name in FILES]
    for stream, prior, parts in product((Stream(), Stream("separate")), ("none", "local"), PARTS_OF_A_STREAM):
        found: dict[str, list[float]] = {"whole": [], "shards": []}
        for data, seed in product(files, SEEDS):
            order = torch.from_numpy(stream.order(data, seed, BATCH))
            new = partial(WPTA, data.classifier, **BARE | {"prior": prior})
            whole, joined = new(), new()
            whole.step(data.samples[order])
            for part in order.chunk(parts):
                joined.apply(joined.summarise(data.samples[part]))
            for way, adapter in (("whole", whole), ("shards", joined)):
                judge = PLAIN(data.classifier)
                judge.apply(adapter.learned)
                right = judge.predict(data.samples).argmax(dim=1) == torch.as_tensor(data.labels)
                found[way].append(100 * float(right.double().mean()))
        means = {way: round(fmean(one), 2) for way, one in found.items()}
        yield {"stream": stream.kind, "prior": prior, "parts": parts, **means, "hardware": hardware()}


def speed(turns: int) -> Iterator[Row]:
    """Microseconds per sample."""
    classifier, stream = clip_like(CLASSES, DIM, WARM_UP + VARIETY * BATCH)
    warm, batches = stream[:WARM_UP], stream[WARM_UP:].split(BATCH)
    implementations: dict[str, Callable[[Tensor], object]] = {
        "zero-shot product": lambda f: f @ classifier.anchors.T,
        "pta, chunk": with_engine(classifier, advance_by_chunk, 128),
        "pta, chunk, compiled": with_engine(classifier, advance_by_numba, 256),
        "wpta": PLAIN(classifier).step_unchecked,
        "wpta with the prior": PLAIN(classifier, prior="local").step_unchecked,
        "wpta with prior and gate": WPTA(classifier, calibration="fixed").step_unchecked,
        "wpta, the default": WPTA(classifier).step_unchecked,
        "wpta, depth 2": PLAIN(classifier, depth=2).step_unchecked,
    }
    for run in implementations.values():
        run(warm)
    calls = {name: (lambda turn, run=run: run(batches[turn % VARIETY])) for name, run in implementations.items()}
    seconds = median_seconds(calls, dict.fromkeys(calls, turns), time.thread_time)
    for name, duration in seconds.items():
        yield {
            "implementation": name,
            "C": CLASSES,
            "d": DIM,
            "B": BATCH,
            "us_per_sample": round(1e6 * duration / BATCH, 1),
            "of_chunk": round(duration / seconds["pta, chunk"], 2),
            "of_chunk_compiled": round(duration / seconds["pta, chunk, compiled"], 2),
            "hardware": hardware(),
        }


def main() -> None:
    """Write the tables of accuracies, or that of durations."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=Path, help="a folder of feature files, which are not distributed")
    parser.add_argument("--turns", type=int, default=40)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with torch.inference_mode():
        if arguments.features:
            write(RESULTS / "wpta-ablation.csv", ablation(arguments.features))
            write(RESULTS / "wpta-shards.csv", shards(arguments.features))
        else:
            write(RESULTS / "wpta-cpu.csv", speed(arguments.turns))


if __name__ == "__main__":
    main()

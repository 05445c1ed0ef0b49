"""How fast each open-loop method is a batch at a time, beside its own per-sample loop, in one run.

    OMP_NUM_THREADS=1 python benchmarks/methods.py      writes benchmarks/results/methods-cpu.csv
    … --method ecalp etta dmn tps --classes 100 1000 --out benchmarks/results/newer-cpu.csv

C = 1000 classes (`--classes`), d = 512, N = 7000 samples in batches of 256, synthetic features like CLIP's. The loops
are those of `pta.reference`, in float32: one sample after the other, as the released programs do it, pseudo-inverses
and all. A slow loop is run on the first samples of the stream only, and compared with the batches of those same
samples; both take turns. Times are those of the processor. Trust the ratios, not the microseconds.
"""

import argparse
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from naive import PaperLoop
from result_file import RESULTS, Row, write
from synthetic import clip_like
from torch import Tensor

from pta import Adapter, Samples, ZeroShotClassifier, create_adapter
from pta.measure.provenance import hardware
from pta.reference.adapt import adapt_loop
from pta.reference.boostadapter import boostadapter_loop
from pta.reference.dmn import dmn_loop
from pta.reference.dota import dota_loop
from pta.reference.ecalp import ecalp_loop
from pta.reference.etta import etta_loop
from pta.reference.oga import oga_loop
from pta.reference.sca import sca_loop
from pta.reference.tda import tda_loop
from pta.reference.tps import tps_loop

CLASSES, DIM, SAMPLES, BATCH, VIEWS, PROMPTS = 1000, 512, 7000, 256, 64, 80


class Contest(NamedTuple):
    """A method, its loop, how many samples the loop is given, and how often."""

    loop: Callable[..., Any] | None
    window: int
    rounds: int
    whole: int = SAMPLES  # samples that the batches are given beside it
    parameters: dict[str, Any] = {}  # noqa: RUF012 (nobody changes it)
    needs: str = ""  # views or prompts


CONTESTS = {
    "pta": Contest(None, 1000, 3),
    "tda": Contest(tda_loop, SAMPLES, 1),
    "boostadapter": Contest(boostadapter_loop, 512, 1, whole=1024, needs="views"),
    "sca": Contest(sca_loop, 256, 1),
    "adapt": Contest(adapt_loop, 64, 1, whole=2048),
    "dota": Contest(dota_loop, 16, 1, whole=512),
    "dmn": Contest(dmn_loop, 64, 3, whole=2048),
    "ecalp": Contest(ecalp_loop, 600, 1, whole=1024),
    "oga": Contest(oga_loop, 64, 1, whole=4096),  # beyond 4d items every entry costs a pseudo-inverse
    "etta": Contest(etta_loop, 64, 5, whole=512, needs="prompts"),
    "tps": Contest(tps_loop, 32, 5, whole=128, needs="views"),
}


def with_views(features: Tensor, seed: int = 2) -> Tensor:
    """Views around every feature, the feature itself first, in half precision as files hold them."""
    rng = torch.Generator().manual_seed(seed)
    views = torch.empty(len(features), VIEWS, features.shape[1], dtype=torch.float16)
    for number, feature in enumerate(features):
        noise = torch.randn(VIEWS, features.shape[1], generator=rng) * 0.02
        noise[0] = 0
        views[number] = (feature + noise).half()
    return views


def with_prompts(classifier: ZeroShotClassifier) -> ZeroShotClassifier:
    """The classifier with features of prompts around every anchor."""
    anchors = classifier.anchors
    noise = torch.randn(len(anchors), PROMPTS, anchors.shape[1], generator=torch.Generator().manual_seed(3)) * 0.02
    prompts = anchors[:, None] + noise
    return ZeroShotClassifier(anchors, classifier.class_names, classifier.scale, prompt_features=prompts)


def in_batches(adapter: Adapter, samples: Samples, size: int) -> float:
    """Processor seconds for the samples in batches of a size."""
    begun = time.process_time()
    for batch in samples.batches(size):
        adapter.step(batch)
    return time.process_time() - begun


def measure(method: str, contest: Contest, classifier: ZeroShotClassifier, stream: Samples) -> Row:
    """One row of the table."""

    def new() -> Adapter:
        return create_adapter(method, classifier, **contest.parameters)

    def loop(samples: Samples) -> float:
        begun = time.process_time()
        if contest.loop is None:
            PaperLoop(classifier)(samples.features)
        else:
            given = {} if samples.views is None else {"views": samples.views.float().numpy()}
            if classifier.prompt_features is not None:
                given["prompt_features"] = classifier.prompt_features.numpy()
            contest.loop(
                classifier.anchors.numpy(),
                samples.features.numpy(),
                scale=classifier.scale,
                **given,
                **contest.parameters,
            )
        return time.process_time() - begun

    window = stream[: contest.window]
    in_batches(new(), stream[:BATCH], BATCH)  # whatever is loaded once
    turns = [(loop(window), in_batches(new(), window, BATCH)) for _ in range(contest.rounds)]
    adapter = new()
    whole = in_batches(adapter, stream[: contest.whole], BATCH)
    single = in_batches(new(), stream[: min(64, contest.window)], 1)
    return {
        "method": method,
        "C": classifier.classes,
        "d": classifier.dim,
        "batch": BATCH,
        "compared_on": contest.window,
        "loop_us_per_sample": round(1e6 * median(slow for slow, _ in turns) / contest.window, 1),
        "batches_us_per_sample": round(1e6 * median(fast for _, fast in turns) / contest.window, 1),
        "speedup_over_loop": round(median(slow / fast for slow, fast in turns), 1),
        "long_stream": min(contest.whole, len(stream)),
        "long_stream_us_per_sample": round(1e6 * whole / min(contest.whole, len(stream)), 1),
        "one_by_one_us_per_sample": round(1e6 * single / min(64, contest.window), 1),
        "state_bytes": adapter.state_bytes,
        "hardware": hardware(),
    }


def main() -> None:
    """Measure everything and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", nargs="+", choices=CONTESTS, default=list(CONTESTS))
    parser.add_argument("--classes", nargs="+", type=int, default=[CLASSES])
    parser.add_argument("--out", type=Path, default=RESULTS / "methods-cpu.csv")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # the loops: OMP_NUM_THREADS=1

    def row_of(method: str, classes: int) -> Row:
        classifier, features = clip_like(classes, DIM, SAMPLES)
        contest = CONTESTS[method]
        stream = Samples(features[: contest.whole])
        if contest.needs == "views":
            stream = Samples(stream.features, views=with_views(stream.features))
        if contest.needs == "prompts":
            classifier = with_prompts(classifier)
        return measure(method, contest, classifier, stream)

    write(arguments.out, (row_of(*one) for one in product(arguments.method, arguments.classes)))


if __name__ == "__main__":
    main()

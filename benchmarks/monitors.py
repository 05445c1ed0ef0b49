"""The alarms of a monitor: how many are false, and how late the others are.

    python benchmarks/monitors.py false-alarms    writes benchmarks/results/monitors-false-alarms.csv
    python benchmarks/monitors.py delay           writes benchmarks/results/monitors-delay.csv

**False alarms.** STREAMS streams in which nothing happens, from each file and in each way, from four sources at random:

* `reshuffled`: all samples of the file once, in random order. The first 500 are the monitor's own reference.
* `with replacement`: 20,000 samples drawn from the file, independently. The first 500 are the own reference.
* `given reference`: the same, and the reference is 200 other samples that are drawn in the same way.

In the last two ways the reference and the samples after it are independent draws from one distribution, that of the
file, so that every alarm of `foreign-input` is false. One half of the file as a reference and 20,000 draws from the
other half would be no such test: two finite halves differ, and so many samples find that out. Without replacement the
rest of a file differs from the reference a little more than new samples would, so that `reshuffled` is the harder test.
A row has one kind of alarm: how many were `raised`, in how many of the `streams`, and for `foreign-input` how many are
`allowed` in expectation: one in 10⁶ samples, and 0.5 % of the references.

**Delay**, in samples from the start of what happens to the alarm; nothing reacts. HONEST samples of a file, shuffled,
again and again in another order. Each row has so many `streams`; `delay` is the median over those with an alarm and
those without, `missed` if that is one without; `within_…` is the percentage of streams with an alarm by then.
`is_meant` marks the kind of alarm that the event should raise.

* `foreign`: after START a share of the stream is from another file (`junk`), or all five in turn (`each`).
* `polluted`: the same from the first sample on, so that it is in the reference: a known miss.
* `flood`: after START one source repeats one picture, 30 % of the stream.
* `sorted`: after START one class after the other. `sorted at once`: from the first sample on.
"""

import argparse
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from itertools import groupby, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from result_file import RESULTS, Row, write
from torch import Tensor

from pta import Samples, ZeroShotClassifier, create_adapter
from pta.core.labels import NONE, UNKNOWN
from pta.data.fashion import load_fashion_test
from pta.data.features import load_features
from pta.data.prompts import build_classifier
from pta.data.shifts.images import apply_shift
from pta.measure.provenance import hardware
from pta.models import EMBEDDED_TEMPLATES, EmbeddedEncoder
from pta.monitor import Alarm, Monitor, ScoreReference, StreamGuard, parse_reactions, takes_order, watched_steps
from pta.monitor.alarms import KINDS

FEATURES = Path(__file__).parents[2] / "shared" / "features"
DEVELOPMENT = ("caltech101_test_sub", "stanford_cars_val", "ucf101_test_sub_nounproxy")
FILES = (*DEVELOPMENT, "dtd_val", "food10", "imagenet_train_7shot")
FASHION = "fashion"
METHODS = ("pta", "wpta")
STREAMS, LONG = 84, 20_000  # 6 files and 2 ways: 1,008 streams
HONEST, START, BATCH = 3000, 500, 256
DELAY_SEEDS = 10
FOREIGN = -1  # the label of what is of no listed class
CAMERAS = ["camera 1", "camera 2", "camera 3", "camera 4"]

Numbers = NDArray[np.int64]
Random = np.random.Generator


class File(NamedTuple):
    """Samples and their classifier."""

    classifier: ZeroShotClassifier
    features: Tensor
    labels: Numbers


class Stream(NamedTuple):
    """Samples in the order in which they come; the label of junk is FOREIGN."""

    classifier: ZeroShotClassifier
    features: Tensor
    labels: Numbers
    sources: list[str]
    start: int = START  # of what happens
    attacked: int | None = None  # a class
    reference: ScoreReference | None = None
    is_order: bool = True  # whether the order of honest samples is what happens


class Chosen(NamedTuple):
    """A guard: reactions, the zero-shot probability below which a sample is not learned, and the prior, if changed."""

    reactions: tuple[str, ...] = ()
    hold_below: float = 0.0
    prior: str | None = None


class Run(NamedTuple):
    """The answers to a stream, and what happened."""

    answers: Numbers
    alarms: list[Alarm]  # that were raised
    held: float  # share of the samples
    seconds: float


@cache
def opened(folder: Path, name: str) -> File:
    """A file, which a process reads once."""
    if name == FASHION:
        return shifted("clean", 0)
    data = load_features(folder / f"{name}.npz")
    return File(data.classifier, data.samples.features, np.asarray(data.labels, np.int64))


@cache
def shifted(shift: str, severity: int) -> File:
    """The packaged images under a shift, encoded by the packaged model."""
    test, encoder = load_fashion_test(), EmbeddedEncoder.load()
    images = apply_shift(test.images, shift, severity, 1) if severity else test.images
    pixels = np.stack([encoder.preprocess.pixels(Image.fromarray(image)) for image in images])
    classifier = build_classifier(encoder, test.class_names, EMBEDDED_TEMPLATES)
    return File(classifier, encoder.encode(torch.from_numpy(pixels)), test.labels.astype(np.int64))


def probabilities(classifier: ZeroShotClassifier, features: Tensor) -> NDArray[np.float64]:
    """Zero-shot's."""
    return np.asarray(classifier.logits(features).double().softmax(dim=1))


def drawn(file: File, random: Random, length: int = HONEST) -> Numbers:
    """The samples of a file in random order, again and again in another one, cut at a length."""
    count = len(file.labels)
    return np.concatenate([random.permutation(count) for _ in range(-(-length // count))])[:length]


def some_of(names: list[str], count: int, random: Random) -> list[str]:
    """A source for each sample."""
    return [names[number] for number in random.integers(len(names), size=count)]


def in_order(file: File, order: Numbers, random: Random, attacked: int | None = None) -> Stream:
    """Honest samples, whose order is what happens."""
    names = some_of(CAMERAS, len(order), random)
    return Stream(file.classifier, file.features[order], file.labels[order], names, attacked=attacked)


def mixed(
    file: File,
    junk: Tensor,
    share: float,
    random: Random,
    *,
    sources: Iterable[str] = ("stranger",),
    attacked: int | None = None,
    start: int = START,
) -> Stream:
    """Honest samples among which junk comes from `start` on, a share of the stream from there."""
    honest, count = in_order(file, drawn(file, random), random), round((HONEST - start) * share / (1 - share))
    places = random.integers(start, HONEST + 1, size=count) - 0.5  # among the numbers of honest samples
    order = np.argsort(np.concatenate([np.arange(HONEST), places]), kind="stable")
    features = torch.cat([honest.features, junk[random.integers(len(junk), size=count)]])[order]
    labels = np.concatenate([honest.labels, np.full(count, FOREIGN)])[order]
    names = honest.sources + some_of(list(sources), count, random)
    return Stream(file.classifier, features, labels, [names[row] for row in order], start, attacked, is_order=False)


def by_class(file: File, order: Numbers, random: Random) -> list[Numbers]:
    """One class after the other."""
    return [order[file.labels[order] == label] for label in random.permutation(file.classifier.classes)]


def guarded(stream: Stream, method: str, chosen: Chosen, zero_shot: NDArray[np.float64] | None = None) -> Run:
    """A stream under a guard; zero-shot's probabilities are needed if it changes answers, or what is learned."""
    adapter = create_adapter(method, stream.classifier, **({} if chosen.prior is None else {"prior": chosen.prior}))
    monitor = Monitor(stream.classifier, reference=stream.reference, takes_order=takes_order(adapter))
    guard, count = StreamGuard(monitor, parse_reactions(chosen.reactions)), len(stream.labels)
    is_held = np.zeros(count, np.bool_) if zero_shot is None else zero_shot.max(axis=1) < chosen.hold_below
    told = np.where(is_held, NONE, UNKNOWN)
    answers, alarms, learned, begun = list[Numbers](), list[Alarm](), 0, time.perf_counter()
    for start in range(0, count, BATCH):
        rows = slice(start, start + BATCH)
        for piece in watched_steps(adapter, guard, Samples(stream.features[rows]), told[rows], stream.sources[rows]):
            answers.append(piece.logits.argmax(dim=1).numpy())
            if piece.as_zero_shot and zero_shot is not None:
                answers[-1] = zero_shot[rows][piece.rows].argmax(axis=1)
            alarms += [alarm for alarm in piece.alarms if alarm.raised]
            learned += int(piece.learned.sum())
    return Run(np.concatenate(answers), alarms, 1 - learned / count, time.perf_counter() - begun)


def reshuffled(file: File, random: Random) -> Stream:
    """Every sample once."""
    return in_order(file, random.permutation(len(file.labels)), random)


def with_replacement(file: File, random: Random, *, reference: int = 0) -> Stream:
    """Independent draws, and a reference of so many others."""
    stream = in_order(file, random.integers(len(file.labels), size=LONG), random)
    if not reference:
        return stream
    trusted = file.features[random.integers(len(file.labels), size=reference)]
    return stream._replace(reference=ScoreReference.of(file.classifier, trusted))


WAYS: dict[str, Callable[[File, Random], Stream]] = {
    "reshuffled": reshuffled,
    "with replacement": with_replacement,
    "given reference": partial(with_replacement, reference=200),
}


def foreign(file: File, junk: Tensor, random: Random, *, share: float, start: int = START) -> Stream:
    """Samples of another file."""
    return mixed(file, junk, share, random, start=start)


def flood(file: File, junk: Tensor, random: Random) -> Stream:
    """One picture of the file."""
    return mixed(file, file.features[[random.integers(len(file.labels))]], 0.3, random)


def sorted_stream(file: File, junk: Tensor, random: Random, *, start: int) -> Stream:
    """By class, after so many shuffled samples."""
    order = drawn(file, random)
    return in_order(file, np.concatenate([order[:start], *by_class(file, order[start:], random)]), random)._replace(
        start=start
    )


EVENTS: dict[str, Callable[[File, Tensor, Random], Stream]] = {
    **{f"foreign {percent} %": partial(foreign, share=percent / 100) for percent in (5, 20, 50)},
    **{f"polluted {percent} %": partial(foreign, share=percent / 100, start=0) for percent in (20, 50)},
    "flood": flood,
    "sorted": partial(sorted_stream, start=START),
    "sorted at once": partial(sorted_stream, start=0),
}


class Job(NamedTuple):
    """One stream: an event with the file that junk is from, or a way without an event."""

    folder: Path
    file: str
    title: str
    method: str
    junk: str
    seed: int


def run_job(job: Job) -> tuple[int, list[tuple[str, int]]]:
    """How many samples a stream has, and the alarms: kind, and samples since the event began."""
    file, random = opened(job.folder, job.file), np.random.default_rng([job.seed, FILES.index(job.file)])
    if job.title in WAYS:
        stream = WAYS[job.title](file, random)._replace(start=0)
    else:
        stream = EVENTS[job.title](file, opened(job.folder, job.junk).features, random)
    run = guarded(stream, job.method, Chosen())
    return len(stream.labels), [(alarm.kind, alarm.position - stream.start) for alarm in run.alarms]


def false_alarms(jobs: list[Job], found: list[Any]) -> Iterator[Row]:
    """A row for each kind, of streams without an event."""
    samples = sum(count for count, _ in found)
    for kind in KINDS[:-1]:
        raised = [sum(one == kind for one, _ in alarms) for _, alarms in found]
        yield {
            **about(jobs[0]),
            **{"streams": len(found), "samples": samples, "alarm": kind, "raised": sum(raised)},
            "streams_with": sum(count > 0 for count in raised),
            "allowed": round(samples / 1e6 + 0.005 * len(found), 2) if kind == "foreign-input" else "",
            "hardware": hardware(),
        }


def delays(jobs: list[Job], found: list[Any]) -> Iterator[Row]:
    """A row for each kind that was raised in any stream of an event, or should have been."""
    should = {"flood": "one-source", "sorted": "sorted", "sorted at once": "sorted"}.get(jobs[0].title, "foreign-input")
    for kind in KINDS:
        first = [min((at for one, at in alarms if one == kind and at > 0), default=np.inf) for _, alarms in found]
        median = float(np.median(first)) if np.isfinite(np.median(first)) else "missed"
        if kind == should or np.isfinite(first).any():
            yield {
                **about(jobs[0]),
                "junk": jobs[0].junk if len({job.junk for job in jobs}) == 1 else "each",
                **{"streams": len(found), "alarm": kind, "is_meant": kind == should, "delay": median},
                **{f"within_{most}": round(100 * np.mean(np.array(first) <= most)) for most in (200, 300, 500, 1500)},
                "hardware": hardware(),
            }


def about(job: Job) -> Row:
    """The first columns of a row."""
    role = "development" if job.file in DEVELOPMENT else "shown"
    return {"file": job.file, "role": role, "stream": job.title, "method": job.method}


def pooled(work: Callable[[Any], Any], jobs: list[Any], workers: int) -> Iterator[Any]:
    """What each job returns, in their order; what is done is told on stderr."""
    begun, told = time.monotonic(), 0.0
    with multiprocessing.get_context("spawn").Pool(workers, torch.set_num_threads, (1,)) as pool:
        for done, found in enumerate(pool.imap(work, jobs), 1):
            if (spent := time.monotonic() - begun) > told + 5 or done == len(jobs):
                print(f"{done} of {len(jobs)} jobs, {spent:.0f} s", file=sys.stderr, flush=True)
                told = spent
            yield found


def options(description: str | None, methods: tuple[str, ...]) -> argparse.ArgumentParser:
    """The options of a benchmark of streams."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=Path, default=FEATURES, help="folder of the feature files")
    parser.add_argument("--workers", type=int, default=2, help="processes, each with one thread")
    parser.add_argument("--file", action="append", choices=(*FILES, FASHION), help="only this one; may be repeated")
    parser.add_argument("--method", action="append", choices=methods, help="only this one; may be repeated")
    parser.add_argument("--seeds", type=int, help="only so many")
    parser.add_argument("--out", type=Path)
    return parser


def main() -> None:
    """Measure all streams, and write a table."""
    parser = options(__doc__, METHODS)
    parser.add_argument("table", choices=("false-alarms", "delay"))
    given = parser.parse_args()
    is_delay, files = given.table == "delay", given.file or FILES
    seeds = range(1, 1 + (given.seeds or (DELAY_SEEDS if is_delay else STREAMS)))
    methods = given.method or (METHODS[:1] if is_delay else METHODS)
    jobs = list[Job]()
    for file, method, title in product(files, methods, EVENTS if is_delay else WAYS):
        others = [other for other in FILES if other != file] if title.startswith(("foreign", "polluted")) else [file]
        jobs += [Job(given.features, file, title, method, junk, seed) for junk, seed in product(others, seeds)]
    measured = zip(jobs, pooled(run_job, jobs, given.workers), strict=True)

    def rows() -> Iterator[Row]:
        for _, pairs in groupby(measured, key=lambda pair: pair[0][1:4]):
            own, found = (list(one) for one in zip(*pairs, strict=True))
            if not is_delay:
                yield from false_alarms(own, found)
                continue
            yield from delays(own, found)
            if len(own) > len(seeds):
                for start in range(0, len(own), len(seeds)):
                    part = slice(start, start + len(seeds))
                    yield from delays(own[part], found[part])

    write(given.out or RESULTS / f"monitors-{given.table}.csv", rows())


if __name__ == "__main__":
    main()

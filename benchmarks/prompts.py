"""How fast the methods that follow a gradient are, beside loops that do what the released programs do, in one run.

    OMP_NUM_THREADS=1 python benchmarks/prompts.py        writes benchmarks/results/prompts-cpu.csv
    python benchmarks/prompts.py --device cuda            writes benchmarks/results/prompts-gpu.csv

TPT from stored views, with the text tower of a ViT-B/16 of random weights and names of ImageNet's classes. The loop
reads 77 tokens for every class, forward, backward and forward, one image at a time; others do the same with fewer
tokens. GS-Bias and DPE on synthetic features like CLIP's, beside loops with automatic differentiation
(`autograd_loops.py`), and beside the matrix products that no form of them can do without.

The ways take turns, and a ratio is the median of the rounds' ratios. On a CPU times are those of the processor, with
one thread. That takes some twelve minutes, most of them for the map of 100 classes.
"""

import argparse
import gc
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from autograd_loops import DPELoop, average_entropy, confident, gs_bias
from random_clip import random_state
from result_file import RESULTS, Row, write
from synthetic import clip_like
from torch import Tensor
from torch.nn.functional import normalize, pad

from pta import Adapter, Samples, ZeroShotClassifier, create_adapter
from pta.data.catalogue import catalogue
from pta.engines.caches.admission import EMPTY
from pta.measure.provenance import hardware
from pta.models import Encoder
from pta.models.clip.encoder import ClipEncoder
from pta.models.clip.prompts import PromptTokens, tokenize_prompts
from pta.models.clip.tokenizer import END

VIEWS, PATCHES, DIM, TOKENS, START = 64, 196, 512, 77, "a photo of a"
GS_BIAS = {"alpha": 1.0, "beta": 1.0, "steps": 5, "keep": 0.5, "top_patches": 16}  # as for the fine-grained datasets
LOOP, PRODUCTS = "loop", "its matrix products alone"

Read = Callable[[Tensor], Tensor]


class Sizes(NamedTuple):
    """How much is measured."""

    tpt_classes: Sequence[int]
    tpt_batch: int
    tpt_rounds: int
    gs_bias_classes: Sequence[int] = (10, 100, 1000)
    dpe_classes: int = 1000
    rounds: int = 7
    memory_batches: Sequence[int] = (1, 8, 32)


class Way(NamedTuple):
    """One way to answer samples: in round r those from the r-th on, so many of them."""

    run: Callable[[int], Tensor | None]  # gives their logits, or nothing to compare
    samples: int = 1


class Bench:
    """Measures ways beside each other on a device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.on_gpu = device.type == "cuda"

    def seconds(self, run: Callable[[], Any]) -> tuple[float, Any]:
        """How long something takes, and what it gives."""
        clock = time.perf_counter if self.on_gpu else time.process_time
        if self.on_gpu:
            torch.cuda.synchronize()
        begun = clock()
        result = run()
        if self.on_gpu:
            torch.cuda.synchronize()
        return clock() - begun, result

    def rows(self, ways: dict[str, Way], rounds: int, once: dict[str, float] | None = None, **what: Any) -> list[Row]:
        """All ways in turns; the first one is what others are compared with. `once` is what they cost beforehand."""
        print("measuring", *what.values(), file=sys.stderr, flush=True)
        times: dict[str, list[float]] = {name: [] for name in ways}
        apart = dict.fromkeys(ways, 0.0)
        for number in range(rounds):
            expected: Tensor | None = None
            for name, way in ways.items():
                seconds, logits = self.seconds(partial(way.run, number))
                times[name].append(seconds / way.samples)
                if expected is None:
                    expected = logits
                elif logits is not None:
                    difference = (logits[: len(expected)] - expected).abs().max()
                    apart[name] = max(apart[name], float(difference))
        first, *_ = times.values()
        return [
            self.row(
                **what,
                way=name,
                batch=ways[name].samples if not name.startswith(LOOP) else 1,
                ms_per_sample=round(1e3 * median(own), 3),
                times_as_fast=round(median(slow / fast for slow, fast in zip(first, own, strict=True)), 1),
                logits_apart="" if name == PRODUCTS else f"{apart[name]:.1e}",
                seconds_once=round((once or {}).get(name, 0.0), 1) or "",
            )
            for name, own in times.items()
        ]

    def row(self, **cells: Any) -> Row:
        """A row of the table; what it does not have stays empty."""
        columns = "method classes setting way batch ms_per_sample times_as_fast logits_apart seconds_once peak_gib"
        return {**dict.fromkeys(columns.split(), ""), **cells, "hardware": hardware(self.device)}


def around(rows: Tensor, count: int, spread: float) -> Tensor:
    """Unit rows around each of B×d, B×count×d, the row itself first."""
    rng = torch.Generator().manual_seed(len(rows))
    noise = torch.randn(len(rows), count, rows.shape[1], generator=rng) * spread / rows.shape[1] ** 0.5
    noise[:, 0] = 0
    return normalize(rows[:, None] + noise.to(rows), dim=2)


# -- TPT --------------------------------------------------------------------------------------------------------------


def random_encoder(device: torch.device, small: bool) -> Encoder:
    """A ViT-B/16 with random weights in float32, or a tiny model."""
    return ClipEncoder(random_state("ViT", small=small), quick_gelu=True).ready(device)


def imagenet_names(count: int) -> Sequence[str]:
    """Names of ImageNet's classes, evenly spread."""
    names = catalogue()["imagenet"].class_names
    return names[:: len(names) // count][:count]


def readers(encoder: Encoder, names: Sequence[str]) -> dict[str, Read]:
    """Contexts 1×n×width to class features 1×C×d, with ever less to compute."""
    prompts = tokenize_prompts(encoder.tokenize, names, START)
    missing = (0, TOKENS - prompts.ids.shape[1])
    whole = replace(prompts, ids=pad(prompts.ids, missing, value=END), mask=pad(prompts.mask, missing, value=False))
    return {
        f"{LOOP}, 77 tokens": partial(encoder._read_prompts, whole),
        f"{LOOP}, until the end token": until_the_end(encoder, prompts),
        f"{LOOP}, shared beginning": encoder._prompt_reader(prompts),
    }


def until_the_end(encoder: Encoder, prompts: PromptTokens) -> Read:
    """Every class's prompt without padding: classes of one length are read together."""
    lengths = prompts.mask.sum(dim=1)
    groups = [(lengths == length).nonzero()[:, 0] for length in lengths.unique()]
    place = torch.cat(groups).argsort()
    parts = []
    for group in groups:
        part, length = prompts.of(group), int(lengths[group[0]])
        parts.append(replace(part, ids=part.ids[:, :length], mask=part.mask[:, :length]))

    def read(contexts: Tensor) -> Tensor:
        return torch.cat([encoder._read_prompts(part, contexts) for part in parts], dim=1)[:, place]

    return read


def tpt_loop(read: Read, start: Tensor, views: Tensor, scale: float) -> Tensor:
    """TPT on the views V×d of one image, as its released program does it: the logits, 1×C."""
    context = start.clone().requires_grad_()
    optimiser = torch.optim.AdamW([context], lr=5e-3, weight_decay=0.01)
    with torch.enable_grad():
        z = scale * views @ read(context[None])[0].T
        average_entropy(z[confident(z.detach(), 0.1)]).backward()
    optimiser.step()
    with torch.no_grad():
        return scale * views[:1] @ read(context[None])[0].T


class PromptedData(NamedTuple):
    """An encoder, the classifier of some class names, and samples with views."""

    encoder: Encoder
    classifier: ZeroShotClassifier
    samples: Samples

    @classmethod
    def of(cls, encoder: Encoder, classes: int, count: int) -> "PromptedData":
        """Samples around the texts of ImageNet's classes."""
        names = imagenet_names(classes)
        tower = encoder.prompt_tower(names, START)
        with torch.no_grad():
            anchors = tower.read(tower.context[None])[0]
        labels = torch.randint(classes, (count,), generator=torch.Generator().manual_seed(0))
        features = around(anchors[labels.to(anchors.device)], 2, 1.0)[:, 1]
        return cls(encoder, ZeroShotClassifier(anchors, names), Samples(features, views=around(features, VIEWS, 1.0)))

    def tpt(self, **parameters: Any) -> Adapter:
        return create_adapter("tpt", self.classifier, model=self.encoder, **parameters)


def tpt(bench: Bench, encoder: Encoder, classes: int, sizes: Sizes) -> Iterator[Row]:
    """The loop with ever fewer tokens, and ours."""
    batch = sizes.tpt_batch
    data = PromptedData.of(encoder, classes, batch + sizes.tpt_rounds)
    start, views = encoder.prompt_tower(data.classifier.class_names, START).context, data.samples.views
    assert views is not None

    def loop(read: Read, number: int) -> Tensor:
        return tpt_loop(read, start, views[number], data.classifier.scale)

    def ours(adapter: Adapter, number: int) -> Tensor:
        return adapter.predict(data.samples[number : number + batch])

    ways = {name: Way(partial(loop, read)) for name, read in readers(encoder, data.classifier.class_names).items()}
    backward = data.tpt(first_gradient="backward")
    mapped = data.tpt(first_gradient="map", max_gib=max(1.0, classes / 200))  # 5 GiB for 1000 classes
    once = {"ours, map": bench.seconds(lambda: mapped._map)[0]}  # type: ignore[attr-defined]
    for name, adapter in (("ours, backward", backward), ("ours, map", mapped)):
        ours(adapter, 0)  # makes what all steps share
        ways[name] = Way(partial(ours, adapter), batch)
    if bench.on_gpu:
        for way in ways.values():
            way.run(0)
    yield from bench.rows(ways, sizes.tpt_rounds, once, method="tpt", classes=classes, setting=f"{VIEWS} views")


def memory(bench: Bench, encoder: Encoder, classes: int, sizes: Sizes) -> Iterator[Row]:
    """What a step of TPT takes on a GPU, beside the model and the samples."""
    for max_gib in (1, 2):
        for batch in sizes.memory_batches:
            data = PromptedData.of(encoder, classes, batch)
            gc.collect()  # the adapter before
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            data.tpt(first_gradient="backward", max_gib=max_gib).step(data.samples)
            peak = (torch.cuda.max_memory_allocated() - before) / 2**30
            what = {"method": "tpt", "classes": classes, "setting": f"max_gib={max_gib}", "way": "ours, backward"}
            yield bench.row(**what, batch=batch, peak_gib=round(peak, 3))


# -- GS-Bias and DPE --------------------------------------------------------------------------------------------------


def gs_bias_rows(bench: Bench, classes: int, sizes: Sizes) -> Iterator[Row]:
    """Batches of 64 beside one image at a time."""
    batch, few = 64, 8
    classifier, features = on(bench.device, *clip_like(classes, DIM, batch))
    patches = around(features, PATCHES, 1.0)
    samples = Samples(features, views=around(features, 8, 0.5), patches=patches)
    adapter = create_adapter("gs-bias", classifier, **GS_BIAS)
    given = [samples.features[:few], *(samples.tensors()[name][:few] for name in ("views", "patches"))]

    def loop(_: int) -> Tensor:
        one = partial(gs_bias, classifier.anchors, scale=classifier.scale, decided_in=torch.float32, **GS_BIAS)
        return torch.stack([one(*sample)[0] for sample in zip(*given, strict=True)])

    def products(_: int) -> None:
        for own in patches:
            own @ classifier.anchors.T

    ways = {
        LOOP: Way(loop, few),
        "ours": Way(lambda _: adapter.step(samples), batch),
        PRODUCTS: Way(products, batch),
    }
    ways["ours"].run(0)
    yield from bench.rows(ways, sizes.rounds, method="gs-bias", classes=classes, setting=f"8 views, {PATCHES} patches")


def dpe_rows(bench: Bench, classes: int, seen: int, first_views: int, sizes: Sizes) -> Iterator[Row]:
    """One sample after the other, when so many classes have something in the cache."""
    classifier, features = on(bench.device, *clip_like(classes, DIM, 8 * classes))
    labels = classifier.logits(features).argmax(dim=1)
    features, labels = features[labels < seen], labels[labels < seen]
    samples = Samples(features[: sizes.rounds + 1], views=around(features[: sizes.rounds + 1], VIEWS, 0.5))
    adapter = create_adapter("dpe", classifier, first_views=first_views)
    loop = DPELoop(classifier.anchors, scale=classifier.scale, decided_in=torch.float32)
    fill(adapter, loop, features[sizes.rounds + 1 :], labels[sizes.rounds + 1 :])
    views = samples.tensors()["views"][:, :first_views]
    visual = adapter.keys[adapter.scores[:, 0] < EMPTY, 0]

    def products(_: int) -> None:
        similar = visual @ visual.T
        similar @ visual
        similar.T @ visual

    ways = {
        LOOP: Way(lambda number: loop(samples.features[number], views[number])[0][None]),
        "ours": Way(lambda number: adapter.step(samples[number : number + 1])),
        PRODUCTS: Way(products),
    }
    for way in ways.values():
        way.run(sizes.rounds)
    setting = f"{first_views} view(s), {len(visual)} classes seen"
    yield from bench.rows(ways, sizes.rounds, method="dpe", classes=classes, setting=setting)


def fill(adapter: Adapter, loop: DPELoop, features: Tensor, labels: Tensor) -> None:
    """Let up to three samples of every class into both caches, one less confident than the other."""
    for feature, label in zip(features, labels.tolist(), strict=True):
        place = len(loop.cache.get(label, []))
        if place < loop.slots:
            loop.remember(label, feature[None], 0.1 + 0.01 * place)
            adapter.keys[label, place], adapter.scores[label, place] = feature, 0.1 + 0.01 * place


def on(device: torch.device, classifier: ZeroShotClassifier, features: Tensor) -> tuple[ZeroShotClassifier, Tensor]:
    return classifier.to(device=device), features.to(device)


def everything(bench: Bench, sizes: Sizes, small: bool) -> Iterator[Row]:
    """All rows of the table."""
    encoder = random_encoder(bench.device, small)
    yield from chain.from_iterable(tpt(bench, encoder, classes, sizes) for classes in sizes.tpt_classes)
    if bench.on_gpu:
        yield from memory(bench, encoder, sizes.tpt_classes[-1], sizes)
    yield from chain.from_iterable(gs_bias_rows(bench, classes, sizes) for classes in sizes.gs_bias_classes)
    for first_views in (VIEWS, 1):
        for seen in (sizes.dpe_classes // 20, sizes.dpe_classes):
            yield from dpe_rows(bench, sizes.dpe_classes, seen, first_views, sizes)


def main() -> None:
    """Measure everything and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--classes", type=int, nargs="+", help="of TPT: 16 and 100 on a CPU, 1000 on a GPU")
    parser.add_argument("--small", action="store_true", help="a tiny model and few classes, to try the program")
    parser.add_argument("--out", type=Path, help="the table to write")
    arguments = parser.parse_args()
    bench = Bench(torch.device(arguments.device))
    torch.set_num_threads(1)
    sizes = Sizes((1000,), 8, 3) if bench.on_gpu else Sizes((16, 100), 4, 2)
    if arguments.small:
        sizes = Sizes((8, 20), 3, 2, (10, 20), 40, 2, (1, 2))
    sizes = sizes._replace(tpt_classes=arguments.classes or sizes.tpt_classes)
    out = arguments.out or RESULTS / f"prompts-{'gpu' if bench.on_gpu else 'cpu'}.csv"
    write(out, everything(bench, sizes, arguments.small))


if __name__ == "__main__":
    main()

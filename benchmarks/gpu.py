"""How fast images become answers on a GPU: plain code beside `pta.compile`, method by method, in one run.

    python benchmarks/gpu.py             writes seven tables gpu….csv to benchmarks/results
    python benchmarks/gpu_figure.py      draws docs/images/speed.svg from them

Weights are random, images are noise: neither changes what a GPU has to do. What a method has to do does depend on the
features, so the classes are laid around those that the model gives, and the scale of the logits is chosen such that the
model is as sure of its answers as CLIP is on ImageNet (0.6 on average); `touches` says how many classes a sample moves.
Pixels are ready on the device as bytes, unless said otherwise.

Times are taken by CUDA events around single turns; the methods take turns, so that all of them see the same GPU, whose
clock moves by a few per cent. A time is the median over the rounds, a ratio the median of the rounds' ratios.
`wall_images_per_second` is by the clock of the host instead, over seconds of calls without a pause.
"""

import argparse
import gc
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, cycle, product
from statistics import median
from unittest.mock import patch

import torch
from naive import CacheLoop, PaperLoop
from random_clip import random_state
from result_file import RESULTS, Row, write
from torch import Tensor
from torch.nn.functional import normalize
from torch.utils.flop_counter import FlopCounterMode

import pta
from pta import Samples, ZeroShotClassifier, create_adapter
from pta.engines.gpu.triton_metric import inverse_on_gpu
from pta.engines.whitened.within_class import inverse_by_products
from pta.models import Encoder
from pta.models.clip.encoder import ClipEncoder

MODELS = {"ViT-B/16": "ViT", "RN50": "RN50"}
BATCHES, CLASSES = (1, 32, 256), (10, 100, 1000, 21841)
POOL = 512  # different images
SURE = 0.6
NAIVE: dict[str, Callable[[ZeroShotClassifier], Callable[[Tensor], Tensor]]] = {
    "clip": lambda classifier: classifier.logits,
    "pta": PaperLoop,
    "tda": CacheLoop,
}
CALLS = {1: 8, 32: 4, 256: 1}  # in a turn
ROUNDS, BUILDS = 12, 2
WALL_CLASSES, WALL_IMAGES = 1000, 4096
NAIVE_ROUNDS = {1: 20, 32: 2, 256: 1}
OTHERS = ("sca", "bca", "onzeta", "adapt", "oga", "dota")
OTHERS_BATCHES = (1, 32)
SMALL_BATCHES = (1, 2, 4, 8, 16, 32)
FRAME = (480, 640)


Run = Callable[[], object]


def random_encoder(kind: str) -> Encoder:
    """CLIP of full size, with random weights, in half precision."""
    return ClipEncoder(random_state(kind, small=False), quick_gelu=True).ready("cuda", torch.float16)


def measured_peak() -> float:
    """Operations a second of a large matrix product in half precision."""
    a, b = torch.randn(2, 8192, 8192, device="cuda", dtype=torch.float16)
    return 2 * 8192**3 / (median(turns({"product": lambda: a @ b}, 1, 20)["product"]) / 1e3)


def operations(encoder: Encoder) -> int:
    """Of encoding one image, multiplications and additions counted apart; without gradients kernels would hide them."""
    size = encoder.preprocess.size
    with torch.enable_grad(), FlopCounterMode(display=False) as counter:
        encoder.features(torch.zeros(1, 3, size, size, dtype=encoder.dtype, device=encoder.device))
    return counter.get_total_flops()


def classes_around(features: Tensor, count: int) -> tuple[ZeroShotClassifier, float]:
    """A classifier whose classes lie among the features, and how many of them a sample touches on average."""
    rng = torch.Generator(device="cuda").manual_seed(1)
    middle = features.mean(dim=0)
    away = normalize(features - middle, dim=1)
    anchors = normalize(torch.randn(count, features.shape[1], device="cuda", generator=rng), dim=1)
    own = torch.arange(len(features), device="cuda") % count
    anchors = anchors.index_add(0, own, 2 * away)
    anchors = normalize(normalize(middle, dim=0) + normalize(anchors, dim=1), dim=1)
    cosines = features @ anchors.T
    low, high = 0.0, 1e6
    for _ in range(60):
        scale = (low + high) / 2
        sure = float((scale * cosines).softmax(dim=1).amax(dim=1).mean())
        low, high = (scale, high) if sure < SURE else (low, scale)
    touches = float(((scale * cosines).softmax(dim=1) >= 0.1).sum(dim=1).float().mean())
    return ZeroShotClassifier(anchors, [f"class {c}" for c in range(count)], scale), touches


def turns(ways: dict[str, Run], calls: int, rounds: int) -> dict[str, list[float]]:
    """Milliseconds a call of each way, round by round, after one round to warm up; in every other round in reverse."""
    events: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {name: [] for name in ways}
    for round_ in range(rounds + 1):
        for name in sorted(ways, reverse=round_ % 2 == 1):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(calls):
                ways[name]()
            end.record()
            events[name].append((begin, end))
    torch.cuda.synchronize()
    return {name: [begin.elapsed_time(end) / calls for begin, end in each[1:]] for name, each in events.items()}


def reserved() -> float:
    """The MiB of the device that are in use."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved() / 2**20


def recorded(work: Run) -> Run:
    """Work as a CUDA graph, so that its launches cost nothing."""
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def ours(encoder: Encoder, classifier: ZeroShotClassifier, method: str, pool: Tensor, batch: int) -> Run:
    """`pta.compile`, with a method."""
    run, images = pta.compile(encoder, adapter_for(method, classifier), batch=batch), cycle(pool.split(batch))
    return lambda: run(next(images))


def naive(encoder: Encoder, classifier: ZeroShotClassifier, method: str, pool: Tensor, batch: int) -> Run:
    """What one writes first: the model as it is, the method sample by sample."""
    step, images = NAIVE[method](classifier), cycle(pool.split(batch))
    return lambda: step(encoder.encode(next(images))).argmax(dim=1)


def adapter_for(method: str, classifier: ZeroShotClassifier) -> pta.Adapter:
    return create_adapter(method, classifier, **{"length": 10**6} if method == "onzeta" else {})


def step_alone(adapter: pta.Adapter, features: Tensor, batch: int) -> float:
    """Microseconds of a step on features that are ready, zero-shot logits included."""
    parts = features.split(batch)[:8]
    run = recorded(lambda: [adapter.step_unchecked(part) for part in parts])
    return 1e3 * median(turns({"step": run}, 1, 20)["step"]) / len(parts)


def compare(name: str, encoder: Encoder, pool: Tensor, peak: float) -> Iterator[Row]:
    """CLIP, PTA and TDA with one model, for every batch and number of classes."""
    features, flops = encoder.encode(pool), operations(encoder)
    for batch, count in product(BATCHES, CLASSES):
        classifier, touches = classes_around(features, count)
        ours(encoder, classifier, "clip", pool, batch)  # compiles the model, which is not to be measured
        steps = {method: step_alone(adapter_for(method, classifier), features, batch) for method in NAIVE}
        for way, calls, rounds, builds in (
            (ours, CALLS[batch], ROUNDS, BUILDS),
            (naive, 1, NAIVE_ROUNDS[batch], 1),
        ):
            makers = {method: partial(way, encoder, classifier, method, pool, batch) for method in NAIVE}
            times, memory = repeated_turns(makers, calls, rounds, builds)
            by_clock = way is ours and count == WALL_CLASSES
            walls = {method: wall_pace(makers[method](), batch) if by_clock else "" for method in NAIVE}
            for method in NAIVE:
                pace = batch / median(times[method]) * 1e3
                yield {
                    "model": f"{name}, random weights",
                    "classes": count,
                    "batch": batch,
                    "method": method,
                    "way": way.__name__,
                    "images_per_second": round(pace, 1),
                    "wall_images_per_second": walls[method],
                    "of_clip": ratio(times["clip"], times[method]),
                    "step_us": round(steps[method], 1) if way is ours else "",
                    "share_of_peak": round(pace * flops / peak, 4),
                    "memory_mib": round(memory[method], 1),
                    "over_clip_mib": round(memory[method] - memory["clip"], 1),
                    "touches": round(touches, 2),
                }


def wall_pace(run: Run, batch: int) -> float:
    """Images per second by the host's clock."""
    run()
    torch.cuda.synchronize()
    begun, calls = time.perf_counter(), max(64, WALL_IMAGES // batch)
    for _ in range(calls):
        run()
    torch.cuda.synchronize()
    return round(calls * batch / (time.perf_counter() - begun), 1)


def repeated_turns(
    makers: dict[str, Callable[[], Run]], calls: int, rounds: int, builds: int
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """`turns` of what is built several times, in another order each time, and the MiB that each one holds.

    Where its tensors happen to lie in memory makes the same program one per cent faster or slower.
    """
    times: dict[str, list[float]] = {name: [] for name in makers}
    memory: dict[str, float] = {}
    names = list(makers)
    for build in range(builds):
        ways: dict[str, Run] = {}
        for name in names[build:] + names[:build]:
            before = reserved()
            ways[name] = makers[name]()
            ways[name]()
            memory[name] = reserved() - before
        for name, found in turns(ways, calls, rounds).items():
            times[name] += found
    return times, memory


def ratio(clip: list[float], method: list[float]) -> float:
    """The method's speed as a share of CLIP's."""
    return round(median(one / other for one, other in zip(clip, method, strict=True)), 4)


def beside_clip(name: str, batch: int, method: str, times: dict[str, list[float]]) -> Row:
    """A method for a thousand classes, as a share of CLIP, given the milliseconds that batches of both took."""
    return {
        "model": f"{name}, random weights",
        "classes": 1000,
        "batch": batch,
        "method": method,
        "images_per_second": round(batch / median(times[method]) * 1e3, 1),
        "of_clip": ratio(times["clip"], times[method]),
    }


def others(name: str, encoder: Encoder, pool: Tensor) -> Iterator[Row]:
    """The other methods that answer from features, for a thousand classes."""
    classifier, _ = classes_around(encoder.encode(pool), 1000)
    for batch in OTHERS_BATCHES:
        clip = ours(encoder, classifier, "clip", pool, batch)
        for method in OTHERS:
            times = turns({"clip": clip, method: ours(encoder, classifier, method, pool, batch)}, 1, 8)
            kept = {"state_mib": round(adapter_for(method, classifier).state_bytes / 2**20, 1)}
            yield beside_clip(name, batch, method, times) | kept


def whitened(name: str, encoder: Encoder, pool: Tensor) -> Iterator[Row]:
    """WPTA beside CLIP and PTA for a thousand classes, refreshes included, and what a step and a refresh take."""
    features = encoder.encode(pool)
    classifier, _ = classes_around(features, 1000)
    settings: dict[str, tuple[str, dict[str, object]]] = {
        "clip": ("clip", {}),
        "pta": ("pta", {}),
        "wpta": ("wpta", {"prior": "none", "gate": "none", "calibration": "fixed"}),
        "wpta with the prior": ("wpta", {"gate": "none", "calibration": "fixed"}),
        "wpta with prior and gate": ("wpta", {"calibration": "fixed"}),
        "wpta with prior, gate and matched calibration": ("wpta", {"calibration": "matched"}),
    }

    def make(method: str, parameters: dict[str, object], batch: int) -> Run:
        run = pta.compile(encoder, create_adapter(method, classifier, **parameters), batch=batch)
        images = cycle(pool.split(batch))
        return lambda: run(next(images))

    for batch in (1, 256):
        make("clip", {}, batch)  # compiles the model, which is not to be measured
        makers = {title: partial(make, *setting, batch) for title, setting in settings.items()}
        times, _ = repeated_turns(makers, 128 if batch == 1 else 2, ROUNDS, BUILDS)
        for title, (method, parameters) in settings.items():
            adapter = create_adapter(method, classifier, **parameters)
            part = Samples.unchecked(features[: min(batch, adapter.refresh_interval or batch)])
            step = recorded(partial(adapter.step_before_refresh, part))
            alone = {"step": step} | ({"refresh": recorded(adapter.refresh_state)} if adapter.refresh_interval else {})
            took = {work: median(found) for work, found in turns(alone, 1, 20).items()}
            yield beside_clip(name, batch, title, times) | {
                "step_us": round(1e3 * took["step"], 1),
                "refresh_us": round(1e3 * took["refresh"], 1) if "refresh" in took else "",
            }


def inverses(dim: int) -> Iterator[Row]:
    """The inverse in WPTA by a Cholesky factor, by products in PyTorch and by our kernels, and from the last one."""
    rng = torch.Generator(device="cuda").manual_seed(0)
    shape = torch.linspace(3, 0.1, dim, device="cuda")
    samples = torch.randn(8192, dim, device="cuda", generator=rng) * shape

    def to_invert(count: int) -> Tensor:
        covariance = torch.cov(samples[:count].T)
        return covariance * dim / covariance.trace() / 4 + torch.eye(dim, device="cuda")

    def by_cholesky(matrix: Tensor) -> Tensor:
        lower, _ = torch.linalg.cholesky_ex(matrix)
        root = torch.linalg.solve_triangular(lower, torch.eye(dim, device="cuda"), upper=False)
        return root.T @ root

    def by_products(matrix: Tensor, guess: Tensor, steps: int) -> Tensor:
        for _ in range(steps):
            guess = 2 * guess - guess @ matrix @ guess
        return guess

    for seen in (256, 1024, 8192):
        matrix, guess = to_invert(seen), by_cholesky(to_invert(seen - 128))
        exact = torch.linalg.inv(matrix.double())
        ways = {
            "Cholesky": partial(by_cholesky, matrix),
            "products": partial(inverse_by_products, matrix, 1 + dim / 4),
            "products by our kernels": partial(inverse_on_gpu, matrix, 1 + dim / 4),
        } | {f"{steps} steps from the previous metric": partial(by_products, matrix, guess, steps) for steps in (2, 3)}
        for way, work in ways.items():
            time = median(turns({way: recorded(work)}, 1, 20)[way])
            error = float((work() - exact).abs().max() / exact.abs().max())
            yield {"dim": dim, "samples": seen, "way": way, "us": round(1e3 * time, 1), "error": f"{error:.1e}"}


def forms(dim: int) -> Iterator[Row]:
    """PTA's step for small batches: as a batch, and one kernel after the other."""
    rng = torch.Generator(device="cuda").manual_seed(0)
    features = normalize(torch.randn(512, dim, device="cuda", generator=rng), dim=1)
    for count, batch in product((10, 100, 1000), SMALL_BATCHES):
        classifier, touches = classes_around(features, count)
        times = {}
        for form, most in (("steps", batch), ("batch", 0)):
            with patch("pta.engines.gpu.triton.MOST_STEPS", most):
                times[form] = step_alone(create_adapter("pta", classifier), features, batch)
        yield {"dim": dim, "classes": count, "batch": batch, "touches": round(touches, 2)} | {
            f"{form}_us": round(time, 1) for form, time in times.items()
        }


def sources(name: str, encoder: Encoder, pool: Tensor) -> Iterator[Row]:
    """PTA on pixels that are ready, that come from the host, and that are resized on the device."""
    classifier, _ = classes_around(encoder.encode(pool), 1000)
    frames = torch.randint(0, 256, (POOL, 3, *FRAME), dtype=torch.uint8, device="cuda")
    for batch in (1, 256):
        compiled = partial(pta.compile, encoder, batch=batch)
        ready = compiled(create_adapter("pta", classifier))
        resizing = compiled(create_adapter("pta", classifier), frame=FRAME)
        on_host = [part.cpu() for part in pool.split(batch)]
        ways = {
            "ready on the device": lambda ready=ready, batch=batch: [ready(part) for part in pool.split(batch)],
            "from the host, streamed": lambda ready=ready, on_host=on_host: list(ready.stream(on_host)),
            f"{FRAME[1]}×{FRAME[0]} on the device": lambda resizing=resizing, batch=batch: [
                resizing(part) for part in frames.split(batch)
            ],
        }
        for way, times in turns(ways, 1, 5).items():
            yield {
                "model": f"{name}, random weights",
                "batch": batch,
                "pixels": way,
                "images_per_second": round(POOL / median(times) * 1e3, 1),
            }


def profile(name: str, encoder: Encoder, pool: Tensor) -> Iterator[Row]:
    """Which kernels the time of a batch with PTA goes to."""
    classifier, _ = classes_around(encoder.encode(pool), 1000)
    for batch in (1, 256):
        run = ours(encoder, classifier, "pta", pool, batch)
        run()
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
            for _ in range(4):
                run()
            torch.cuda.synchronize()
        kernels = [(one.key, one.self_device_time_total / 4, one.count / 4) for one in profiler.key_averages()]
        for kernel, microseconds, count in sorted(kernels, key=lambda kernel: -kernel[1])[:20]:
            yield {
                "model": f"{name}, random weights",
                "batch": batch,
                "kernel": kernel[:80],
                "us": round(microseconds, 1),
                "launches": count,
            }


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", help="the tables to write, for example gpu.csv; all if not given")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), help="those of gpu.csv")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        parser.exit(1, "this needs a GPU that PyTorch can use\n")
    peak = measured_peak()
    machine = f"{torch.cuda.get_device_name()}, {peak / 1e12:.0f} TFLOP/s measured; torch {torch.__version__}"
    rng = torch.Generator(device="cuda").manual_seed(0)
    pool = torch.randint(0, 256, (POOL, 3, 224, 224), dtype=torch.uint8, device="cuda", generator=rng)
    models = {name: random_encoder(MODELS[name]) for name in given.models}
    first = next(iter(models.items()))
    tables: dict[str, Iterator[Row]] = {
        "gpu-forms.csv": forms(512),
        "gpu.csv": chain.from_iterable(compare(*model, pool, peak) for model in models.items()),
        "gpu-profile.csv": profile(*first, pool),
        "gpu-sources.csv": sources(*first, pool),
        "gpu-methods.csv": others(*first, pool),
        "gpu-wpta.csv": whitened(*first, pool),
        "gpu-inverses.csv": inverses(512),
    }
    for table in given.only or tables:
        write(RESULTS / table, (row | {"hardware": machine} for row in tables[table]))


if __name__ == "__main__":
    main()

"""How fast clouds become answers: sampling, neighbours, corruptions, ULIP and PTA, each beside something else.

    python benchmarks/points.py                    writes benchmarks/results/points-cpu.csv, on one thread
    python benchmarks/points.py --device cuda      writes points-gpu.csv: clouds per second of ULIP alone and with PTA

Weights are random and clouds are noise within the unit ball; neither changes the work. The ways take turns, and a ratio
is the median over the rounds, so that a busy machine slows both sides of it.
"""

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median

import numpy as np
import torch
from encode import measure, ratio
from random_ulip import random_ulip
from result_file import RESULTS, Row, write
from torch import Tensor
from torch.nn.functional import normalize

from pta import Adapter, ZeroShotClassifier, create_adapter
from pta.data.shifts.points import EVERY, corrupt_points
from pta.door.points.groups import farthest_points, nearest_points
from pta.measure.provenance import hardware
from pta.models.clouds.ulip import GROUP_SIZE, GROUPS, UlipEncoder

POINTS, BATCH, CLASSES, SET = 1024, 32, 40, 2468  # of ModelNet-C
FEW = 100  # clouds that are corrupted, for all of the set


def clouds(count: int, device: str = "cpu") -> Tensor:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((count, POINTS, 3))
    rows *= rng.uniform(size=(count, POINTS, 1)) ** (1 / 3) / np.linalg.norm(rows, axis=2, keepdims=True)
    return torch.from_numpy(rows.astype(np.float32)).to(device)


def loop_over_points(cloud: Tensor) -> list[int]:
    """Farthest points of one cloud in plain Python."""
    points = cloud.tolist()
    chosen, nearest = [0], [1e10] * len(points)
    for _ in range(GROUPS - 1):
        x, y, z = points[chosen[-1]]
        farthest = 0
        for at, (a, b, c) in enumerate(points):
            distance = (a - x) ** 2 + (b - y) ** 2 + (c - z) ** 2
            nearest[at] = min(nearest[at], distance)
            if nearest[at] > nearest[farthest]:
                farthest = at
        chosen.append(farthest)
    return chosen


def released_loop(cloud: Tensor) -> Tensor:
    """Farthest points of one cloud as the released program finds them, a step of tensors for each."""
    xyz = cloud[None]
    chosen = torch.zeros(1, GROUPS, dtype=torch.long, device=xyz.device)
    nearest = torch.ones(1, xyz.shape[1], device=xyz.device) * 1e10
    farthest, rows = torch.randint(0, xyz.shape[1], (1,), device=xyz.device), torch.arange(1, device=xyz.device)
    for at in range(GROUPS):
        chosen[:, at] = farthest
        centre = xyz[rows, farthest, :].view(1, 1, 3)
        distance = torch.sum((xyz - centre) ** 2, -1)
        closer = distance < nearest
        nearest[closer] = distance[closer]
        farthest = torch.max(nearest, -1)[1]
    return chosen


def squared_distances(clouds: Tensor, centres: Tensor) -> Tensor:
    """Of every centre to every point, as −2ab + a² + b²."""
    distances = torch.bmm(centres, clouds.mT).mul_(-2)
    return distances.add_(centres.square().sum(-1)[..., None]).add_(clouds.square().sum(-1)[:, None])


def classifier_for(features: Tensor) -> ZeroShotClassifier:
    """Classes around the features that the model gives."""
    noise = torch.randn(CLASSES, features.shape[1], generator=torch.Generator().manual_seed(0)).to(features)
    anchors = normalize(features.mean(dim=0) + 0.05 * noise, dim=1)
    return ZeroShotClassifier(anchors, [f"class {number}" for number in range(CLASSES)], 100.0)


def row(what: str, seconds: list[float], beside: str, compared: float, goal: str, met: bool) -> Row:
    """A way, its time, and how it compares."""
    return {
        "what": what,
        "milliseconds": round(1000 * median(seconds), 3),
        "compared_with": beside,
        "ratio": round(compared, 4 if compared < 0.1 else 2),
        "goal": goal,
        "met": met,
        "hardware": hardware(),
    }


def on_cpu(repeats: int) -> Iterator[Row]:
    """The goals that can be measured on one thread of a CPU."""
    torch.set_num_threads(1)
    batch = clouds(BATCH)

    name = f"farthest points, {BATCH} clouds, {POINTS} to {GROUPS}"
    seconds = measure(
        {
            "ours": lambda: farthest_points(batch, GROUPS),
            "released": lambda: [released_loop(cloud) for cloud in batch],
            "python": lambda: loop_over_points(batch[0]),
        },
        repeats,
    )
    python = BATCH * ratio(seconds["python"], seconds["ours"])
    yield row(name, seconds["ours"], "a Python loop over points, on one cloud", python, "at least 20", python >= 20)
    released = ratio(seconds["released"], seconds["ours"])
    yield row(
        name, seconds["ours"], "the released loop of tensors, cloud by cloud", released, "at least 4", released >= 4
    )

    centres = batch[:, :GROUPS].contiguous()
    seconds = measure(
        {
            "ours": lambda: nearest_points(batch, centres, GROUP_SIZE),
            "product": lambda: squared_distances(batch, centres),
        },
        repeats,
    )
    longer = ratio(seconds["ours"], seconds["product"])
    name = f"{GROUP_SIZE} nearest points of {GROUPS} centres, {BATCH} clouds"
    yield row(name, seconds["ours"], "the distances alone", longer, "at most 2", longer <= 2)

    few = clouds(FEW).numpy()
    seconds = measure({"ours": lambda: [corrupt_points(one, *how, seed=1) for one in few for how in EVERY]}, repeats)
    whole = [one * SET / FEW for one in seconds["ours"]]
    name = f"{SET} clouds under 7 corruptions of 5 severities, measured on {FEW}"
    yield row(name, whole, "two minutes", median(whole) / 120, "at most 1", median(whole) < 120)

    encoder = UlipEncoder(random_ulip(small=False)).ready()
    features = encoder.encode(batch)
    adapter = create_adapter("pta", classifier_for(features))
    seconds = measure(
        {
            "batch": lambda: encoder.encode(batch),
            "one": lambda: [encoder.encode(cloud[None]) for cloud in batch[:4]],
            "pta": lambda: adapter.step(features),
        },
        max(1, repeats // 3),
    )
    single = [time * BATCH / 4 for time in seconds["one"]]
    faster = ratio(single, seconds["batch"])
    name = f"ULIP, {BATCH} clouds at once, sampling included"
    yield row(name, seconds["batch"], "one by one, measured on four clouds", faster, "at least 3", faster >= 3)
    share = ratio(seconds["pta"], seconds["batch"])
    yield row(f"PTA's step on {BATCH} clouds", seconds["pta"], "encoding them", share, "at most 0.01", share <= 0.01)


def timed(run: Callable[[], object], repeats: int) -> list[float]:
    """Milliseconds of single runs on a GPU."""
    found = []
    for _ in range(repeats + 3):
        begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begun.record()
        run()
        ended.record()
        torch.cuda.synchronize()
        found.append(begun.elapsed_time(ended))
    return found[3:]


def with_pta(encoder: UlipEncoder, adapter: Adapter, batch: Tensor) -> Tensor:
    return adapter.step_unchecked(encoder.encode_unchecked(batch))


def on_gpu(repeats: int) -> Iterator[Row]:
    """Clouds per second of ULIP alone and with PTA, and of its sampling."""
    for dtype in (torch.float32, torch.float16):
        encoder = UlipEncoder(random_ulip(small=False)).ready("cuda", dtype)
        for size in (1, BATCH, 256):
            batch = clouds(size, "cuda")
            adapter = create_adapter("pta", classifier_for(encoder.encode(batch)))
            ways = {
                "ULIP": partial(encoder.encode_unchecked, batch),
                "ULIP with PTA": partial(with_pta, encoder, adapter, batch),
                "farthest points": partial(farthest_points, batch, GROUPS),
            }
            alone = 0.0
            for what, run in ways.items():
                milliseconds = median(timed(run, repeats))
                alone = alone or milliseconds
                yield {
                    "what": what,
                    "dtype": str(dtype).removeprefix("torch."),
                    "batch": size,
                    "milliseconds": round(milliseconds, 3),
                    "clouds_per_second": round(1000 * size / milliseconds, 1),
                    "of_ulip_alone": round(alone / milliseconds, 3),
                    "hardware": hardware(torch.device("cuda")),
                }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--repeats", type=int, default=5)
    chosen = parser.parse_args()
    if chosen.device == "cuda":
        write(RESULTS / "points-gpu.csv", on_gpu(chosen.repeats))
    else:
        write(RESULTS / "points-cpu.csv", on_cpu(chosen.repeats))

"""How long 1,000 GPUs would take for one stream of 10⁹ images, from what each pass costs on one core.

GPUs take blocks in the order of their numbers. A machine has 8 of them, 16 cores for each, and one link to the network.
Summaries and replays take a core per block; what a block needs from others passes the link of its machine. With
`overlap` a pass begins for a block as soon as what it needs is there; without, when the one before is done for all. The
scan is by groups, or in the driver alone, with or without the tails replayed there as well.
"""

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from fill_tables import one
from result_file import Row

IMAGES, GPUS, PER_SECOND = 10**9, 1000, 13_000
GPUS_PER_MACHINE, CORES_PER_GPU = 8, 16
LINK = 1.25e9  # bytes per second: 10 Gbit/s
CLASSES, DIM, TAIL = 1000, 512, 41
SEGMENT, KNOWLEDGE, ANCHORED = 4 * DIM * (CLASSES + TAIL), 8 * DIM * CLASSES, 4 * DIM * CLASSES  # bytes
GROUP, REPAIRED = 256, 256
MEASURED = "cluster-costs"


@dataclass(frozen=True)
class Costs:
    """Seconds of one core."""

    summarise: float  # per sample
    replay: float  # per sample
    scan: float  # per block
    boundary: float  # per block
    verify: float  # per block

    @classmethod
    def measured(cls) -> "Costs":
        """As they are in the results."""

        def cost(part: str) -> float:
            return float(one(MEASURED, part=part)["work_seconds"])

        samples = one(MEASURED, part="single stream")
        per_block = int(samples["samples"]) / int(samples["blocks"])
        per_sample = (cost(f"{part} a block") / per_block for part in ("summarise", "replay"))
        return cls(*per_sample, *(cost(part) for part in ("scan a block", "boundary of a block", "verify a block")))


def simulated() -> Iterator[Row]:
    """Each size of a block, way of scanning and schedule."""
    costs = Costs.measured()
    scans = ("driver, replaying tails", "driver", "groups")
    for size, scan, overlap in product((65_536, 16_384, 8_192), scans, (False, True)):
        ends = _ends(costs, size, scan, overlap=overlap)
        ideal = IMAGES / (GPUS * PER_SECOND)
        spent = {
            name: round(end - begin, 2)
            for (name, end), begin in zip(ends.items(), [ideal, *ends.values()], strict=False)
        }
        yield {
            "block": size,
            "scan": scan,
            "overlap": overlap,
            "ideal_seconds": round(ideal, 2),
            **{f"{name}_seconds": seconds for name, seconds in spent.items()},
            "total_seconds": round(ends["repair"], 2),
            "efficiency": round(ideal / ends["repair"], 3),
            "dominates": max(spent, key=lambda name: spent[name]),
            "measured_on": one(MEASURED, part="single stream")["hardware"],
        }


def _ends(costs: Costs, size: int, scan: str, *, overlap: bool) -> dict[str, float]:
    """When the last block is done with each pass."""
    blocks, machines = math.ceil(IMAGES / size), GPUS // GPUS_PER_MACHINE
    encoded = [(block // GPUS + 1) * size / PER_SECOND for block in range(blocks)]
    summarised = [end + size * costs.summarise for end in encoded]
    ready = summarised if overlap else [max(summarised)] * blocks
    scanned = _by_groups(costs, ready) if scan == "groups" else _in_driver(costs, ready, tails="tails" in scan)
    waiting = scanned if overlap else [max(scanned)] * blocks
    cores = [[0.0] * (GPUS_PER_MACHINE * CORES_PER_GPU) for _ in range(machines)]
    links, replayed = [0.0] * machines, 0.0
    for block, begin in enumerate(waiting):
        machine = block % machines
        links[machine] = max(links[machine], begin) + (2 * KNOWLEDGE + SEGMENT) / LINK
        core = max(heapq.heappop(cores[machine]), links[machine])
        heapq.heappush(cores[machine], core + costs.boundary + size * costs.replay)
        replayed = max(replayed, core + costs.boundary + size * costs.replay)
    last_verified = replayed + ANCHORED / LINK * (1 if overlap else blocks / machines) + costs.verify
    return {
        "encode": max(encoded),
        "summarise": max(summarised),
        "scan": max(scanned),
        "replay": replayed,
        "repair": last_verified
        + 3 * REPAIRED * costs.replay,  # both paths of the classes that differ, then the answers
    }


def _in_driver(costs: Costs, ready: list[float], *, tails: bool) -> list[float]:
    ends, now = [], 0.0
    for begin in ready:
        now = max(now, begin) + SEGMENT / LINK + costs.scan + (costs.boundary if tails else 0.0)
        ends.append(now)
    return ends


def _by_groups(costs: Costs, ready: list[float]) -> list[float]:
    ends, now = [], 0.0
    for first in range(0, len(ready), GROUP):
        group = ready[first : first + GROUP]
        composed = max(group) + len(group) * (SEGMENT / LINK + costs.scan)
        now = max(now, composed) + KNOWLEDGE / LINK + costs.scan
        ends += [now + KNOWLEDGE / LINK + (place + 1) * costs.scan for place in range(len(group))]
    return ends

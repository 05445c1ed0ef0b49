"""One stream of features on Ray: how much processor time does it take, in units of the single stream?

    python benchmarks/cluster_ray.py [--workers 2] [--samples 524288] [--blocks 65536 2048] [--times 3]

Writes results/cluster-ray.csv. Synthetic features like CLIP's, 1,000 classes, 512 dimensions. Processor time is that of
the driver and of all workers, from features on disk to labels on disk; workers are started and compiled before. The
single stream takes batches of 256 from memory and writes nothing: once with labels and probabilities alone, and once
with everything that a row holds (`of_rows`), as label files do. All alternate, and a row has the medians. What the
processes of Ray itself take meanwhile is in a column of its own.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median

import torch
from cluster import BATCH, single_stream
from result_file import RESULTS, Row, write
from synthetic import clip_like
from torch import Tensor

from pta import PTA, create_adapter
from pta.cluster.ray.extraction import KIND
from pta.cluster.ray.prediction import FeatureFolder, predict_blocks
from pta.cluster.ray.ray_pool import RayPool, connected
from pta.cluster.ray.storage import Folder, RunFolder, block_name
from pta.core.classifier import ZeroShotClassifier
from pta.core.samples import Samples
from pta.door.files import packed_in_order
from pta.measure.provenance import hardware
from pta.run.classifier import answer_numbers

CLASSES, DIM = 1000, 512
_SMALL, _LESS = 16_384, 4  # of a stream in smaller blocks, the fourth part is measured
_PER_SECOND = os.sysconf("SC_CLK_TCK")


def feature_folder(place: Path, classifier: ZeroShotClassifier, features: Tensor, size: int) -> FeatureFolder:
    """A folder of feature blocks, without pictures."""
    samples = len(features)
    run = RunFolder(KIND, Folder(str(place)), {"classifier": classifier.fingerprint, "samples": samples, "block": size})
    blocks = [range(first, min(first + size, samples)) for first in range(0, samples, size)]
    for rows in blocks:
        keys = json.dumps([f"pictures/{number:08d}.jpg" for number in rows]).encode()
        tensors = {
            "image_features": features[rows.start : rows.stop].contiguous(),
            "text_features": classifier.anchors,
            "scale": torch.tensor(classifier.scale, dtype=torch.float64),
            "bias": torch.tensor(classifier.bias, dtype=torch.float64),
            "numbers": torch.arange(rows.start, rows.stop),
            "paths": torch.frombuffer(bytearray(keys), dtype=torch.uint8),
        }
        about = {"kind": "features", "run": run.id, "failed": [], "class_names": list(classifier.class_names)}
        run.out.write(block_name(rows), packed_in_order(tensors, {"about": json.dumps(about)}))
    run.finish({"failed": []}, blocks)
    found = FeatureFolder.find(str(place))
    assert found is not None
    return found


def processor_seconds() -> tuple[float, float]:
    """Of this process and the workers that it has, and of the other processes that it has started, by now."""
    parents, spent, workers = dict[int, int](), dict[int, float](), set[int]()
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            process = int(path.name)
            parents[process], spent[process] = int(fields[1]), sum(map(int, fields[11:13])) / _PER_SECOND
            if (path / "cmdline").read_bytes().startswith(b"ray::"):
                workers.add(process)

    def is_ours(process: int) -> bool:
        return process == os.getpid() or (process in parents and is_ours(parents[process]))

    ours = set(filter(is_ours, parents))
    own = workers & ours | {os.getpid()}
    return sum(spent[one] for one in own), sum(spent[one] for one in ours - own)


def single_stream_with_rows(adapter: PTA, features: Tensor) -> None:
    """One process that computes what the rows of `pta predict` and the label files of a cluster hold."""
    stream = adapter.clone()
    for part in features.split(BATCH):
        zero_shot, logits = stream.classifier.logits(part), stream.step(Samples(part))
        probabilities = stream.probabilities_unchecked(logits)
        answer_numbers(logits, probabilities, zero_shot, 1, shadow=False, with_adapted=False)


def work(samples: int, workers: int, sizes: Sequence[int], times: int) -> Iterator[Row]:
    """The processor time of the single stream and of Ray, for each size of a block."""
    classifier, features = clip_like(CLASSES, DIM, samples)
    adapter = create_adapter("pta", classifier)
    with tempfile.TemporaryDirectory() as place, connected("local") as ray, RayPool(ray, workers) as pool:
        few = feature_folder(Path(place) / "few", classifier, features[: 8 * workers], 2)
        predict_blocks(few, adapter, pool, Folder(f"{place}/compiled"), 1e-6)
        single_stream(adapter, features[:1024])
        for size in sizes:
            part = features[: samples if size >= _SMALL else samples // _LESS]
            source = feature_folder(Path(place) / str(size), classifier, part, size)
            found = {
                name: list[float]() for name in ("single", "rows", "work", "of_ray", "seconds", "times", "of_rows")
            }
            for number in range(times):
                began = time.process_time()
                single_stream(adapter, part)
                found["single"].append(time.process_time() - began)
                began = time.process_time()
                single_stream_with_rows(adapter, part)
                found["rows"].append(time.process_time() - began)
                began, (own, other) = time.perf_counter(), processor_seconds()
                predict_blocks(source, adapter, pool, Folder(f"{place}/labels-{size}-{number}"), 1e-6)
                found["seconds"].append(time.perf_counter() - began)
                own_then, other_then = processor_seconds()
                found["work"].append(own_then - own)
                found["of_ray"].append(other_then - other)
                found["times"].append(found["work"][-1] / found["single"][-1])
                found["of_rows"].append(found["work"][-1] / found["rows"][-1])
            yield {
                "block": size,
                "samples": len(part),
                "blocks": len(source.blocks),
                "workers": workers,
                "single_seconds": round(median(found["single"]), 2),
                "work_seconds": round(median(found["work"]), 2),
                "work": round(median(found["times"]), 3),
                "least": round(min(found["times"]), 3),
                "most": round(max(found["times"]), 3),
                "of_rows": round(median(found["of_rows"]), 3),
                "of_ray_seconds": round(median(found["of_ray"]), 2),
                "seconds": round(median(found["seconds"]), 2),
                "times": times,
                "classes": CLASSES,
                "hardware": hardware(),
            }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--samples", type=int, default=2**19)
    parser.add_argument("--blocks", type=int, nargs="+", default=[65_536, 2_048])
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS / "cluster-ray.csv")
    given = parser.parse_args()
    torch.set_num_threads(1)
    write(given.out, work(given.samples, given.workers, given.blocks, given.times))


if __name__ == "__main__":
    main()

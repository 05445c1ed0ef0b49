"""One stream of features on Ray: how much faster are two workers than one?

    python benchmarks/cluster_ray.py [--workers 1 2] [--samples 1048576]    writes results/cluster-ray.csv

Synthetic features like CLIP's, 1,000 classes, 512 dimensions, 16 blocks on disk. Wall time of all passes, workers
started and compiled before, so it means something only where the processors are free.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from result_file import RESULTS, Row, write
from synthetic import clip_like

from pta import create_adapter
from pta.cluster.ray.extraction import KIND, block_name
from pta.cluster.ray.prediction import FeatureFolder, predict_blocks
from pta.cluster.ray.ray_pool import RayPool, connected
from pta.cluster.ray.storage import Folder, RunFolder
from pta.door.files import packed_in_order
from pta.measure.provenance import hardware

CLASSES, DIM, BLOCKS = 1000, 512, 16


def feature_folder(place: Path, samples: int) -> FeatureFolder:
    """A folder of feature blocks, without pictures."""
    classifier, features = clip_like(CLASSES, DIM, samples)
    run = RunFolder(KIND, Folder(str(place)), {"classifier": classifier.fingerprint, "samples": samples})
    size = samples // BLOCKS
    blocks = [range(first, first + size) for first in range(0, samples, size)]
    for rows in blocks:
        keys = json.dumps([str(number) for number in rows]).encode()
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
    run.finish({"blocks": [[rows.start, rows.stop] for rows in blocks], "failed": []})
    found = FeatureFolder.find(str(place))
    assert found is not None
    return found


def speed(samples: int, workers: list[int]) -> Iterator[Row]:
    """The wall time of all passes, for each number of workers."""
    with tempfile.TemporaryDirectory() as place, connected("local") as ray:
        source, few = (feature_folder(Path(place) / str(count), count) for count in (samples, 16 * BLOCKS))
        adapter, alone = create_adapter("pta", source.classifier()), None
        for count in workers:
            with RayPool(ray, count) as pool:
                predict_blocks(few, create_adapter("pta", few.classifier()), pool, Folder(f"{place}/few{count}"), 1e-6)
                began = time.perf_counter()
                predict_blocks(source, adapter, pool, Folder(f"{place}/labels{count}"), 1e-6)
                seconds = time.perf_counter() - began
            alone = alone or seconds
            common = {"samples": samples, "classes": CLASSES, "blocks": BLOCKS, "hardware": hardware()}
            yield {"workers": count, "seconds": round(seconds, 2), "speed_up": round(alone / seconds, 3), **common}


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--samples", type=int, default=2**20)
    parser.add_argument("--out", type=Path, default=RESULTS / "cluster-ray.csv")
    given = parser.parse_args()
    write(given.out, speed(given.samples, given.workers))


if __name__ == "__main__":
    main()

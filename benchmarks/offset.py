"""What an offset in front of a method does to accuracy, with pictures and without.

    python benchmarks/offset.py FILE …        writes benchmarks/results/offset.csv

`centre` on feature files: shares 0.3 and 1 in front of CLIP, PTA and WPTA, on shuffled streams, sorted ones, and sorted
streams of FEW classes. All offsets on the packaged pictures of clothing and their corruptions, with the packaged model,
which was trained on the clean ones: each corruption is one stream of SHOWN pictures in severity 3, shuffled and sorted.
A row holds means over seeds 1 and 2, in points.
"""

import argparse
from collections.abc import Iterator
from itertools import chain, product
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from result_file import RESULTS, Row, write

from pta import Samples, ZeroShotClassifier, create_adapter
from pta.core.towers import Model
from pta.data.fashion import load_fashion_test
from pta.data.features import load_features
from pta.data.prompts import build_classifier, load_templates
from pta.data.shifts.images import SHIFTS, apply_shift
from pta.measure.provenance import hardware
from pta.models import load_encoder

SEEDS, BATCH, LARGE, FEW, SHOWN = (1, 2), 250, 2000, 5, 1500
METHODS = ("clip", "pta", "wpta")
OFFSETS = {"none": {}, "centre 0.3": {"offset": "centre"}, "centre 1": {"offset": "centre", "centre_share": 1.0}}
OF_PIXELS = {
    **OFFSETS,
    "panda 0.2": {"offset": "panda", "negative_share": 0.2},
    "panda 0.6": {"offset": "panda"},
    "panda-batch 0.6": {"offset": "panda-batch"},
}


def order_of(stream: str, labels: np.ndarray, seed: int) -> np.ndarray:
    """The positions of the samples of a stream."""
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    if stream == "shuffled":
        return shuffled[:LARGE]
    rank = np.random.default_rng((seed, 1)).permutation(labels.max() + 1)
    kept = shuffled[rank[labels[shuffled]] < (FEW if stream == "sorted, few classes" else len(rank))][:LARGE]
    return kept[np.argsort(rank[labels[kept]], kind="stable")]


def rows_of(
    what: dict[str, str], samples: Samples, labels: np.ndarray, classifier: ZeroShotClassifier, model: Model | None
) -> Iterator[Row]:
    """One row for each stream, method and offset."""
    offsets = OFFSETS if model is None else OF_PIXELS
    for stream, method in product(("shuffled", "sorted", "sorted, few classes"), METHODS):
        plain = 0.0
        for name, parameters in offsets.items():
            right = []
            for seed in SEEDS:
                order = order_of(stream, labels, seed)
                adapter = create_adapter(method, classifier, model=model, **parameters)
                stepped = [
                    adapter.step(samples[torch.from_numpy(part)])
                    for part in np.array_split(order, -(-len(order) // BATCH))
                ]
                right.append(100 * float((torch.cat(stepped).argmax(dim=1).numpy() == labels[order]).mean()))
            plain = fmean(right) if name == "none" else plain
            numbers = {"accuracy": round(fmean(right), 2), "gain": round(fmean(right) - plain, 2)}
            yield {**what, "stream": stream, "method": method, "offset": name, **numbers, "hardware": hardware()}


def of_files(files: list[Path]) -> Iterator[Row]:
    """Feature files, which have no pictures."""
    for file in files:
        read = load_features(file)
        assert read.labels is not None
        what = {"source": "CLIP features", "set": file.stem, "corruption": "none"}
        yield from rows_of(what, read.samples, np.asarray(read.labels), read.classifier, None)


def of_clothing() -> Iterator[Row]:
    """The packaged pictures, clean and corrupted."""
    encoder, fashion = load_encoder("embedded"), load_fashion_test()
    classifier = build_classifier(encoder, fashion.class_names, load_templates("clip"), cache=None)
    prepare, labels = encoder.preparer(), np.asarray(fashion.labels)[:SHOWN]
    for kind in ("none", *SHIFTS):
        clean = fashion.images[:SHOWN]
        images = clean if kind == "none" else apply_shift(clean, kind, 3, seed=0)
        raw = torch.from_numpy(np.stack([prepare(image, "", 0) for image in images]))
        samples = Samples.of(torch.cat([encoder.encode(part) for part in raw.split(256)]), raw=raw)
        yield from rows_of(
            {"source": "clothing", "set": "fashion", "corruption": kind}, samples, labels, classifier, encoder
        )


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--out", type=Path, default=RESULTS / "offset.csv")
    given = parser.parse_args()
    write(given.out, chain(of_files(given.files), of_clothing()))


if __name__ == "__main__":
    main()

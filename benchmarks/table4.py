"""The paper's Table 4 on a GPU: model and method together, one image at a time, for all ten rows in one run.

    python benchmarks/table4.py      writes benchmarks/results/table4-gpu.csv

The rows are those of the packaged experiment. ViT-B/16 of random weights in half precision, ImageNet's 1000 names,
images of noise: none of it changes what a GPU has to do. What a method keeps does change it, so each has learned
made-up features before that lie around all classes. Pixels of an image and of its 64 views are ready on the device.
"""

import argparse
from itertools import product
from statistics import median

import numpy as np
import torch
from random_clip import random_state
from result_file import RESULTS, Row, write
from torch.nn.functional import normalize

from pta.core.classifier import ZeroShotClassifier
from pta.core.samples import Samples
from pta.data.catalogue import catalogue
from pta.data.features import FeatureFile
from pta.measure.provenance import hardware
from pta.measure.reproduce.declaration import load_experiment
from pta.measure.reproduce.library import VIEWS, drawn_views
from pta.measure.reproduce.speed import TimedMethod
from pta.models.clip.encoder import ClipEncoder

ROUNDS, IMAGES = 5, 40
LEARNT_PER_CLASS = 3
NOISE = 0.6  # of a made-up feature, beside the anchor of its class


def made_up(classifier: ZeroShotClassifier) -> FeatureFile:
    """Features around every class."""
    rng = torch.Generator(device=classifier.anchors.device).manual_seed(1)
    own = classifier.anchors.repeat(LEARNT_PER_CLASS, 1)
    noise = normalize(torch.randn(own.shape, generator=rng, device=own.device), dim=1)
    return FeatureFile("imagenet", Samples(normalize(own + NOISE * noise, dim=1)), classifier, None)


def rows(device: str, small: bool) -> list[Row]:
    encoder = ClipEncoder(random_state("ViT", small=small), quick_gelu=True)
    encoder = encoder.ready(device, torch.float32 if device == "cpu" else torch.float16)
    names = catalogue()["imagenet"].class_names[: 20 if small else None]
    anchors = encoder.encode_texts([f"a photo of a {name}." for name in names]).float()
    data = made_up(ZeroShotClassifier(anchors, names, scale=100.0))
    declared = load_experiment("table4").rows
    contenders = []
    for row in declared:
        views = drawn_views(row.views["imagenet"]) if row.views else None
        contenders.append(TimedMethod(row.method, row.params, data, views))
    order = np.random.default_rng(1).permutation(len(data.samples))
    for one in contenders:
        one.learn(encoder, order)
        if one.method == "dpe":  # whose step costs more, the more classes it has seen
            features = data.samples.features[order][: 2 * len(names)]
            one.adapter.step(Samples(features, views=features[:, None].expand(-1, VIEWS, -1)))
    size = encoder.preprocess.size
    pixels = torch.randint(0, 256, (VIEWS, 3, size, size), dtype=torch.uint8, device=device)
    for round_, image in product(range(ROUNDS + 1), range(2 if small else IMAGES // ROUNDS)):
        if image == 0:
            for one in contenders:
                one.rounds = [] if round_ == 1 else one.rounds  # the first round warms up
                one.rounds.append([])
        for at in np.random.default_rng([round_, image]).permutation(len(contenders)):
            one = contenders[at]
            one.answer(pixels if one.views else pixels[:1])
    resident, zero_shot = sum(one.resident for one in contenders), contenders[0]
    found = []
    for row, one in zip(declared, contenders, strict=True):
        record = one.record(zero_shot, resident)
        clip_memory, memory = zero_shot.record(zero_shot, resident)["memory_mib"], record["memory_mib"]
        found.append(
            {
                "row": row.label,
                "images_per_second": round(median(each["images_per_second"] for each in record["rounds"]), 2),
                "of_clip": round(median(each["share_of_clip"] for each in record["rounds"]) / 100, 4),
                "memory_mib": memory and round(memory),
                "memory_of_clip": memory and round(memory / clip_memory, 2),
                "papers_images_per_second": row.printed[0],
                "papers_of_clip": round(row.printed[0] / declared[0].printed[0], 4),
                "papers_memory_mib": row.printed[2],
                "papers_memory_of_clip": round(row.printed[2] / declared[0].printed[2], 2),
            }
        )
    return found


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="a tiny model on the CPU, to try the program")
    small = parser.parse_args().small
    if not small and not torch.cuda.is_available():
        parser.exit(1, "this needs a GPU that PyTorch can use\n")
    machine = "a tiny model on a CPU" if small else hardware("cuda")
    found = rows("cpu" if small else "cuda", small)
    where = RESULTS / ("table4-small.csv" if small else "table4-gpu.csv")
    write(where, (row | {"model": "ViT-B/16, random weights", "hardware": machine} for row in found))


if __name__ == "__main__":
    main()

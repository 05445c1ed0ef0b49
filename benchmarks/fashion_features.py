"""A feature file that every method can be run on: the packaged images under the demo's shift, with views and pixels.

python benchmarks/fashion_features.py fashion_noise.npz
pta eval --features fashion_noise.npz --model embedded --method all --seed 1 … --json records.json
python benchmarks/real_features.py records.json --out benchmarks/results/fashion-methods.csv
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from pta.corruptions.shifts import apply_shift
from pta.datasets.fashion import load_fashion_test
from pta.encoders import EMBEDDED_TEMPLATES, EmbeddedEncoder
from pta.prompts import build_classifier
from pta.views import make_views

SHIFT, SEVERITY, SEED, VIEWS = "gaussian_noise", 3, 1, 64


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    out: Path = parser.parse_args().out
    test, encoder = load_fashion_test(), EmbeddedEncoder.load()
    pictures = [Image.fromarray(image) for image in apply_shift(test.images, SHIFT, SEVERITY, SEED)]
    pixels = np.stack([encoder.preprocess.pixels(picture) for picture in pictures])
    views = [
        encoder.encode(make_views(picture, encoder.preprocess, count=VIEWS, mode="crops", seed=(SEED, number)))
        for number, picture in enumerate(pictures)
    ]
    classifier = build_classifier(encoder, test.class_names, EMBEDDED_TEMPLATES)
    np.savez(
        out,
        image_features=encoder.encode(torch.from_numpy(pixels)).numpy(),
        view_features=torch.stack(views).half().numpy(),
        pixels=pixels,
        text_features=classifier.anchors.numpy(),
        scale=classifier.scale,
        labels=test.labels.astype(np.int64),
        classnames=np.array(test.class_names),
    )


if __name__ == "__main__":
    main()

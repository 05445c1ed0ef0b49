"""A feature file that every method can be run on: the packaged images under a shift, with views and pixels.

python benchmarks/fashion_features.py fashion_noise.npz
pta eval --features fashion_noise.npz --model embedded --method all --seed 1 … --json records.json
python benchmarks/real_features.py records.json --out benchmarks/results/fashion-methods.csv
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from pta.data.fashion import load_fashion_test
from pta.data.prompts import build_classifier
from pta.data.shifts.images import SHIFTS, apply_shift
from pta.data.views import make_views
from pta.models import EMBEDDED_TEMPLATES, EmbeddedEncoder

SEVERITY, SEED = 3, 1


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--shift", choices=("clean", *SHIFTS), default="gaussian_noise", help="default: the demo's")
    parser.add_argument("--views", type=int, default=64, help="crops of every image; 0 for none")
    arguments = parser.parse_args()
    test, encoder = load_fashion_test(), EmbeddedEncoder.load()
    images = test.images
    if arguments.shift != "clean":
        images = apply_shift(images, arguments.shift, SEVERITY, SEED)
    pictures = [Image.fromarray(image) for image in images]
    pixels = np.stack([encoder.preprocess.pixels(picture) for picture in pictures])
    views = {}
    if count := arguments.views:
        crops = [
            encoder.encode(make_views(picture, encoder.preprocess, count=count, mode="crops", seed=(SEED, number)))
            for number, picture in enumerate(pictures)
        ]
        views = {"view_features": torch.stack(crops).half().numpy()}
    classifier = build_classifier(encoder, test.class_names, EMBEDDED_TEMPLATES)
    np.savez(
        arguments.out,
        image_features=encoder.encode(torch.from_numpy(pixels)).numpy(),
        pixels=pixels,
        **views,
        text_features=classifier.anchors.numpy(),
        scale=classifier.scale,
        labels=test.labels.astype(np.int64),
        classnames=np.array(test.class_names),
    )


if __name__ == "__main__":
    main()

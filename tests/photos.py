"""Real JPEG files to work on, made from the packaged test images."""

from functools import cache

import torch
from PIL import Image

from pta import Samples
from pta.datasets.fashion import load_fashion_test
from pta.encoders import EmbeddedEncoder
from pta.prompts import build_classifier
from pta.views import make_views

FASHION = load_fashion_test()


def write_photos(folder, count=40, size=(96, 80)):
    """A folder with a sub-folder a class; returns the paths in order and the class of each."""
    labelled = []
    for number in range(count):
        name = FASHION.class_names[FASHION.labels[number]]
        path = folder / name / f"{number:04d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(FASHION.images[number]).resize(size).convert("RGB").save(path, quality=95)
        labelled.append((path, name))
    return sorted(labelled)


def write_classes(path):
    """The class names, one a line."""
    path.write_text("\n".join(FASHION.class_names) + "\n")
    return path


@cache
def fashion_samples(count, views):
    """The classifier of the embedded model, and features, AugMix views and patches of the first images."""
    encoder, pictures = EmbeddedEncoder.load().ready(), map(Image.fromarray, FASHION.images[:count])
    classifier = build_classifier(encoder, FASHION.class_names, ("a photo of a {}.",))
    how = {"count": views, "mode": "augmix"}
    drawn = [make_views(one, encoder.preprocess, seed=(1, number), **how) for number, one in enumerate(pictures)]
    pixels = torch.stack(drawn)
    seen = encoder.encode(pixels.flatten(0, 1)).unflatten(0, (count, views))
    return classifier, Samples.of(seen[:, 0], views=seen, patches=encoder.encode_tokens(pixels[:, 0]))

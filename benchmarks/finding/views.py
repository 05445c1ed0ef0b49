"""Prompts, views and adaptation apart: what of a gain over CLIP is which.

The packaged Fashion-MNIST images (28×28) under synthetic shifts, the embedded model, 64 AugMix views, the tenth of
them kept that zero-shot is most confident of.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from PIL import Image
from result_file import Row

from finding.table import mean, runs
from pta import Samples
from pta.data.fashion import load_fashion_test
from pta.data.features import FeatureFile
from pta.data.prompts import build_classifier
from pta.data.shifts.images import apply_shift
from pta.data.views import confident_mean, make_views
from pta.models import EMBEDDED_TEMPLATES, EmbeddedEncoder

SHIFTS, SEVERITY, SHIFT_SEED = ("gaussian_noise", "blur", "rotate"), 3, 1
IMAGES, VIEWS, SEEDS = 500, 64, (1, 2, 3)
PROMPTS = {"one prompt": ("a photo of a {}.",), "templates": EMBEDDED_TEMPLATES}


def measure(folder: Path) -> Iterator[Row]:
    """Both prompts, with and without views, zero-shot and PTA; no feature files are needed."""
    test, encoder = load_fashion_test(), EmbeddedEncoder.load()
    labels = test.labels[:IMAGES].astype("int64")
    for shift in SHIFTS:
        samples = _with_views(encoder, apply_shift(test.images[:IMAGES], shift, SEVERITY, SHIFT_SEED))
        for prompts, templates in PROMPTS.items():
            classifier = build_classifier(encoder, test.class_names, templates)
            plain = FeatureFile(shift, Samples.of(samples.features), classifier, labels)
            viewed = replace(plain, samples=confident_mean(samples, classifier))
            for name, data in (("plain", plain), (f"{VIEWS} views", viewed)):
                yield {
                    "shift": shift,
                    "severity": SEVERITY,
                    "prompts": prompts,
                    "image": name,
                    "zero_shot": f"{data.zero_shot_accuracy:.2f}",
                    "pta": mean(run.accuracy for run in runs(data, "pta", {}, SEEDS)),
                }


def _with_views(encoder: EmbeddedEncoder, images: Sequence[object]) -> Samples:
    features = [
        encoder.encode(
            make_views(
                Image.fromarray(image), encoder.preprocess, count=VIEWS, mode="augmix", seed=(SHIFT_SEED, number)
            )
        )
        for number, image in enumerate(images)
    ]
    views = torch.stack(features)
    return Samples.of(views[:, 0], views=views)

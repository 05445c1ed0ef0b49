"""How often rounding changes an answer of a method that learns from its own answers.

    python benchmarks/rounding.py        writes benchmarks/results/rounding.csv

Streams are drawn from the packaged images under noise. Each is learned one sample at a time, in batches, and one sample
at a time with every feature moved by the last bit of float32, as another batch in the encoder can move it. TCA makes
its features itself, so only its batches are compared.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from result_file import RESULTS, write
from torch import Tensor

from pta import create_adapter
from pta.core.classifier import ZeroShotClassifier
from pta.core.samples import Samples
from pta.data.fashion import load_fashion_test
from pta.data.prompts import build_classifier
from pta.data.shifts.images import apply_shift
from pta.measure.provenance import hardware
from pta.methods import needs_model
from pta.models import EMBEDDED_TEMPLATES, EmbeddedEncoder

LENGTH, BATCH = 200, 64
METHODS: list[tuple[str, dict[str, Any]]] = [
    ("onzeta", {}),
    ("onzeta", {"proxy_step": 0.05}),
    ("bca", {}),
    ("freetta", {}),
    ("tca", {}),
    ("sca", {"threshold": "fixed"}),
    ("pta", {}),
]


def packaged_samples(encoder: EmbeddedEncoder) -> tuple[Samples, ZeroShotClassifier]:
    """All packaged images under the demo's noise, with features and pixels."""
    test = load_fashion_test()
    pixels = torch.from_numpy(apply_shift(test.images, "gaussian_noise", 3, 1))[:, None]
    features = torch.cat([encoder.encode(part) for part in torch.split(pixels, 100)])
    return Samples.of(features, raw=pixels), build_classifier(encoder, test.class_names, EMBEDDED_TEMPLATES)


def in_the_last_bit(features: Tensor, seed: int) -> Tensor:
    """Every number moved to one of its neighbours."""
    up = torch.rand(features.shape, generator=torch.Generator().manual_seed(seed)) < 0.5
    return features.nextafter(torch.where(up, torch.inf, -torch.inf))


def answers_of(method: str, samples: Samples, size: int, **how: Any) -> Tensor:
    """The logits of a new adapter that is given so many samples at a time."""
    adapter = create_adapter(method, source=samples, **how)
    return torch.cat([adapter.step(part) for part in samples.batches(size)]).double()


def compared(found: list[tuple[Tensor, Tensor]], name: str) -> dict[str, object]:
    """How many answers differ, in how many streams, and the largest difference of logits."""
    differ = [int((one.argmax(dim=1) != other.argmax(dim=1)).sum()) for one, other in found]
    largest = max(float((one - other).abs().max()) for one, other in found)
    counts = {f"{name}_answers": sum(differ), f"{name}_streams": sum(map(bool, differ))}
    return {**counts, f"{name}_largest": f"{largest:.2g}"}


def row_of(method: str, parameters: dict[str, Any], samples: Samples, count: int, **how: Any) -> dict[str, object]:
    """What is counted of one method."""
    how |= parameters | {"model": how["model"] if needs_model(method, parameters) else None}
    batches, last_bit = [], []
    for seed in range(count):
        stream = samples[torch.from_numpy(np.random.default_rng(seed).permutation(len(samples))[:LENGTH])]
        alone = answers_of(method, stream, 1, **how)
        batches.append((alone, answers_of(method, stream, BATCH, **how)))
        if how["model"] is None:
            moved = replace(stream, features=in_the_last_bit(stream.features, seed))
            last_bit.append((alone, answers_of(method, moved, 1, **how)))
    named = {"method": method, "parameters": json.dumps(parameters), "streams": count, "answers": count * LENGTH}
    nothing = dict.fromkeys(("last_bit_answers", "last_bit_streams", "last_bit_largest"), "")
    moved_bits = compared(last_bit, "last_bit") if last_bit else nothing
    return {**named, **compared(batches, "batches"), **moved_bits, "hardware": hardware()}


def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--out", type=Path, default=RESULTS / "rounding.csv")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    encoder = EmbeddedEncoder.load()
    samples, classifier = packaged_samples(encoder)
    how = {"samples": samples, "count": arguments.streams, "classifier": classifier, "model": encoder}
    write(arguments.out, (row_of(method, parameters, **how) for method, parameters in METHODS))


if __name__ == "__main__":
    main()

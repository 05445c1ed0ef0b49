"""A modality of its own, as another package would add it: signals of eight numbers, a model, a method and a source."""

import zlib
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.functional import normalize

from pta.core.modality import Modality
from pta.core.parameters import number
from pta.data import SampleFile, SampleSet
from pta.errors import UnreadableSample
from pta.methods import Adapter
from pta.models import Encoder

SIGNALS = Modality("signal", frozenset({".sig"}))
NAMES = ("hum", "click", "hiss")


def wave(name):
    return np.random.default_rng(zlib.crc32(name.encode())).standard_normal(8).astype(np.float32)


class SignalEncoder(Encoder):
    """Signals by a fixed random projection; a text by the wave of its last word."""

    modality = SIGNALS
    architecture = "signal projection"
    dim, scale = 16, 20.0

    def __init__(self):
        super().__init__()
        self.projection = nn.Parameter(torch.randn(8, 16, generator=torch.Generator().manual_seed(0)))

    def prepare(self, content, key="the signal"):
        try:
            return np.array(content.decode().split(), np.float32).reshape(8)
        except ValueError:
            raise UnreadableSample(f"{key} is no signal of eight numbers") from None

    def features(self, raw):
        return normalize(raw @ self.projection, dim=-1)

    def text_features(self, texts):
        words = [text.rstrip(".").split()[-1] for text in texts]
        return self.features(torch.from_numpy(np.stack([wave(word) for word in words])))


def load_signals(rest):
    """What `signals:…` is."""
    return SignalEncoder()


class Nearest(Adapter):
    """Moves the centre of the predicted class towards each sample; nothing but its loop."""

    name = "nearest"
    rate: float = number(0.1, 0.0, 1.0, "share of the way")

    def __init__(self, classifier, **given):
        super().__init__(classifier, **given)
        self.add_state("centres", lambda c: c.anchors.clone())

    def _step(self, samples):
        logits = self._predict(samples)
        self.centres[logits[0].argmax()].lerp_(samples.features[0], self.rate)
        return logits

    def _predict(self, samples):
        return self.classifier.scores(samples.features @ self.centres.T)


def write_signals(folder, count=12):
    """A folder with one sub-folder per class."""
    rng = np.random.default_rng(1)
    for at in range(count):
        name = NAMES[at % len(NAMES)]
        path = folder / name / f"{at:02d}.sig"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(" ".join(map(str, wave(name) + 0.3 * rng.standard_normal(8))))
    return folder


def open_waves(source, *, root, class_names):
    """What `waves/FOLDER` is."""
    files = sorted(Path("/", source.partition("/")[2]).rglob("*.sig"))
    labels = np.array([NAMES.index(file.parent.name) for file in files], np.int64)
    samples = tuple(SampleFile(file, file.name) for file in files)
    return SampleSet(source, NAMES, samples, labels, modality=SIGNALS)

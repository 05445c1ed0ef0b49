"""Streams and rules to test with: one worked by hand, and any number that look like CLIP features.

All embeddings of a drawn stream lie in one cone, as CLIP's do (they share a large mean), so no two are opposite. That
leaves out on purpose the one place where the recurrence itself is ill-conditioned: an anchor and a prototype that
cancel in the mixture w·R + (1−w)·P, which leaves a direction that float32 cannot tell.
"""

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import normalize

from pta import Samples, ZeroShotClassifier
from pta.data.features import FeatureFile
from pta.engines.pta.rule import Rule

WIDEST_CONE = 0.7  # sine of its half angle; below 1/√2 all cosines are positive

# The switches of the two variants, as documented.
RELEASED = {
    "h": 20.0,
    "w": 0.01,
    "min_probability": 0.1,
    "anchor": "recursive",
    "fusion": "logits",
    "order": "update-first",
    "weight": "saturating",
    "renormalise": True,
}
NO_OFFSET = {"offset": "none", "centre_share": 0.3, "negative_share": 0.6}
PAPER = RELEASED | {"min_probability": 0.0, "fusion": "probabilities", "renormalise": False}
RELEASED_RULE, PAPER_RULE = (
    Rule(**{name: value for name, value in switches.items() if name != "fusion"}) for switches in (RELEASED, PAPER)
)


def prompts_around(anchors: Tensor, count: int = 10) -> Tensor:
    """Features of prompts around each anchor, C×count×d."""
    classes, dim = anchors.shape
    noise = np.random.default_rng(classes).normal(size=(classes, count, dim)) * 0.3 / dim**0.5
    return normalize(anchors[:, None] + torch.from_numpy(noise).to(anchors), dim=2)


@dataclass(frozen=True)
class Stream:
    """Unit anchors and features, the class each feature was drawn from, and the scale of the logits."""

    anchors: Tensor = field(repr=False)
    features: Tensor = field(repr=False)
    labels: Tensor = field(repr=False)
    scale: float

    def to(self, dtype: torch.dtype) -> "Stream":
        """The same stream, rounded; keep it in float64 until the precision under test is known."""
        return Stream(self.anchors.to(dtype), self.features.to(dtype), self.labels, self.scale)

    @property
    def classifier(self) -> ZeroShotClassifier:
        """The classifier that the features are scored by."""
        names = [f"class {c}" for c in range(len(self.anchors))]
        return ZeroShotClassifier(self.anchors, names, self.scale, prompt_features=prompts_around(self.anchors))

    @property
    def probabilities(self) -> Tensor:
        """Zero-shot probabilities as float32 numbers, whatever the precision of the stream."""
        return (self.scale * self.features @ self.anchors.T).softmax(dim=1).float()


def feature_file(
    count: int = 90, *, classes: int = 5, labelled: bool = True, scale: float = 20.0, name: str = "made"
) -> FeatureFile:
    """Noisy features of a few classes that zero-shot often mistakes."""
    rng = np.random.default_rng(7)
    anchors, labels = rng.standard_normal((classes, 8)), rng.integers(classes, size=count)
    features = anchors[labels] + 2 * rng.standard_normal((count, 8))
    prompts = prompts_around(torch.from_numpy(anchors))
    names = [f"class {number}" for number in range(classes)]
    classifier = ZeroShotClassifier(anchors, names, scale, prompt_features=prompts)
    return FeatureFile(name, Samples.of(features), classifier, labels if labelled else None)


def toy_stream() -> Stream:
    """Three classes, three samples: the worked example, with the factor 10 in the place of 100."""
    anchors = torch.tensor([[1, 0.1, 0], [0.1, 1, 0], [0, 0.1, 1]], dtype=torch.float64)
    features = torch.tensor([[1, 0.98, 0.2], [0.9, 1, 0.3], [0.2, 0.1, 1]], dtype=torch.float64)
    return Stream(normalize(anchors), normalize(features), torch.tensor([0, 1, 2]), 10.0)


def clip_like_stream(
    seed: int,
    *,
    classes: int,
    dim: int,
    count: int,
    present: float = 1.0,  # the share of the classes that samples come from, at least one class
    spread: float = 0.4,  # sine of the cone's half angle
    in_order: bool = False,  # all samples of a class before those of the next
    duplicates: float = 0.0,  # the share of samples that repeat the one before
    scale: float = 100.0,
) -> Stream:
    """Features around their class and away from the text by a shift they share, all in one cone."""
    random = np.random.default_rng(seed)

    def unit(rows: np.ndarray) -> np.ndarray:
        return rows / np.linalg.norm(rows, axis=-1, keepdims=True)

    def directions(*shape: int) -> np.ndarray:
        return unit(random.normal(size=(*shape, dim)))

    middle, shift, own = directions(), directions(), directions(classes)
    labels = random.choice(random.permutation(classes)[: max(1, round(present * classes))], size=count)
    labels = np.sort(labels) if in_order else labels
    images = unit(own[labels] + shift + 1.5 * directions(count))
    features = unit(middle + spread * images)
    for t in range(1, count):
        if random.random() < duplicates:
            features[t], labels[t] = features[t - 1], labels[t - 1]
    anchors = unit(middle + spread * own)
    return Stream(torch.from_numpy(anchors), torch.from_numpy(features), torch.from_numpy(labels), scale)


def with_views(stream: Stream, count: int, noise: float = 0.3, seed: int = 0) -> Samples:
    """The samples of a stream with so many unit views around each, the plain image first, and 20 patches.

    Equal features have equal views and patches.
    """
    shape = (len(stream.features), count, stream.features.shape[1])
    shifts = torch.from_numpy(np.random.default_rng(seed).normal(size=shape) * noise / shape[2] ** 0.5)
    shifts[:, 0] = 0
    shifts = shifts[(stream.features[:, None] == stream.features).all(dim=2).int().argmax(dim=1)]
    views = normalize(stream.features[:, None] + shifts.to(stream.features.dtype), dim=2)
    patches = normalize(stream.features[:, None] + 2 * shifts[:, -1:] * torch.linspace(-1, 1, 20)[:, None], dim=2)
    return Samples(stream.features, views=views, patches=patches.to(views.dtype))


def streams(max_count: int = 80) -> st.SearchStrategy[Stream]:
    """Streams of every shape: one class or all, in order or mixed, with and without duplicates."""
    return st.builds(
        clip_like_stream,
        st.integers(0, 2**32 - 1),
        classes=st.integers(2, 40),
        dim=st.integers(4, 64),
        count=st.integers(1, max_count),
        present=st.sampled_from([1.0, 0.5, 0.0]),
        spread=st.sampled_from([0.4, 0.15, WIDEST_CONE]),
        in_order=st.booleans(),
        duplicates=st.sampled_from([0.0, 0.3]),
        scale=st.sampled_from([100.0, 30.0, 10.0, 1.0]),
    )


def rules(**fixed: object) -> st.SearchStrategy[Rule]:
    """Rules with every switch drawn, but for the given ones."""
    switches = {
        "h": st.floats(0.0, 3.0).map(lambda exponent: 10**exponent),
        "w": st.just(0.0) | st.floats(-4.0, np.log10(0.5)).map(lambda exponent: 10**exponent),
        "min_probability": st.sampled_from([0.1, 0.0]),
        "anchor": st.sampled_from(["recursive", "fixed"]),
        "order": st.sampled_from(["update-first", "predict-first"]),
        "weight": st.sampled_from(["saturating", "raw"]),
        "renormalise": st.booleans(),
    }
    return st.builds(Rule, **switches | {name: st.just(value) for name, value in fixed.items()})


def with_edges(probabilities: Tensor, rule: Rule, seed: int, share: float = 0.1) -> Tensor:
    """The same float32 probabilities, some replaced by the threshold itself and its neighbours on either side."""
    random = np.random.default_rng(seed)
    edge = np.float32(rule.threshold)
    edges = np.array([np.nextafter(edge, np.float32(0)), edge, np.nextafter(edge, np.float32(1))])
    chosen = random.random(probabilities.shape) < share
    return torch.from_numpy(np.where(chosen, random.choice(edges, size=probabilities.shape), probabilities.numpy()))


def touching_begins(threshold: float) -> float:
    """The smallest probability that rounds to a float32 no less than the threshold."""
    least = np.float32(threshold)
    return (float(np.nextafter(least, np.float32(0))) + float(least)) / 2


def is_clear(stream: Stream, rule: Rule) -> bool:
    """Whether every probability is farther from the threshold, by 1e-9 of it, than float64's rounding reaches."""
    wide = stream.to(torch.float64)
    probabilities = (wide.scale * wide.features @ wide.anchors.T).softmax(dim=1)
    return bool(((probabilities / touching_begins(rule.threshold) - 1).abs() > 1e-9).all())


def samples_on_either_side_of(threshold: float, anchors: Tensor, each: int) -> Tensor:
    """Mixtures of two anchors, in float32, whose probability of the first is within 1e-7 of where touching begins.

    A probability touches if it rounds to a float32 that is no less than the threshold. None is so near that float64's
    own rounding decides.
    """
    begins = touching_begins(threshold)
    random = np.random.default_rng(0)
    T = anchors.double().numpy()

    def probability(feature):
        z = 100 * (T @ feature.astype(np.float64))
        return 1 / np.exp(z - z[0]).sum()

    def mixture(t):
        mixed = t * T[0] + (1 - t) * T[1]
        return mixed / np.linalg.norm(mixed)

    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if probability(mixture(middle)) < begins else (low, middle)
    below, above = [], []
    while min(len(below), len(above)) < each:
        feature = (mixture(low) * (1 + random.uniform(-1e-7, 1e-7, T.shape[1]))).astype(np.float32)
        away = probability(feature) - begins
        if 1e-12 < abs(away) < 1e-7:
            (below if away < 0 else above).append(feature)
    return torch.from_numpy(np.stack(below[:each] + above[:each]))


def cuts(count: int, max_cuts: int = 5) -> st.SearchStrategy[list[slice]]:
    """Consecutive stretches that make up a stream of `count` samples."""

    def stretches(inner: set[int]) -> list[slice]:
        return [slice(*ends) for ends in pairwise([0, *sorted(inner), count])]

    inner = st.sets(st.integers(1, count - 1), max_size=max_cuts) if count > 1 else st.just(set())
    return inner.map(stretches)

"""A tiny model and a short stream with random numbers, for checking methods."""

import hashlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, normalize

from pta.core.classifier import ZeroShotClassifier
from pta.core.samples import Samples
from pta.core.towers import ImageTower, PromptTower, TokenBlock, attention
from pta.methods.adapter import Adapter

WIDTH, BLOCKS, HEADS, PATCH, SIZE = 16, 4, 2, 2, 16
_TOKENS = 1 + (SIZE // PATCH) ** 2
CLASSES, DIM, SAMPLES = 12, 32, 64  # of a stream
_VIEWS, _PATCHES = 20, 16  # of a sample
_PROMPTS = 10  # of a class

Factory = Callable[..., Adapter]


class ToyModel:
    """A transformer on pixels 3×16×16, and class features as a function of four context tokens."""

    fingerprint = "toy"  # its weights are always the same

    def __init__(self, dim: int, dtype: torch.dtype) -> None:
        self.dim, self.dtype, self.device = dim, dtype, torch.device("cpu")
        shapes = {
            "patch": (3 * PATCH * PATCH, WIDTH),
            "positions": (_TOKENS, WIDTH),
            "qkv": (BLOCKS, WIDTH, 3 * WIDTH),
            "mlp": (BLOCKS, 2, WIDTH, WIDTH),
            "project": (WIDTH, dim),
            "context": (4, WIDTH),
            "words": (4 * WIDTH, dim),
        }
        generator = torch.Generator().manual_seed(1)
        numbers = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
        self.weights = {name: (weight / WIDTH**0.5).to(dtype) for name, weight in numbers.items()}

    def image_tower(self) -> ImageTower:
        """The transformer block by block."""
        return ImageTower(
            shape=(3, SIZE, SIZE),
            tokens=_TOKENS,
            width=WIDTH,
            dim=self.dim,
            ready=lambda pixels: pixels.to(self.dtype),
            embed=self._embed,
            blocks=[self._block(number) for number in range(BLOCKS)],
            project=lambda token: normalize(token @ self.weights["project"], dim=-1),
        )

    def prompt_tower(self, class_names: Sequence[str], start: str = "a photo of a") -> PromptTower:
        """Class features around a direction that the name gives."""
        seeds = [int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "little") for name in class_names]
        rows = [torch.randn(self.dim, generator=torch.Generator().manual_seed(seed)) for seed in seeds]
        return self._tower_of(torch.stack(rows).to(self.dtype))

    def _tower_of(self, named: Tensor) -> PromptTower:
        def turned(contexts: Tensor) -> Tensor:
            return torch.tanh(contexts.flatten(1) @ self.weights["words"])

        return PromptTower(
            context=self.weights["context"],
            lengths=torch.full((len(named),), 8),
            dim=self.dim,
            encode=lambda contexts: named + turned(contexts)[:, None],
            encode_each=lambda contexts: named + turned(contexts),
            part=lambda classes: self._tower_of(named[classes]),
        )

    def _embed(self, pixels: Tensor) -> Tensor:
        cut = pixels.unfold(2, PATCH, PATCH).unfold(3, PATCH, PATCH).permute(0, 2, 3, 1, 4, 5)
        patches = cut.flatten(3).flatten(1, 2) @ self.weights["patch"]
        return torch.cat([torch.zeros_like(patches[:, :1]), patches], dim=1) + self.weights["positions"]

    def _block(self, number: int) -> TokenBlock:
        qkv, (first, second) = self.weights["qkv"][number], self.weights["mlp"][number]

        def attend(x: Tensor) -> tuple[Tensor, Tensor]:
            q, k, v = (layer_norm(x, (WIDTH,)) @ qkv).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
            return attention(q, k, v)

        def mlp(x: Tensor) -> Tensor:
            return gelu(layer_norm(x, (WIDTH,)) @ first) @ second

        def whole(x: Tensor) -> Tensor:
            x = x + attend(x)[0]
            return x + mlp(x)

        return TokenBlock(whole, attend, mlp)


@dataclass(frozen=True)
class ToyStream:
    """A small stream of the kind CLIP gives: images share a direction, classes lie around their anchors.

    Every sample has views and patches around it, and raw pixels (noise) for methods that are given an image tower. In
    every third stream features are the mean of some views.
    """

    factory: Factory  # of the adapters that are checked on it
    seed: int
    classifier: ZeroShotClassifier
    samples: Samples
    model: ToyModel

    @classmethod
    def make(cls, factory: Factory, seed: int, dtype: torch.dtype = torch.float32) -> "ToyStream":
        text, features, views, raw, patches, prompts = (one.to(dtype, copy=True) for one in _numbers(seed))
        samples = Samples(features, views=views, raw=raw, patches=patches, generated=views.flip(1)[:, :6])
        if seed % 3 == 2:
            most_confident = normalize(views[:, :4], dim=2)
            samples = replace(samples, features=most_confident.mean(dim=1), most_confident=most_confident)
        names = [f"class {number}" for number in range(CLASSES)]
        classifier = ZeroShotClassifier(text, names, scale=50.0, prompt_features=prompts)
        return cls(factory, seed, classifier, samples, ToyModel(DIM, dtype))

    def adapter(self, learned: int = 0) -> Adapter:
        """A new adapter for this stream, after the first samples of it."""
        taken = inspect.signature(self.factory).parameters
        offered = {"model": self.model, "source": self.samples}
        adapter = self.factory(self.classifier, **{name: one for name, one in offered.items() if name in taken})
        if learned:
            adapter.step(self.samples[:learned])
        return adapter

    def half_way(self) -> Adapter:
        """The same after the samples that come before the rest."""
        return self.adapter(learned=30)

    @property
    def rest(self) -> Samples:
        """The samples from the thirty-first on."""
        return self.samples[30:]

    def cuts(self) -> Iterator[Samples]:
        """The samples in batches of any size."""
        rng = np.random.default_rng(self.seed)
        start = 0
        while start < len(self.samples):
            end = start + int(rng.choice([1, 2, 3, 5, 17, 40]))
            yield self.samples[start:end]
            start = end


@lru_cache(maxsize=16)
def _numbers(seed: int) -> list[Tensor]:
    """Anchors, features, views, pixels, patches, prompts in float32, so that both precisions see the same numbers."""
    rng = np.random.default_rng(seed)
    anchors = rng.standard_normal((CLASSES, DIM)) + 2.0
    labels = rng.integers(CLASSES - 2, size=SAMPLES)  # two classes never come
    features = anchors[labels] + 0.8 * rng.standard_normal((SAMPLES, DIM)) + rng.standard_normal(DIM)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    views = features[:, None] + 0.1 * rng.standard_normal((SAMPLES, _VIEWS, DIM))
    views[:, 0] = features
    raw = rng.standard_normal((SAMPLES, 3, SIZE, SIZE))
    patches = features[:, None] + 0.3 * rng.standard_normal((SAMPLES, _PATCHES, DIM))
    prompts = anchors[:, None] + 0.3 * rng.standard_normal((CLASSES, _PROMPTS, DIM))
    for one in (features, views, raw, patches):
        one[1::7] = one[0]  # the same sample again and again
    return [torch.tensor(one, dtype=torch.float32) for one in (anchors, features, views, raw, patches, prompts)]

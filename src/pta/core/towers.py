"""A model's towers, as methods use them: images block by block, texts as a function of the prompt."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pta.errors import InvalidSamples


@dataclass(frozen=True)
class TokenBlock:
    """One pre-norm transformer block, N×L×width to the same shape, whole or in its two halves."""

    whole: Callable[[Tensor], Tensor]  # the block as the encoder itself runs it
    # Of the normalised tokens, without the residual: attention with its probabilities N×heads×L×L, and the two layers.
    attend: Callable[[Tensor], tuple[Tensor, Tensor]]
    mlp: Callable[[Tensor], Tensor]

    def __call__(self, x: Tensor) -> Tensor:
        """The whole block."""
        return self.whole(x)


@dataclass(frozen=True)
class ImageTower:
    """An image tower in parts; put together again they give exactly the features of its encoder."""

    shape: tuple[int, ...]  # channels, height and width of the pixels it takes
    tokens: int  # how many an image gives, the class token included
    width: int  # of a token
    dim: int  # of a feature
    ready: Callable[[Tensor], Tensor]  # pixels, normalised or still bytes, to the tower's device and precision
    embed: Callable[[Tensor], Tensor]  # ready pixels to N×tokens×width, the class token first
    blocks: Sequence[TokenBlock]
    project: Callable[[Tensor], Tensor]  # class tokens N×width after the last block to N×dim unit features

    def features(self, pixels: Tensor) -> Tensor:
        """Pixels to N×dim unit features, exactly those of the encoder."""
        self.require_shape(pixels)
        x = self.embed(self.ready(pixels))
        for block in self.blocks:
            x = block(x)
        return self.project(x[:, 0])

    def require_shape(self, pixels: Tensor) -> None:
        """Refuse pixels of another shape."""
        if tuple(pixels.shape[1:]) != self.shape:
            wanted, found = ("×".join(map(str, shape)) for shape in (self.shape, pixels.shape[1:]))
            raise InvalidSamples(f"the image tower takes pixels of N×{wanted}, not N×{found}; made for another model?")


@dataclass(frozen=True)
class PromptTower:
    """A frozen text tower as a function of the words that the prompts of all its classes begin with."""

    context: Tensor  # the token embeddings of these words, n×width, without positions
    lengths: Tensor  # how many tokens the prompt of each class has, C
    dim: int  # of a feature
    encode: Callable[[Tensor], Tensor]  # contexts B×n×width, like `context` in device and precision, to B×C×dim
    encode_each: Callable[[Tensor], Tensor]  # a context of its own for each class, C×n×width, to C×dim
    part: Callable[[Tensor], "PromptTower"]  # the tower of some of the classes, by their numbers
    recordable: bool = False  # whether `encode` and its gradient do all their work on the device

    @property
    def classes(self) -> int:
        """How many it has, C."""
        return len(self.lengths)

    def read(self, contexts: Tensor) -> Tensor:
        """Contexts B×n×width to B×C×dim unit rows, differentiably, in the precision of the contexts.

        Each context replaces the words in the prompt of every class; `context` itself gives the unchanged prompts.
        """
        return normalize(self.encode(contexts.to(self.context)).to(contexts.dtype), dim=-1)

    def read_each(self, contexts: Tensor) -> Tensor:
        """The same for a context of its own for each class: C×n×width to C×dim."""
        return normalize(self.encode_each(contexts.to(self.context)).to(contexts.dtype), dim=-1)


class Model(Protocol):
    """The interface of a model for methods; every `Encoder` implements it."""

    dim: int  # length of a feature

    @property
    def fingerprint(self) -> str:
        """Equal if and only if weights and settings are equal."""

    @property
    def dtype(self) -> torch.dtype:
        """The precision the towers run in."""

    @property
    def device(self) -> torch.device:
        """Where the weights are."""

    def image_tower(self) -> ImageTower:
        """The image tower block by block."""

    def prompt_tower(self, class_names: Sequence[str], start: str = "a photo of a") -> PromptTower:
        """The text tower as a function of `start` in the prompts "{start} {name}." of the classes."""


def attention(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Of N×heads×L×head queries, keys and values what is attended to, N×L×width, and the probabilities N×heads×L×L."""
    probabilities = ((q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)).softmax(dim=-1)
    return (probabilities @ v).transpose(1, 2).flatten(2), probabilities

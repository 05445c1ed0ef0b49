"""CLIP's vision transformer. Attributes are named as in OpenAI's state dicts."""

from math import isqrt
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from pta.core.towers import TokenBlock
from pta.errors import UnavailableModel
from pta.models.clip.state_dict import State, shape_of
from pta.models.clip.transformer import Transformer

_LETTERS = {(384, 12): "S", (512, 12): "M", (768, 12): "B", (1024, 24): "L", (1280, 32): "H", (1664, 48): "bigG"}


class VisionTransformer(nn.Module):
    """Pixels to tokens, the class token first, then the patches row by row; shaped by the weights."""

    def __init__(self, state: State, *, head_width: int, quick_gelu: bool) -> None:
        super().__init__()
        width, channels, self.patch, _ = shape_of(state, "visual.conv1.weight", 4)
        self.tokens, _ = shape_of(state, "visual.positional_embedding", 2)
        grid = isqrt(self.tokens - 1)
        if grid * grid + 1 != self.tokens or channels != 3:
            raise UnavailableModel(f"no CLIP model has {self.tokens} positions for {channels}-channel images")
        self.size = grid * self.patch
        self.dim = shape_of(state, "visual.proj", 2)[1]
        self.conv1 = nn.Conv2d(3, width, self.patch, stride=self.patch, bias=False)
        self.class_embedding = nn.Parameter(torch.empty(width))
        self.positional_embedding = nn.Parameter(torch.empty(self.tokens, width))
        self.ln_pre = nn.LayerNorm(width)
        self.transformer = Transformer(state, "visual.transformer.", head_width=head_width, quick_gelu=quick_gelu)
        self.ln_post = nn.LayerNorm(width)
        self.proj = nn.Parameter(torch.empty(width, self.dim))

    @property
    def architecture(self) -> str:
        """A name as in CLIP's paper, or what there is to say about a ViT that has none."""
        width, depth = len(self.class_embedding), len(self.transformer.resblocks)
        if (width, depth) in _LETTERS:
            return f"ViT-{_LETTERS[width, depth]}/{self.patch}{'' if self.size == 224 else f'@{self.size}px'}"
        return f"ViT with {depth} layers of width {width}, {self.size}-pixel images in {self.patch}-pixel patches"

    def forward(self, pixels: Tensor) -> Tensor:
        """N×3×size×size to N×dim, not yet of unit length."""
        return self.project(self.transformer.first(self.embed(pixels)))

    def patches(self, pixels: Tensor) -> Tensor:
        """N×3×size×size to N×patches×dim, projected like the class token."""
        tokens: Tensor = self.transformer(self.embed(pixels), causal=False)
        return self.project(tokens[:, 1:])

    def embed(self, pixels: Tensor) -> Tensor:
        """N×3×size×size to the N×tokens×width that the first block takes."""
        patches = linear(self._cut(pixels), self.conv1.weight.flatten(1))  # much faster than a strided convolution
        x = torch.cat([self.class_embedding.expand(pixels.shape[0], 1, -1), patches], dim=1) + self.positional_embedding
        return self.ln_pre(x)

    def _cut(self, pixels: Tensor) -> Tensor:
        """N×3×size×size to the numbers of each patch, N×patches×(3·patch·patch)."""
        grid, side = self.size // self.patch, self.patch
        squares = pixels.reshape(pixels.shape[0], 3, grid, side, grid, side).permute(0, 2, 4, 1, 3, 5)
        return squares.reshape(pixels.shape[0], grid * grid, 3 * side * side)

    def token_blocks(self) -> list[TokenBlock]:
        """The blocks, one by one."""
        blocks: Any = self.transformer.resblocks
        return [TokenBlock(block, block.attend, block.layers) for block in blocks]

    def project(self, tokens: Tensor) -> Tensor:
        """Tokens …×width after the last block to …×dim, not yet of unit length."""
        return self.ln_post(tokens) @ self.proj

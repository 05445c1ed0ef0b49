"""A tiny model with random weights, for checking methods that need a tower."""

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, normalize

from pta.core.towers import ImageTower, PromptTower, TokenBlock, attention

WIDTH, BLOCKS, HEADS, PATCH, SIZE = 16, 4, 2, 2, 16
_TOKENS = 1 + (SIZE // PATCH) ** 2


class ToyModel:
    """A transformer on pixels 3×16×16, and class features as a function of four context tokens."""

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

    @property
    def fingerprint(self) -> str:
        """A hash of the weights, the same in every precision."""
        digest = hashlib.sha256()
        for weight in self.weights.values():
            digest.update(weight.float().numpy().tobytes())
        return digest.hexdigest()

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
        return PromptTower(
            context=self.weights["context"],
            lengths=torch.full((len(named),), 8),
            dim=self.dim,
            encode=lambda contexts: named + torch.tanh(contexts.flatten(1) @ self.weights["words"])[:, None],
            encode_each=lambda contexts: named + torch.tanh(contexts.flatten(1) @ self.weights["words"]),
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

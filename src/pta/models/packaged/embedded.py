"""A dual encoder small enough to ship: a ViT for 28×28 grey images and a byte-level text transformer.

It was trained contrastively on Fashion-MNIST by `training/embedded.py` and knows clothing only. It exists so
that everything in `pta` can be tried on real image and text features with nothing to download.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from pta.core.towers import ImageTower, TokenBlock
from pta.door.images import Preprocessing
from pta.models.image_encoder import ImageEncoder
from pta.models.packaged.byte_text import BlockStack, TextConfig, small_normal
from pta.models.packaged.packaged_encoder import PackagedEncoder, require_heads

EMBEDDED_TEMPLATES = (
    "a catalogue shot of a {}.",
    "you can see one {} here.",
    "a tiny black and white picture of a {}.",
)
"""Prompts for the embedded model. None of them was used in its training or in any choice made there."""


@dataclass(frozen=True)
class EmbeddedConfig(TextConfig):
    """Every number that shapes the encoder; stored with the weights, so a file says how to read itself."""

    image_size: int = 28
    patch_size: int = 4
    image_width: int = 128
    image_depth: int = 5
    image_heads: int = 4
    pixel_mean: float = 0.286
    pixel_std: float = 0.353

    @property
    def patches(self) -> int:
        """How many patch tokens an image gives."""
        return (self.image_size // self.patch_size) ** 2


class PatchTransformer(nn.Module):
    """Pixels to normalised tokens: the class token first, then the patches row by row."""

    def __init__(self, config: EmbeddedConfig) -> None:
        super().__init__()
        width, patch = config.image_width, config.patch_size
        self.patch = nn.Conv2d(1, width, kernel_size=patch, stride=patch)
        self.class_token, self.positions = small_normal(width), small_normal(1 + config.patches, width)
        self.blocks = BlockStack(config.image_depth, width, config.image_heads, config)
        self.norm = nn.LayerNorm(width)

    def forward(self, pixels: Tensor) -> Tensor:
        """N×1×H×W to N×(1+patches)×width."""
        return self.norm(self.blocks(self.embed(pixels)))

    def embed(self, pixels: Tensor) -> Tensor:
        """N×1×H×W to the N×(1+patches)×width that the first block takes."""
        patches = self.patch(pixels).flatten(2).transpose(1, 2)
        return torch.cat([self.class_token.expand(len(pixels), 1, -1), patches], dim=1) + self.positions

    def token_blocks(self) -> list[TokenBlock]:
        """The blocks, one by one."""
        blocks: Any = self.blocks
        return [TokenBlock(block, block.attend, block.mlp) for block in blocks]


class EmbeddedEncoder(PackagedEncoder, ImageEncoder):
    """Images and texts to unit rows of one space.

    >>> encoder = EmbeddedEncoder.load()
    >>> encoder.encode_texts(["a photo of a coat.", "a photo of a bag."]).shape
    torch.Size([2, 128])
    """

    kind = "embedded encoder"
    file = "embedded.safetensors"
    config_class = EmbeddedConfig
    knows, instead = "clothing", "hf:openai/clip-vit-base-patch16"
    config: EmbeddedConfig

    def __init__(self, config: EmbeddedConfig | None = None) -> None:
        config = config or EmbeddedConfig()
        super().__init__(config)
        self.architecture = "embedded"
        mean, std = (config.pixel_mean,), (config.pixel_std,)
        self.preprocess = Preprocessing(config.image_size, resize="square", mean=mean, std=std)
        self.image = PatchTransformer(config)
        self.image_projection = nn.Linear(config.image_width, config.dim, bias=False)
        self._build_text_tower(config)

    @classmethod
    def _require_sound(cls, config: EmbeddedConfig, weights: int) -> None:
        super()._require_sound(config, weights)
        if config.image_depth > weights:
            raise ValueError("more layers than weights")
        require_heads(config.image_width, config.image_heads)

    def features(self, pixels: Tensor) -> Tensor:
        return normalize(self.image_projection(self.image(pixels)[:, 0]), dim=-1)

    def patch_features(self, pixels: Tensor) -> Tensor:
        return normalize(self.image_projection(self.image(pixels)[:, 1:]), dim=-1)

    def image_tower(self) -> ImageTower:
        return ImageTower(
            shape=self._pixel_shape,
            tokens=1 + self.config.patches,
            width=self.config.image_width,
            dim=self.dim,
            ready=self._ready,
            embed=self.image.embed,
            blocks=self.image.token_blocks(),
            project=lambda token: normalize(self.image_projection(self.image.norm(token)), dim=-1),
        )

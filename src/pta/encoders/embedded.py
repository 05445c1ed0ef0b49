"""A dual encoder small enough to ship: a ViT for 28×28 grey images and a byte-level text transformer.

It was trained contrastively on Fashion-MNIST by `training/embedded.py` and knows clothing only. It exists so
that everything in `pta` can be tried on real image and text features with nothing to download.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, gelu, normalize, scaled_dot_product_attention

from pta.encoders.image_encoder import ImageEncoder
from pta.errors import UnreadableFile, first_line
from pta.files import load_tensors, save_tensors
from pta.images import Preprocessing
from pta.towers import ImageTower, TokenBlock, attention

EMBEDDED_TEMPLATES = (
    "a catalogue shot of a {}.",
    "you can see one {} here.",
    "a tiny black and white picture of a {}.",
)
"""Prompts for the embedded model. None of them was used in its training or in any choice made there."""

MAX_SCALE = 100.0  # as in CLIP: beyond it the contrastive loss becomes unstable

START, END, PAD = 256, 257, 258  # the ids after the 256 byte values
_VOCABULARY = 259


@dataclass(frozen=True)
class EmbeddedConfig:
    """Every number that shapes the encoder; stored with the weights, so a file says how to read itself."""

    dim: int = 128
    image_size: int = 28
    patch_size: int = 4
    image_width: int = 128
    image_depth: int = 5
    image_heads: int = 4
    text_length: int = 77
    text_width: int = 64
    text_depth: int = 2
    text_heads: int = 4
    mlp_ratio: int = 3
    dropout: float = 0.1
    pixel_mean: float = 0.286
    pixel_std: float = 0.353

    @property
    def patches(self) -> int:
        """How many patch tokens an image gives."""
        return (self.image_size // self.patch_size) ** 2


class Block(nn.Module):
    """One pre-norm transformer block."""

    def __init__(self, width: int, heads: int, config: EmbeddedConfig) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp_in = nn.Linear(width, config.mlp_ratio * width)
        self.mlp_out = nn.Linear(config.mlp_ratio * width, width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """N×L×width to the same shape; keys where `mask` (N×L) is False are not attended to."""
        visible = None if mask is None else mask[:, None, None, :]
        mixed = scaled_dot_product_attention(*self._queries_keys_values(x), attn_mask=visible)
        x = x + self.dropout(self.attention_out(mixed.transpose(1, 2).flatten(2)))
        return x + self.dropout(self.mlp(x))

    def mlp(self, x: Tensor) -> Tensor:
        """The two layers, of the normalised tokens."""
        return self.mlp_out(gelu(self.mlp_in(self.mlp_norm(x))))

    def attend(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Unmasked self-attention of the normalised tokens, and who attends to whom, N×heads×L×L."""
        mixed, probabilities = attention(*self._queries_keys_values(x))
        return self.attention_out(mixed), probabilities

    def _queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.query_key_value(self.attention_norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return q, k, v


class PatchTransformer(nn.Module):
    """Pixels to normalised tokens: the class token first, then the patches row by row."""

    def __init__(self, config: EmbeddedConfig) -> None:
        super().__init__()
        width, patch = config.image_width, config.patch_size
        self.patch = nn.Conv2d(1, width, kernel_size=patch, stride=patch)
        self.class_token = nn.Parameter(0.02 * torch.randn(width))
        self.positions = nn.Parameter(0.02 * torch.randn(1 + config.patches, width))
        self.blocks = nn.ModuleList(Block(width, config.image_heads, config) for _ in range(config.image_depth))
        self.norm = nn.LayerNorm(width)

    def forward(self, pixels: Tensor) -> Tensor:
        """N×1×H×W to N×(1+patches)×width."""
        x = self.embed(pixels)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)

    def embed(self, pixels: Tensor) -> Tensor:
        """N×1×H×W to the N×(1+patches)×width that the first block takes."""
        patches = self.patch(pixels).flatten(2).transpose(1, 2)
        return torch.cat([self.class_token.expand(len(pixels), 1, -1), patches], dim=1) + self.positions

    def token_blocks(self) -> list[TokenBlock]:
        """The blocks, one by one."""
        blocks: Any = self.blocks
        return [TokenBlock(block, block.attend, block.mlp) for block in blocks]


class TextTower(nn.Module):
    """Byte embeddings to one vector per text, read at the start token."""

    def __init__(self, config: EmbeddedConfig) -> None:
        super().__init__()
        width = config.text_width
        self.bytes = nn.Parameter(0.02 * torch.randn(_VOCABULARY, width))
        self.positions = nn.Parameter(0.02 * torch.randn(config.text_length, width))
        self.blocks = nn.ModuleList(Block(width, config.text_heads, config) for _ in range(config.text_depth))
        self.norm = nn.LayerNorm(width)

    def forward(self, embeddings: Tensor, mask: Tensor) -> Tensor:
        """N×L×width embeddings, without positions, and their N×L mask to N×width."""
        x = embeddings + self.positions[: embeddings.shape[1]]
        for block in self.blocks:
            x = block(x, mask)
        return self.norm(x[:, 0])


class EmbeddedEncoder(ImageEncoder):
    """Images and texts to unit rows of one space.

    >>> encoder = EmbeddedEncoder.load()
    >>> encoder.encode_texts(["a photo of a coat.", "a photo of a bag."]).shape
    torch.Size([2, 128])
    """

    def __init__(self, config: EmbeddedConfig | None = None) -> None:
        super().__init__()
        self.config = config = config or EmbeddedConfig()
        self.architecture, self.dim, self.settings = "embedded", config.dim, asdict(config)
        mean, std = (config.pixel_mean,), (config.pixel_std,)
        self.preprocess = Preprocessing(config.image_size, resize="square", mean=mean, std=std)
        self.image = PatchTransformer(config)
        self.text = TextTower(config)
        self.image_projection = nn.Linear(config.image_width, config.dim, bias=False)
        self.text_projection = nn.Linear(config.text_width, config.dim, bias=False)
        self.log_scale = nn.Parameter(torch.tensor(1 / 0.07).log())  # CLIP's starting temperature

    @classmethod
    def load(cls) -> "EmbeddedEncoder":
        """The packaged model, ready for inference in float32."""
        with resources.as_file(resources.files("pta") / "data" / "embedded.safetensors") as path:
            return cls.read(path)

    @classmethod
    def read(cls, path: str | Path) -> "EmbeddedEncoder":
        """A model written by `write`, ready for inference in float32."""
        weights, about = load_tensors(path, kind="embedded encoder")
        try:
            config = EmbeddedConfig(**about["config"])
            if max(config.image_depth, config.text_depth) > len(weights):
                raise ValueError("more layers than weights")
            for width, heads in ((config.image_width, config.image_heads), (config.text_width, config.text_heads)):
                if heads < 1 or width % heads:
                    raise ValueError(f"a width of {width} cannot be divided into {heads} heads")
            with torch.device("meta"):
                encoder = cls(config)
            encoder.load_state_dict({name: weight.float() for name, weight in weights.items()}, assign=True)
        except (KeyError, TypeError, ValueError, ArithmeticError, RuntimeError) as error:
            raise UnreadableFile(f"{path} describes no embedded encoder: {first_line(error)}") from None
        return encoder.eval().requires_grad_(False)

    def write(self, path: str | Path, **about: Any) -> None:
        """Save the weights in float16, with the configuration and what else is to be known `about` them."""
        weights = {name: value.detach().cpu().half() for name, value in self.state_dict().items()}
        save_tensors(path, weights, {"kind": "embedded encoder", "config": asdict(self.config), **about})

    @property
    def scale(self) -> float:  # type: ignore[override]
        return min(self.log_scale.exp().item(), MAX_SCALE)

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

    def tokenize(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Lower-cased UTF-8 bytes between start and end, padded to the longest: ids and mask, both N×L."""
        rows = [[START, *text.lower().encode(), END] for text in texts]
        self._require_short(texts, (len(row) - 2 for row in rows), self.config.text_length - 2, unit="bytes")
        return self._padded(rows, max(map(len, rows), default=2), PAD)

    def embed_ids(self, ids: Tensor) -> Tensor:
        return embedding(ids, self.text.bytes)

    def text_from_embeddings(self, embeddings: Tensor, mask: Tensor) -> Tensor:
        """Read at the first token of each row, so a tuned prompt goes after it."""
        return normalize(self.text_projection(self.text(embeddings, mask)), dim=-1)

"""Texts as bytes: a small transformer that every packaged model reads its texts with."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, gelu, normalize, scaled_dot_product_attention

from pta.core.towers import attention
from pta.models.encoder import Encoder

START, END, PAD = 256, 257, 258  # the ids after the 256 byte values
_VOCABULARY = 259


@dataclass(frozen=True)
class TextConfig:
    """Every number that shapes the text tower and the common space."""

    dim: int = 128
    text_length: int = 77
    text_width: int = 64
    text_depth: int = 2
    text_heads: int = 4
    mlp_ratio: int = 3
    dropout: float = 0.1


class Block(nn.Module):
    """One pre-norm transformer block."""

    def __init__(self, width: int, heads: int, config: TextConfig) -> None:
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


class BlockStack(nn.ModuleList):
    """Transformer blocks, one after the other."""

    def __init__(self, count: int, width: int, heads: int, config: TextConfig) -> None:
        super().__init__(Block(width, heads, config) for _ in range(count))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """N×L×width to the same shape."""
        for block in self:
            x = block(x, mask)
        return x


def small_normal(*shape: int) -> nn.Parameter:
    """Weights to begin a training with.

    Where weights are only described (meta) none are drawn: torch would load its compiler for that, which takes seconds.
    """
    weights = torch.empty(shape)
    return nn.Parameter(weights if weights.is_meta else nn.init.normal_(weights, std=0.02))


class TextTower(nn.Module):
    """Byte embeddings to one vector per text, read at the start token."""

    def __init__(self, config: TextConfig) -> None:
        super().__init__()
        width = config.text_width
        self.bytes, self.positions = small_normal(_VOCABULARY, width), small_normal(config.text_length, width)
        self.blocks = BlockStack(config.text_depth, width, config.text_heads, config)
        self.norm = nn.LayerNorm(width)

    def forward(self, embeddings: Tensor, mask: Tensor) -> Tensor:
        """N×L×width embeddings, without positions, and their N×L mask to N×width."""
        x = embeddings + self.positions[: embeddings.shape[1]]
        return self.norm(self.blocks(x, mask)[:, 0])


class ByteText(Encoder):
    """An encoder that reads texts as bytes."""

    config: TextConfig

    def _build_text_tower(self, config: TextConfig) -> None:
        self.text = TextTower(config)
        self.text_projection = nn.Linear(config.text_width, config.dim, bias=False)

    def tokenize(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Lower-cased UTF-8 bytes between start and end, padded to the longest: ids and mask, both N×L."""
        rows = [[START, *text.lower().encode(errors="replace"), END] for text in texts]
        self._require_short(texts, (len(row) - 2 for row in rows), self.config.text_length - 2, unit="bytes")
        return self._padded(rows, max(map(len, rows), default=2), PAD)

    def embed_ids(self, ids: Tensor) -> Tensor:
        return embedding(ids, self.text.bytes)

    def text_from_embeddings(self, embeddings: Tensor, mask: Tensor) -> Tensor:
        """Read at the first token of each row, so a tuned prompt goes after it."""
        return normalize(self.text_projection(self.text(embeddings, mask)), dim=-1)

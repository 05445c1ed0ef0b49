"""The transformer that CLIP's ViT and text tower share. Attributes are named as in OpenAI's state dicts."""

from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, scaled_dot_product_attention

from pta.core.towers import attention
from pta.models.clip.state_dict import State, count_in, heads_of, shape_of

_HALF = (torch.float16, torch.bfloat16)  # in which a GPU has kernels for many rows and for few


class ClipAttention(nn.Module):
    """Multi-head self-attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.in_proj_weight = nn.Parameter(torch.empty(3 * width, width))
        self.in_proj_bias = nn.Parameter(torch.empty(3 * width))
        self.out_proj = nn.Linear(width, width)

    def forward(self, x: Tensor, causal: bool) -> Tensor:
        """N×L×width to the same shape; if causal, nothing is seen of what comes later."""
        return self._out(causal, *self._queries_keys_values(x))

    def first(self, x: Tensor) -> Tensor:
        """The first row of what `forward` gives, not causal, N×1×width, without asking for the others."""
        split = (x.shape[2],)
        (ask, tell), (ask_bias, tell_bias) = (w.tensor_split(split) for w in (self.in_proj_weight, self.in_proj_bias))
        (q,) = split_heads(linear(x[:, :1], ask, ask_bias), 1, self.heads)
        k, v = split_heads(linear(x, tell, tell_bias), 2, self.heads)
        return self._out(False, q, k, v)

    def with_probabilities(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The same as `forward`, not causal, and who attends to whom, N×heads×L×L."""
        mixed, probabilities = attention(*self._queries_keys_values(x))
        return self.out_proj(mixed), probabilities

    def _queries_keys_values(self, x: Tensor) -> Any:
        return split_heads(linear(x, self.in_proj_weight, self.in_proj_bias), 3, self.heads)

    def _out(self, causal: bool, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self.out_proj(join_heads(scaled_dot_product_attention(q, k, v, is_causal=causal)))


class QuickGelu(nn.Module):
    """The cheaper activation that OpenAI trained with."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same."""
        return x * torch.sigmoid(1.702 * x)


class ClipBlock(nn.Module):
    """One pre-norm transformer block."""

    def __init__(self, width: int, heads: int, hidden: int, quick_gelu: bool) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = ClipAttention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        activation = QuickGelu() if quick_gelu else nn.GELU()
        layers = {"c_fc": nn.Linear(width, hidden), "activation": activation, "c_proj": nn.Linear(hidden, width)}
        self.mlp = nn.Sequential(OrderedDict(layers))

    def forward(self, x: Tensor, causal: bool = False) -> Tensor:
        """N×L×width to the same shape."""
        x = x + self.attn(self.ln_1(x), causal)
        return x + self.layers(x)

    def first(self, x: Tensor) -> Tensor:
        """The first row of what `forward` gives, not causal, N×1×width."""
        x = x[:, :1] + self.attn.first(self.ln_1(x))
        return x + self.layers(x)

    def attend(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """What the tokens attend to, not causal, without the residual; and who attends to whom, N×heads×L×L."""
        return self.attn.with_probabilities(self.ln_1(x))

    def layers(self, x: Tensor) -> Tensor:
        """The two layers, without the residual."""
        return self.mlp(self.ln_2(x))


class Transformer(nn.Module):
    """The stack of blocks whose weights begin with `prefix`."""

    def __init__(self, state: State, prefix: str, *, head_width: int, quick_gelu: bool) -> None:
        super().__init__()
        hidden, width = shape_of(state, f"{prefix}resblocks.0.mlp.c_fc.weight", 2)
        heads, depth = heads_of(width, head_width), count_in(state, f"{prefix}resblocks.")
        self.resblocks = nn.ModuleList(ClipBlock(width, heads, hidden, quick_gelu) for _ in range(depth))
        self._heads, self._quick_gelu = heads, quick_gelu
        self._is_aligned = width % 8 == hidden % 8 == 0  # rows of 16 bytes, which a GPU copies by itself
        self.has_kernels = False

    def has_kernels_for(self, rows: int, dtype: torch.dtype) -> bool:
        """Whether kernels for many rows are used for so many, in this precision."""
        if not self._has_kernels_in(dtype):
            return False
        from pta.engines.gpu.triton_transformer import FEWEST_ROWS

        return rows >= FEWEST_ROWS

    def _has_kernels_in(self, dtype: torch.dtype) -> bool:
        return self.has_kernels and self._is_aligned and dtype in _HALF

    def forward(self, x: Tensor, *, causal: bool) -> Tensor:
        """N×L×width to the same shape."""
        for block in self.resblocks:
            x = block(x, causal)
        return x

    def first(self, x: Tensor) -> Tensor:
        """The first row of what `forward` gives, not causal, N×width; the last block leaves the other rows out."""
        if self._has_kernels_in(x.dtype) and x.is_cuda and not torch.is_grad_enabled():
            from pta.engines.gpu.triton_few_tokens import MOST_ROWS, class_tokens_of_few
            from pta.engines.gpu.triton_transformer import FEWEST_ROWS, class_tokens

            rows, given = x.shape[0] * x.shape[1], (x, list(self.parameters()), self._heads, self._quick_gelu)
            if rows >= FEWEST_ROWS:
                return class_tokens(*given)
            if rows <= MOST_ROWS:
                return class_tokens_of_few(*given)
        blocks: list[Any] = list(self.resblocks)
        for block in blocks[:-1]:
            x = block(x)
        return blocks[-1].first(x)[:, 0]


def split_heads(projected: Tensor, parts: int, heads: int) -> Any:
    """N×L×(parts·width) to parts×N×heads×L×head_width, of which each part is a tensor."""
    return torch.unflatten(projected, -1, (parts, heads, -1)).permute(2, 0, 3, 1, 4)


def join_heads(mixed: Tensor) -> Tensor:
    """N×heads×L×head_width to N×L×width."""
    return mixed.transpose(1, 2).flatten(2)

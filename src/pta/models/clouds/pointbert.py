"""PointBERT, the point tower of ULIP. Attributes are named as in ULIP's state dicts."""

from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, scaled_dot_product_attention

from pta.models.clip.state_dict import State, count_in, heads_of, shape_of
from pta.models.clip.transformer import join_heads, split_heads

_HEAD_WIDTH = 64
_MOST_GROUPS = 4096  # bounds memory, changes no result


class MiniPointNet(nn.Module):
    """The points of a group, relative to its centre, to one vector."""

    def __init__(self, state: State, prefix: str) -> None:
        super().__init__()
        first, channels, _ = shape_of(state, f"{prefix}first_conv.0.weight", 3)
        second, third, fourth = (
            shape_of(state, f"{prefix}{name}.weight", 3)[0]
            for name in ("first_conv.3", "second_conv.0", "second_conv.3")
        )
        self.first_conv, self.second_conv = _layers(channels, first, second), _layers(2 * second, third, fourth)

    def forward(self, groups: Tensor) -> Tensor:
        """N×points×channels to N×width."""
        return torch.cat([self._read(part) for part in torch.split(groups, _MOST_GROUPS)])

    def _read(self, groups: Tensor) -> Tensor:
        weight, bias, last = _folded(self.first_conv)
        points = last(linear(groups, weight, bias).relu_())
        whole = points.amax(dim=1)
        # The second network reads each point behind the maximum of its group, which needs to be multiplied only once.
        weight, bias, last = _folded(self.second_conv)
        of_whole, of_point = weight.chunk(2, dim=1)
        mixed = linear(points, of_point) + linear(whole, of_whole, bias)[:, None]
        return last(mixed.relu_()).amax(dim=1)


def _layers(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv1d(inputs, hidden, 1), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Conv1d(hidden, outputs, 1))


def _folded(layers: nn.Sequential) -> tuple[Tensor, Tensor, Any]:
    """Convolution and BatchNorm as weight and bias of one linear layer, and the last convolution as another."""
    parts: Any = layers
    convolution, norm, _, last = parts
    gain = norm.weight.float() * (norm.running_var.float() + norm.eps).rsqrt()
    weight = convolution.weight[..., 0] * gain[:, None]
    bias = (convolution.bias - norm.running_mean) * gain + norm.bias
    dtype = convolution.weight.dtype
    return weight.to(dtype), bias.to(dtype), lambda x: linear(x, last.weight[..., 0], last.bias)


class PointAttention(nn.Module):
    """Multi-head self-attention whose queries, keys and values have no bias."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = heads_of(width, _HEAD_WIDTH)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """N×L×width to the same shape."""
        return self.proj(join_heads(scaled_dot_product_attention(*split_heads(self.qkv(x), 3, self.heads))))


class PointBlock(nn.Module):
    """One pre-norm transformer block."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(width), PointAttention(width)
        self.norm2 = nn.LayerNorm(width)
        layers = {"fc1": nn.Linear(width, hidden), "activation": nn.GELU(), "fc2": nn.Linear(hidden, width)}
        self.mlp = nn.Sequential(OrderedDict(layers))

    def forward(self, x: Tensor) -> Tensor:
        """N×L×width to the same shape."""
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Blocks(nn.Module):
    """The stack of blocks; the positions are added again before each."""

    def __init__(self, state: State, prefix: str, width: int) -> None:
        super().__init__()
        hidden, _ = shape_of(state, f"{prefix}0.mlp.fc1.weight", 2)
        self.blocks = nn.ModuleList(PointBlock(width, hidden) for _ in range(count_in(state, prefix)))

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """N×L×width twice to the same shape."""
        for block in self.blocks:
            x = block(x + positions)
        return x


class PointBert(nn.Module):
    """Groups of points to normalised tokens: the class token first, then one per group."""

    def __init__(self, state: State, prefix: str) -> None:
        super().__init__()
        width, inner = shape_of(state, f"{prefix}reduce_dim.weight", 2)
        hidden, _ = shape_of(state, f"{prefix}pos_embed.0.weight", 2)
        self.width = width
        self.encoder = MiniPointNet(state, f"{prefix}encoder.")
        self.reduce_dim = nn.Linear(inner, width)
        self.cls_token, self.cls_pos = (nn.Parameter(torch.empty(1, 1, width)) for _ in range(2))
        self.pos_embed = nn.Sequential(nn.Linear(3, hidden), nn.GELU(), nn.Linear(hidden, width))
        self.blocks = Blocks(state, f"{prefix}blocks.blocks.", width)
        self.norm = nn.LayerNorm(width)

    def forward(self, groups: Tensor, centres: Tensor) -> Tensor:
        """N×groups×points×3, relative to the centres N×groups×3, to N×(1+groups)×width."""
        tokens = self.reduce_dim(self.encoder(groups.flatten(0, 1))).unflatten(0, groups.shape[:2])
        own = len(centres), -1, -1
        x = torch.cat([self.cls_token.expand(own), tokens], dim=1)
        positions = torch.cat([self.cls_pos.expand(own), self.pos_embed(centres)], dim=1)
        return self.norm(self.blocks(x, positions))

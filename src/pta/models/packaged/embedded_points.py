"""A dual encoder for point clouds that is small enough to ship: three layers of EdgeConv and a byte-level text tower.

Wang et al.: "Dynamic Graph CNN for Learning on Point Clouds" (2019), https://arxiv.org/abs/1801.07829. Here the graph
is that of the points themselves and is made once. The model was trained contrastively by `training/embedded_points.py`
on procedural shapes and furniture, whose y axis points up, and knows nothing else.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu, normalize

from pta.door.points.groups import nearest_points
from pta.models.clouds.cloud_encoder import TokenCloudEncoder
from pta.models.packaged.embedded import PackagedEncoder, TextConfig

POINT_TEMPLATES = (
    "a scan of one {}.",
    "these points lie on a {}.",
    "the shape of a {} in space.",
)
"""Prompts for the embedded model of clouds. None of them was used in its training or in any choice made there."""

_ON_CPU, _ON_GPU = 2, 64  # clouds in a batch; changes no result


@dataclass(frozen=True)
class EmbeddedPointsConfig(TextConfig):
    """Every number that shapes the encoder; stored with the weights, so a file says how to read itself."""

    neighbours: int = 16
    strides: tuple[int, ...] = (1, 2, 4)  # each layer takes every n-th of the nearest points
    widths: tuple[int, ...] = (64, 64, 128)
    token_width: int = 320
    point_dropout: float = 0.3  # of what is pooled


class EdgeConv(nn.Module):
    """A point and its neighbours to one vector: each channel is the largest that a linear function of a pair gives."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.own = nn.Linear(inputs, outputs)
        self.other = nn.Linear(inputs, outputs, bias=False)
        self.norm = nn.LayerNorm(outputs)

    def forward(self, points: Tensor, near: Tensor) -> Tensor:
        """N×n×inputs and the rows N×n×k of the neighbours, counted over all clouds, to N×n×outputs."""
        others = _rows(self.other(points), near).amax(dim=2)
        # The activation grows with its argument, so it may come after the maximum.
        return self.norm(leaky_relu(self.own(points) + others, 0.2))


class PointTower(nn.Module):
    """Clouds to one token for each point."""

    def __init__(self, config: EmbeddedPointsConfig) -> None:
        super().__init__()
        self.neighbours, self.strides = config.neighbours, tuple(config.strides)
        inputs = (3, *config.widths[:-1])
        self.layers = nn.ModuleList(map(EdgeConv, inputs, config.widths))
        self.mix = nn.Linear(sum(config.widths), config.token_width)
        self.norm = nn.LayerNorm(config.token_width)

    def forward(self, clouds: Tensor) -> Tensor:
        """N×n×3 in float32 to N×n×token_width."""
        near, x = self._nearest(clouds), clouds.to(self.mix.weight.dtype)
        found = []
        for layer, stride in zip(self.layers, self.strides, strict=True):
            x = layer(x, near[:, :, ::stride][:, :, : self.neighbours])
            found.append(x)
        return self.norm(leaky_relu(self.mix(torch.cat(found, dim=-1)), 0.2))

    def _nearest(self, clouds: Tensor) -> Tensor:
        """The rows of each point's nearest ones, itself first, as many as the widest layer looks at."""
        count = min(self.neighbours * max(self.strides), clouds.shape[1])
        first = torch.arange(len(clouds), device=clouds.device)[:, None, None] * clouds.shape[1]
        near = nearest_points(clouds, clouds, count) + first
        distances = (_rows(clouds, near) - clouds[:, :, None]).square().sum(dim=-1)
        return near.gather(-1, distances.argsort(dim=-1))


def _rows(points: Tensor, numbers: Tensor) -> Tensor:
    """The rows of N×n×width with these numbers, counted over all clouds."""
    # Several times as fast on a CPU as an index of tensors.
    return points.flatten(0, 1).index_select(0, numbers.flatten()).view(*numbers.shape, points.shape[-1])


class EmbeddedPointsEncoder(PackagedEncoder, TokenCloudEncoder):
    """Clouds and texts to unit rows of one space."""

    kind = "embedded encoder of clouds"
    file = "embedded-points.safetensors"
    config_class = EmbeddedPointsConfig
    knows, instead = "furniture and some other shapes", "ulip:FOLDER"

    def __init__(self, config: EmbeddedPointsConfig | None = None) -> None:
        config = config or EmbeddedPointsConfig()
        super().__init__(config)
        self.architecture, self.least_points = "embedded-points", config.neighbours
        self.points = PointTower(config)
        self.dropout = nn.Dropout(config.point_dropout)
        self.point_projection = nn.Linear(2 * config.token_width, config.dim, bias=False)
        self._build_text_tower(config)

    @classmethod
    def _require_sound(cls, config: EmbeddedPointsConfig, weights: int) -> None:
        super()._require_sound(config, weights)
        if not 0 < len(config.widths) == len(config.strides) < weights:
            raise ValueError("it needs as many strides as widths, and weights for each")
        if min(config.strides) < 1 or not 1 <= config.neighbours * max(config.strides) <= 1024:
            raise ValueError("a layer looks at 1 to 1024 of the nearest points")

    def _tokens(self, clouds: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """The means and the tokens of all clouds, of so few at a time that a cache can hold them."""
        most = len(clouds) if self.training else _ON_CPU if clouds.device.type == "cpu" else _ON_GPU
        return map(self._read, torch.split(clouds, most))

    def _read(self, clouds: Tensor) -> tuple[Tensor, Tensor]:
        tokens = self.points(clouds)
        return tokens.mean(dim=1), tokens

    def _project(self, summary: Tensor, pooled: Tensor) -> Tensor:
        return normalize(self.point_projection(self.dropout(torch.cat([summary, pooled], dim=-1))), dim=-1)

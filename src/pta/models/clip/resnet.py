"""CLIP's modified ResNet. Attributes are named as in OpenAI's state dicts.

It differs from the usual ResNet in three places: the stem has three convolutions and an average pool, every stride
is an average pool of its own so that nothing is aliased, and the last pooling is an attention whose query is the mean.
"""

from math import isqrt

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm, relu, scaled_dot_product_attention

from pta.errors import UnavailableModel
from pta.models.clip.state_dict import State, count_in, heads_of, shape_of

_EXPANSION = 4  # of channels, in each block
_STRIDE = 32  # of the whole tower
_NAMES: dict[tuple[tuple[int, ...], int, int], str] = {  # blocks a stage, width, image size
    ((3, 4, 6, 3), 64, 224): "RN50",
    ((3, 4, 23, 3), 64, 224): "RN101",
    ((4, 6, 10, 6), 80, 288): "RN50x4",
    ((6, 8, 18, 8), 96, 384): "RN50x16",
    ((3, 15, 36, 10), 128, 448): "RN50x64",
}


class BatchNorm(nn.Module):
    """Normalises by the statistics of training, whatever mode the model is in."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(channels)), nn.Parameter(torch.empty(channels))
        self.running_mean: Tensor
        self.running_var: Tensor
        self.register_buffer("running_mean", torch.empty(channels))
        self.register_buffer("running_var", torch.empty(channels))

    def forward(self, x: Tensor) -> Tensor:
        """N×channels×H×W to the same shape."""
        return batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias)


class Bottleneck(nn.Module):
    """One residual block; a stride is an average pool before the last convolution and before the short cut."""

    def __init__(self, channels: int, planes: int, stride: int) -> None:
        super().__init__()
        wide = planes * _EXPANSION
        self.conv1, self.bn1 = nn.Conv2d(channels, planes, 1, bias=False), BatchNorm(planes)
        self.conv2, self.bn2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False), BatchNorm(planes)
        self.conv3, self.bn3 = nn.Conv2d(planes, wide, 1, bias=False), BatchNorm(wide)
        self.pool = nn.AvgPool2d(stride) if stride > 1 else nn.Identity()
        if stride > 1 or channels != wide:
            self.downsample = nn.Sequential(nn.Conv2d(channels, wide, 1, bias=False), BatchNorm(wide))
        else:
            self.downsample = nn.Sequential()

    def forward(self, x: Tensor) -> Tensor:
        """N×channels×H×W to N×wide×H/stride×W/stride."""
        out = relu(self.bn1(self.conv1(x)))
        out = self.pool(relu(self.bn2(self.conv2(out))))
        return relu(self.bn3(self.conv3(out)) + self.downsample(self.pool(x)))


class AttentionPool(nn.Module):
    """The mean of a feature map asks the map, and itself, what the image shows."""

    def __init__(self, positions: int, width: int, heads: int, dim: int) -> None:
        super().__init__()
        self.heads = heads
        self.positional_embedding = nn.Parameter(torch.empty(positions, width))
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(width, width) for _ in range(3))
        self.c_proj = nn.Linear(width, dim)

    def forward(self, feature_map: Tensor) -> Tensor:
        """N×width×H×W to N×dim."""
        x = feature_map.flatten(2).transpose(1, 2)
        x = torch.cat([x.mean(dim=1, keepdim=True), x], dim=1) + self.positional_embedding
        q, k, v = (
            project(part).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for project, part in ((self.q_proj, x[:, :1]), (self.k_proj, x), (self.v_proj, x))
        )
        return self.c_proj(scaled_dot_product_attention(q, k, v).flatten(1))


class ModifiedResNet(nn.Module):
    """Pixels to features by convolutions, shaped by the weights; `head_width` is that of the attention pool."""

    def __init__(self, state: State, *, head_width: int) -> None:
        super().__init__()
        self.width = width = shape_of(state, "visual.layer1.0.conv1.weight", 4)[0]
        positions, pooled = shape_of(state, "visual.attnpool.positional_embedding", 2)
        grid = isqrt(positions - 1)
        if grid * grid + 1 != positions or width % 2:
            raise UnavailableModel(f"no CLIP ResNet has {positions} positions and width {width}")
        self.size = grid * _STRIDE
        self.dim = shape_of(state, "visual.attnpool.c_proj.weight", 2)[0]
        self.conv1 = nn.Conv2d(3, width // 2, 3, stride=2, padding=1, bias=False)
        self.conv2 = nn.Conv2d(width // 2, width // 2, 3, padding=1, bias=False)
        self.conv3 = nn.Conv2d(width // 2, width, 3, padding=1, bias=False)
        self.bn1, self.bn2, self.bn3 = BatchNorm(width // 2), BatchNorm(width // 2), BatchNorm(width)
        self.pool = nn.AvgPool2d(2)
        self.depths = tuple(count_in(state, f"visual.layer{stage}.") for stage in (1, 2, 3, 4))
        self.layer1 = _stage(width, width, self.depths[0], stride=1)
        self.layer2 = _stage(4 * width, 2 * width, self.depths[1], stride=2)
        self.layer3 = _stage(8 * width, 4 * width, self.depths[2], stride=2)
        self.layer4 = _stage(16 * width, 8 * width, self.depths[3], stride=2)
        self.attnpool = AttentionPool(positions, pooled, heads_of(pooled, head_width), self.dim)

    @property
    def architecture(self) -> str:
        """OpenAI's name for it, or what there is to say about a ResNet that has none."""
        described = f"ResNet with {self.depths} blocks of width {self.width}, {self.size}-pixel images"
        return _NAMES.get((self.depths, self.width, self.size), described)

    @property
    def patch_dim(self) -> int:
        """Length of what `patches` gives."""
        return 4 * self.width * _EXPANSION

    def forward(self, pixels: Tensor) -> Tensor:
        """N×3×size×size to N×dim, not yet of unit length."""
        return self.attnpool(self.layer4(self._third_stage(pixels)))

    def patches(self, pixels: Tensor) -> Tensor:
        """N×3×size×size to N×patches×patch_dim: the feature map after the third stage, row by row."""
        return self._third_stage(pixels).flatten(2).transpose(1, 2)

    def _third_stage(self, pixels: Tensor) -> Tensor:
        x = pixels
        for convolve, norm in ((self.conv1, self.bn1), (self.conv2, self.bn2), (self.conv3, self.bn3)):
            x = relu(norm(convolve(x)))
        return self.layer3(self.layer2(self.layer1(self.pool(x))))


def _stage(channels: int, planes: int, depth: int, *, stride: int) -> nn.Sequential:
    first = Bottleneck(channels, planes, stride)
    return nn.Sequential(first, *(Bottleneck(planes * _EXPANSION, planes, 1) for _ in range(depth - 1)))

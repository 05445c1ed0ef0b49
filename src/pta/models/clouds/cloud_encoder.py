"""CloudEncoder: an encoder whose samples are point clouds; k-means of its tokens, which gives local features."""

from abc import abstractmethod
from collections.abc import Iterable

import torch
from torch import Tensor

from pta.core.modality import CLOUDS
from pta.door.points.cloud import as_cloud
from pta.door.points.reading import read_cloud
from pta.errors import InvalidSamples, UnreadableSample, naming
from pta.models.encoder import Encoder, Raw, content_of

LOCAL_FEATURES = 3
"""How many patches a cloud has, as in Point-Cache."""

_SEED = 1
_MOST_ROUNDS = 300  # scikit-learn's


class CloudEncoder(Encoder):
    """Clouds and texts to unit rows of one space; raw samples are float32 coordinates points×3."""

    modality = CLOUDS
    least_points: int  # that a cloud must have

    def as_raw(self, given: object, key: str = "the cloud") -> Raw:
        """The points of bytes, a path, or an array n×3."""
        given, key = content_of(given, key)
        if isinstance(given, bytes):
            cloud = read_cloud(given, key)
        else:
            with naming(key):
                cloud = as_cloud(given)
        if len(cloud) < self.least_points:
            raise UnreadableSample(f"{key}: {self._too_few(len(cloud))}")
        return cloud

    def prepare(self, content: bytes, key: str = "the cloud") -> Raw:
        """A file to the coordinates of its points."""
        return self.as_raw(content, key)

    def _ready(self, raw: Tensor) -> Tensor:
        """Clouds on the model's device, in float32 whatever its precision: they are cut into groups first."""
        if raw.ndim != 3 or raw.shape[2] != 3:
            raise InvalidSamples(f"clouds must be of shape N×points×3, not {'×'.join(map(str, raw.shape))}")
        if raw.shape[1] < self.least_points:
            raise InvalidSamples(self._too_few(raw.shape[1]))
        return raw.to(self.device, torch.float32, non_blocking=True)

    def _too_few(self, points: int) -> str:
        return f"a cloud has {points} points; {self.architecture} needs at least {self.least_points}"


class TokenCloudEncoder(CloudEncoder):
    """A tower of one summary and several tokens per cloud, which are pooled and projected together.

    Patches are the local features of Point-Cache: centres of the tokens in the place of their maximum.
    """

    @abstractmethod
    def _tokens(self, clouds: Tensor) -> Iterable[tuple[Tensor, Tensor]]:
        """Clouds N×n×3, in as many parts as the model likes, to summaries N×width and tokens N×count×width."""

    @abstractmethod
    def _project(self, summary: Tensor, pooled: Tensor) -> Tensor:
        """Both …×width to …×dim unit rows."""

    def features(self, clouds: Tensor) -> Tensor:
        return torch.cat([self._whole(*part) for part in self._tokens(clouds)])

    def patch_features(self, clouds: Tensor) -> Tensor:
        return torch.cat([self._local(*part) for part in self._tokens(clouds)])

    def features_with_patches(self, clouds: Tensor) -> tuple[Tensor, Tensor]:
        parts = [(self._whole(*part), self._local(*part)) for part in self._tokens(clouds)]
        features, patches = zip(*parts, strict=True)
        return torch.cat(features), torch.cat(patches)

    def patch_count(self) -> int:
        return LOCAL_FEATURES

    def _whole(self, summary: Tensor, tokens: Tensor) -> Tensor:
        return self._project(summary, tokens.amax(dim=1))

    def _local(self, summary: Tensor, tokens: Tensor) -> Tensor:
        centres = k_means(tokens, LOCAL_FEATURES)
        return self._project(summary[:, None].expand_as(centres), centres)


def k_means(rows: Tensor, count: int) -> Tensor:
    """N×rows×width to N×count×width centres: k-means++ with the same draws for every sample, then Lloyd's rounds.

    All of it is float64. A centre that no row is nearest to stays where it is.

    >>> k_means(torch.tensor([[[0.0], [1.0], [10.0], [11.0]]]), 2).sort(dim=1).values
    tensor([[[ 0.5000], [10.5000]]])
    """
    wide = rows.double()
    centres, labels = _spread(wide, count), None
    for _ in range(_MOST_ROUNDS):
        nearest = (centres.square().sum(dim=-1)[:, None] - 2 * (wide @ centres.mT)).argmin(dim=-1)
        if labels is not None and torch.equal(nearest, labels):
            break
        labels = nearest
        belongs = torch.nn.functional.one_hot(labels, count).to(wide).mT
        sizes = belongs.sum(dim=-1, keepdim=True)
        centres = torch.where(sizes > 0, belongs @ wide / sizes.clamp_min(1), centres)
    return centres.to(rows.dtype)


def _spread(rows: Tensor, count: int) -> Tensor:
    """k-means++: rows drawn one after the other, in proportion to the squared distance from those before."""
    first, *others = torch.rand(count, generator=torch.Generator().manual_seed(_SEED), dtype=torch.float64).tolist()
    centres = [rows[:, int(first * rows.shape[1])]]
    nearest = rows.new_full(rows.shape[:2], torch.inf)
    for draw in others:
        nearest = torch.minimum(nearest, (rows - centres[-1][:, None]).square().sum(dim=-1))
        so_far = nearest.cumsum(dim=1)
        chosen = (so_far <= draw * so_far[:, -1:]).sum(dim=1).clamp_max(rows.shape[1] - 1)
        centres.append(rows.take_along_dim(chosen[:, None, None], dim=1)[:, 0])
    return torch.stack(centres, dim=1)

"""CloudEncoder: an encoder whose samples are point clouds."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pta.core.modality import CLOUDS
from pta.core.plain import require_plain
from pta.door.points.cloud import as_cloud
from pta.door.points.reading import read_cloud
from pta.errors import InvalidSamples, UnreadableSample, naming
from pta.models.encoder import Encoder, Raw, by_shape, content_of


class CloudEncoder(Encoder):
    """Clouds and texts to unit rows of one space; raw samples are float32 coordinates points×3."""

    modality = CLOUDS
    least_points: int  # that a cloud must have

    def prepare(self, content: bytes, key: str = "the cloud") -> Raw:
        """A file to the coordinates of its points."""
        return self.as_raw(content, key)

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

    def encode(self, raw: Tensor | Sequence[Tensor]) -> Tensor:
        """Clouds N×points×3, or a list of clouds of different sizes, to N×dim unit rows."""
        return self._by_size(super().encode, raw)

    def encode_tokens(self, raw: Tensor | Sequence[Tensor]) -> Tensor:
        """The same to N×patches×dim unit rows."""
        return self._by_size(super().encode_tokens, raw)

    def _ready(self, raw: Tensor) -> Tensor:
        """Clouds on the model's device, in float32 whatever its precision: they are cut into groups first."""
        self._require(raw)
        return raw.to(self.device, torch.float32, non_blocking=True)

    def _require(self, raw: Tensor) -> None:
        if raw.ndim != 3 or raw.shape[2] != 3:
            raise InvalidSamples(f"clouds must be of shape N×points×3, not {'×'.join(map(str, raw.shape))}")
        if raw.shape[1] < self.least_points:
            raise InvalidSamples(self._too_few(raw.shape[1]))

    def _too_few(self, points: int) -> str:
        return f"a cloud has {points} points; {self.architecture} needs at least {self.least_points}"

    def _by_size(self, encode: Callable[[Tensor], Tensor], raw: Tensor | Sequence[Tensor]) -> Tensor:
        """What `encode` gives of clouds, those of one size together."""
        if isinstance(raw, Tensor):
            return encode(raw)
        for number, cloud in enumerate(raw):
            require_plain(f"cloud {number}", cloud, InvalidSamples)
            with naming(f"cloud {number}"):
                self._require(cloud[None])
            if not cloud.isfinite().all():
                raise InvalidSamples(f"cloud {number} has points that are NaN or infinite")
        if not raw:
            raise InvalidSamples("no samples: the list of clouds is empty")
        alike, place = by_shape(raw)
        return torch.cat([encode(torch.stack([raw[number] for number in numbers])) for numbers in alike])[place]

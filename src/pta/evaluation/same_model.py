"""Is this the model that made the features? Asked before a method uses one of its towers."""

import torch

from pta.datasets.features import FeatureFile
from pta.errors import InvalidSamples
from pta.towers import Model

_SAMPLES_TO_COMPARE = 4
_SAME_DIRECTION = 0.99  # cosine; half precision is above it


@torch.no_grad()
def require_same_model(model: Model, data: FeatureFile) -> None:
    """Refuse a model that does not make the file's features of its raw samples."""
    some = data.samples[:_SAMPLES_TO_COMPARE]
    if some.raw is None:
        return
    made = model.image_tower().features(some.raw).cpu().to(some.features)
    if made.shape != some.features.shape or bool(
        (torch.cosine_similarity(made, some.features) < _SAME_DIRECTION).any()
    ):
        raise InvalidSamples("the model does not make the file's features of its pixels; name the one that did")

"""Models: samples, such as images or point clouds, and texts to unit features."""

from pta.models.clouds.cloud_encoder import CloudEncoder
from pta.models.encoder import Encoder, ImageEncoder
from pta.models.load import DEFAULT_MODEL, Runtime, check_model, find_device, load_encoder
from pta.models.packaged.embedded import EMBEDDED_TEMPLATES, EmbeddedConfig, EmbeddedEncoder

__all__ = [
    "DEFAULT_MODEL",
    "EMBEDDED_TEMPLATES",
    "CloudEncoder",
    "EmbeddedConfig",
    "EmbeddedEncoder",
    "Encoder",
    "ImageEncoder",
    "Runtime",
    "check_model",
    "find_device",
    "load_encoder",
]

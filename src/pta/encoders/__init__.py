"""Models: samples, such as images or point clouds, and texts to unit features."""

from pta.encoders.cloud_encoder import CloudEncoder
from pta.encoders.embedded import EMBEDDED_TEMPLATES, EmbeddedConfig, EmbeddedEncoder
from pta.encoders.encoder import Encoder
from pta.encoders.image_encoder import ImageEncoder
from pta.encoders.load import DEFAULT_MODEL, check_model, find_device, load_encoder

__all__ = [
    "DEFAULT_MODEL",
    "EMBEDDED_TEMPLATES",
    "CloudEncoder",
    "EmbeddedConfig",
    "EmbeddedEncoder",
    "Encoder",
    "ImageEncoder",
    "check_model",
    "find_device",
    "load_encoder",
]

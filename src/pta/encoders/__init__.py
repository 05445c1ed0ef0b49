"""From images and texts to unit features."""

from pta.encoders.embedded import EMBEDDED_TEMPLATES, EmbeddedConfig, EmbeddedEncoder

__all__ = ["EMBEDDED_TEMPLATES", "EmbeddedConfig", "EmbeddedEncoder"]

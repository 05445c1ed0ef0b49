"""Models: samples, such as images or point clouds, and texts to unit features."""

from pta.models.encoder import Encoder as Encoder
from pta.models.encoder import ImageEncoder as ImageEncoder
from pta.models.load import DEFAULT_MODEL as DEFAULT_MODEL
from pta.models.load import Runtime as Runtime
from pta.models.load import check_model as check_model
from pta.models.load import find_device as find_device
from pta.models.load import load_encoder as load_encoder
from pta.models.packaged.embedded import EMBEDDED_TEMPLATES as EMBEDDED_TEMPLATES
from pta.models.packaged.embedded import EmbeddedConfig as EmbeddedConfig
from pta.models.packaged.embedded import EmbeddedEncoder as EmbeddedEncoder

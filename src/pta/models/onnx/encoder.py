"""An image encoder whose image tower ONNX Runtime runs, on a CPU in float32.

The tower is exported once, into a folder of the user's cache that nobody else can write to. A graph is used if the
digest before it is its own, and if it gives the features that torch gives.
"""

import hashlib
import json
import warnings
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pta.core.modality import IMAGES, Modality
from pta.core.towers import ImageTower
from pta.door.files import write_atomically
from pta.door.foreign import failure_of
from pta.door.private_cache import default_cache, private_cache
from pta.errors import InvalidParameter, MachineFailure, PtaError, first_line
from pta.models.encoder import Encoder, ImageEncoder
from pta.models.onnx.graph import GraphSession, graph_of, require_onnx

LARGEST_DIFFERENCE = 1e-5
"""Between numbers of unit features by ONNX Runtime and by torch."""

_FORMAT = 1  # of the files: a sha256 of 32 bytes, and the graph that it is of
_COMPARED = 3  # pictures
_OWN = ("preparer", "tokenize", "embed_ids", "text_from_embeddings", "text_features", "prompt_tower")  # of the encoder


class OnnxEncoder(ImageEncoder):
    """An image encoder with the features of its image tower made by ONNX Runtime; all else is the encoder's.

    Args:
        encoder: ready on the CPU in float32. It is kept for its texts.
        on_export: called before the tower is exported, which takes seconds to a minute.
    """

    runtime = "onnx"

    def __init__(self, encoder: ImageEncoder, on_export: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.model, self._fingerprint = encoder, encoder.fingerprint
        self.architecture, self.dim, self.settings = encoder.architecture, encoder.dim, encoder.settings
        self.scale, self.bias, self.preprocess = encoder.scale, encoder.bias, encoder.preprocess
        for name in _OWN:
            setattr(self, name, getattr(encoder, name))
        self.eval().requires_grad_(False)
        content = _kept_graph(encoder, on_export)
        failure = failure_of(lambda: self._start(content))
        if failure is not None:
            raise MachineFailure(
                f"ONNX Runtime cannot run {self.architecture}: {first_line(failure)}; use --runtime torch"
            ) from failure

    def _start(self, content: bytes) -> None:
        """Make the session, and compare its features of random pictures, one and several, with torch's."""
        self._session = GraphSession(content, torch.get_num_threads())
        random = torch.Generator().manual_seed(0)
        shape = (_COMPARED, *self._pixel_shape)
        pictures = torch.randint(0, 256, shape, dtype=torch.uint8, generator=random)
        expected = self.model.encode(pictures)
        for count in (1, _COMPARED):
            difference = float((self.encode(pictures[:count]) - expected[:count]).abs().max())
            if not difference <= LARGEST_DIFFERENCE:
                raise MachineFailure(
                    f"its features differ from torch's by {difference:.1e}, more than {LARGEST_DIFFERENCE:.0e}"
                )

    def features(self, raw: Tensor) -> Tensor:
        """Without gradients."""
        return torch.from_numpy(self._session.run(raw.numpy())["features"])

    def patch_features(self, raw: Tensor) -> Tensor:
        raise self._no_inside()

    def image_tower(self) -> ImageTower:
        raise self._no_inside()

    def _no_inside(self) -> InvalidParameter:
        return InvalidParameter(
            f"ONNX Runtime gives features of {self.architecture}, but no patches or blocks of its image tower, "
            "which is asked for; use --runtime torch"
        )

    @property
    def preparation(self) -> dict[str, Any]:
        return self.model.preparation


def require_runnable(device: torch.device, dtype: str, modality: Modality | None) -> None:
    """Refuse what ONNX Runtime does not run here; a modality of None is not known yet."""
    if device.type != "cpu":
        raise InvalidParameter(f"the runtime onnx is for a CPU, and the device is {device}; give --device cpu")
    if dtype != "float32":
        raise InvalidParameter(f"the runtime onnx runs in float32, not in {dtype}")
    if modality not in (IMAGES, None):
        raise InvalidParameter(f"the runtime onnx is for images; this model reads {modality.name}s")
    require_onnx()


def on_onnx_runtime(encoder: Encoder, on_export: Callable[[], None]) -> OnnxEncoder:
    """The encoder with its image tower in ONNX Runtime."""
    require_runnable(encoder.device, str(encoder.dtype).removeprefix("torch."), encoder.modality)
    if not isinstance(encoder, ImageEncoder):
        raise InvalidParameter(
            f"the runtime onnx is for a pta.models.ImageEncoder, which {encoder.architecture} is not"
        )
    return OnnxEncoder(encoder, on_export)


def _kept_graph(encoder: ImageEncoder, on_export: Callable[[], None]) -> bytes:
    """The graph of the image tower, from the cache if it is there and whole."""
    folder = private_cache("onnx")
    place = folder and folder / f"{_key(encoder)}.graph"
    kept = place and _read(place)
    if kept:
        return kept
    on_export()
    content = _exported(encoder)
    try:
        if place is None:
            raise MachineFailure(f"{default_cache() / 'onnx'} is not a folder that this user alone can write to")
        write_atomically(place, [hashlib.sha256(content).digest(), content])
    except PtaError as error:
        warnings.warn(f"{error}; the image tower was exported for this process alone", stacklevel=4)
    return content


def _key(encoder: ImageEncoder) -> str:
    """The name of a file: equal for graphs of one model that were exported in the same way."""
    import onnxruntime

    versions = [torch.__version__, onnxruntime.__version__, *map(metadata.version, ("onnx", "onnxscript"))]
    return hashlib.sha256(json.dumps([_FORMAT, encoder.fingerprint, versions]).encode()).hexdigest()[:32]


def _read(place: Path) -> bytes | None:
    """The graph in a file, unless that is missing or damaged."""
    try:
        with place.open("rb") as file:
            digest, content = file.read(hashlib.sha256().digest_size), file.read()
    except OSError:
        return None
    return content if hashlib.sha256(content).digest() == digest else None


class _Tower(nn.Module):
    """The image tower from pixels that are ready."""

    def __init__(self, encoder: ImageEncoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, pixels: Tensor) -> Tensor:
        return self.encoder.features(pixels)


def _exported(encoder: ImageEncoder) -> bytes:
    example = torch.zeros(2, *encoder._pixel_shape)
    content: bytes = graph_of(_Tower(encoder), example, "pixels", ["features"], any_count=True).SerializeToString()
    return content

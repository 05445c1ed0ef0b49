"""A frozen state as an ONNX graph: from features, or with the image tower from the bytes of a frame."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from pta.door.images.resize_by_products import ResizeByProducts
from pta.errors import InvalidParameter, MachineFailure, StateMismatch, shown
from pta.methods import Adapter
from pta.models import Encoder, ImageEncoder
from pta.models.onnx.graph import GraphSession, graph_of, with_labels
from pta.run.export.frozen_head import LARGEST_DIFFERENCE, FrozenHead, require_agreement, samples_near

_MOST_PIXELS = 7680 * 4320  # of a frame
_OUTPUTS = ("index", "probabilities", "logits")
_DOUBLE = 2  # how much longer a product in float64 takes than in float32
_FRAMES = 4  # that the graph and the library are compared on
_SAME_MODEL = 0.5  # mean cosine of anchors with a plain prompt's features; those of another model are near 0


def head_file(adapter: Adapter) -> bytes:
    """The graph from float32 features N×d, of any length, to labels, probabilities and logits."""
    head, features = FrozenHead(adapter), samples_near(adapter)
    model = graph_of(head, features, "features", _OUTPUTS, any_count=True)
    content = with_labels(model, adapter.classifier.class_names, {"method": adapter.name})
    session = GraphSession(content)
    for scaled in (features, 7 * features[:1]):
        _require_answers(adapter, features[: len(scaled)], session.run(scaled.numpy()))
    return content


def frame_size(given: str) -> tuple[int, int]:
    """Height and width of WIDTHxHEIGHT.

    >>> frame_size("640x480")
    (480, 640)
    """
    found = re.fullmatch(r"(\d{1,5})[x×](\d{1,5})", given)
    width, height = map(int, found.groups()) if found else (0, 0)
    if not 1 <= width * height <= _MOST_PIXELS:
        raise InvalidParameter(
            f"--frame {shown(given)}: expected WIDTHxHEIGHT in pixels, e.g. 640x480, of at most {_MOST_PIXELS:,} pixels"
        )
    return height, width


class FrameFile(NamedTuple):
    """The graph from a frame, and whether it resizes the frame itself."""

    content: bytes
    takes: tuple[int, int, int]  # rows, columns and channels of its input, uint8
    resizes: bool


def frame_file(adapter: Adapter, encoder: Encoder, height: int, width: int) -> FrameFile:
    """The graph from the bytes of a frame to its label, probabilities and logits.

    It resizes the frame if that costs at most as much as the image tower. Otherwise it takes the resized picture.
    """
    if not isinstance(encoder, ImageEncoder):
        raise InvalidParameter(f"{encoder.architecture} reads {encoder.modality.name}s; --to onnx exports image towers")
    head = FrozenHead(adapter)
    require_model_of(adapter, encoder)
    resize = ResizeByProducts(encoder.preprocess, height, width)
    frame = torch.zeros(height, width, 3, dtype=torch.uint8)
    pixels = resize(frame)
    resizes = _DOUBLE * _products(resize, frame) <= _products(encoder.features, encoder.preprocess.normalise(pixels))
    whole = FrameToAnswer(encoder, head, resize if resizes else None)
    taken = frame if resizes else pixels[0].permute(1, 2, 0)
    about = {"method": adapter.name, "model": encoder.fingerprint, "frame": [height, width, 3], "resizes": resizes}
    content = with_labels(graph_of(whole, taken, "frame", _OUTPUTS), adapter.classifier.class_names, about)
    session, random = GraphSession(content), np.random.default_rng(0)
    for contrast in np.linspace(0.2, 1, _FRAMES):
        picture = (contrast * random.integers(0, 256, (height, width, 3))).astype(np.uint8)
        raw = encoder.as_raw(picture)
        answer = session.run(picture if resizes else raw.transpose(1, 2, 0))
        features = encoder.encode(torch.from_numpy(raw)[None])
        _require_answers(adapter, features, {name: value[None] for name, value in answer.items()})
    return FrameFile(content, tuple(taken.shape), resizes)


class FrameToAnswer(nn.Module):
    """The bytes of one frame to its index, probabilities C and logits C."""

    def __init__(self, encoder: ImageEncoder, head: FrozenHead, resize: ResizeByProducts | None) -> None:
        super().__init__()
        self.encoder, self.head, self.resize = encoder, head, resize

    def forward(self, frame: Tensor) -> tuple[Tensor, ...]:
        """Of a frame height×width×3, or of a resized picture size×size×channels."""
        pixels = frame.permute(2, 0, 1)[None] if self.resize is None else self.resize(frame)
        return tuple(one[0] for one in self.head(self.encoder.encode_unchecked(pixels)))


def require_model_of(adapter: Adapter, encoder: ImageEncoder) -> None:
    """Refuse a model that cannot have given the anchors of the state."""
    classifier = adapter.classifier
    if encoder.dim != classifier.dim:
        raise StateMismatch(
            f"{encoder.architecture} gives features of {encoder.dim} dimensions, the state is of {classifier.dim}"
        )
    texts = encoder.encode_texts([f"a photo of a {name}." for name in classifier.class_names])
    if float((texts * classifier.anchors).sum(dim=1).mean()) < _SAME_MODEL:
        raise StateMismatch(
            f"the texts of the state are not of {encoder.architecture}: give the model that it learned with"
        )


def _products(work: Callable[[Tensor], Tensor], given: Tensor) -> int:
    """The multiplications and additions in the matrix products of some work."""
    with FlopCounterMode(display=False) as counter:
        work(given)
    return counter.get_total_flops()


def _require_answers(adapter: Adapter, features: Tensor, answers: dict[str, NDArray[Any]]) -> None:
    """Refuse answers that are not the library's, or do not agree with each other."""
    logits, names = answers["logits"], np.array(adapter.classifier.class_names)
    require_agreement(adapter, features, torch.from_numpy(logits))
    probabilities = adapter.probabilities_unchecked(torch.from_numpy(logits)).numpy()
    agree = np.array_equal(answers["label"], names[answers["index"]]) and np.array_equal(
        answers["index"], logits.argmax(axis=1)
    )
    if not agree or not np.abs(probabilities - answers["probabilities"]).max() < LARGEST_DIFFERENCE:
        raise MachineFailure(
            "the labels or probabilities of the export are not those of its logits; nothing was written"
        )

"""The file that an adapter's state is saved in: declared tensors, parameters, and what the state belongs to."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pta.classifier import ZeroShotClassifier
from pta.errors import StateMismatch
from pta.files import load_tensors, save_tensors
from pta.towers import Model

_VERSION = 3
_ANCHORS = "classifier.anchors"  # saved with a state, so that it is only used with the classifier it belongs to
_SAME_DIRECTION = 0.9999  # cosine: other templates are far below, another processor's rounding far above


@dataclass(frozen=True)
class Snapshot:
    """Everything that an adapter has learned, and its position."""

    method: str
    parameters: Mapping[str, Any]
    classifier: ZeroShotClassifier
    tensors: Mapping[str, Tensor]


def save_state(
    path: str | Path, snapshot: Snapshot, model: Model | None, stream: Mapping[str, Any] | None = None
) -> None:
    """Write the file, atomically, with what is to be recorded about the stream, if anything is."""
    classifier = snapshot.classifier
    about = {
        "kind": "state",
        "version": _VERSION,
        "method": snapshot.method,
        "parameters": snapshot.parameters,
        "class_names": classifier.class_names,
        "scale": classifier.scale,
        "bias": classifier.bias,
        "model": None if model is None else model.fingerprint,
        "position": int(snapshot.tensors["seen"]),
        **({} if stream is None else {"stream": stream}),
    }
    save_tensors(path, {**snapshot.tensors, _ANCHORS: classifier.anchors.half()}, about)


def load_state(path: str | Path, classifier: ZeroShotClassifier, model: Model | None) -> Snapshot:
    """Read the file, if it was saved for this classifier and, where the method needs a tower, for this model."""
    tensors, about = load_tensors(path, kind="state")
    if about.get("version") != _VERSION:
        raise StateMismatch(f"{path} has state version {about.get('version')}; this pta reads {_VERSION}")
    if about.get("class_names") != list(classifier.class_names):
        raise StateMismatch(f"{path} was saved for another list of classes; use that list, or another state")
    if not _was_saved_for(classifier, tensors.pop(_ANCHORS, None), about):
        raise StateMismatch(
            f"{path} was saved for the same classes but another model or other templates; use these, or another state"
        )
    method, parameters, tower_of = about.get("method"), about.get("parameters"), about.get("model")
    if not isinstance(parameters, dict) or not isinstance(method, str):
        raise StateMismatch(f"{path} does not say which method and parameters it belongs to")
    if tower_of is not None and model is not None and tower_of != model.fingerprint:
        raise StateMismatch(f"{path} was saved for the towers of another model")
    return Snapshot(method, parameters, classifier, tensors)


def read_stream(path: str | Path) -> Any:
    """What was recorded about the stream, not checked; None if nothing was."""
    return load_tensors(path, kind="state", only=[])[1].get("stream")


def _was_saved_for(classifier: ZeroShotClassifier, anchors: Tensor | None, about: Mapping[str, Any]) -> bool:
    """Whether a state was saved for this classifier, but for the last bits that differ between machines."""
    if anchors is None or anchors.shape != classifier.anchors.shape:
        return False
    for name in ("scale", "bias"):
        value = about.get(name)
        if not isinstance(value, float) or not math.isclose(value, getattr(classifier, name), rel_tol=1e-3):
            return False
    saved = torch.nn.functional.normalize(anchors.to(classifier.anchors), dim=1)
    return bool(((saved * classifier.anchors).sum(dim=1) > _SAME_DIRECTION).all())

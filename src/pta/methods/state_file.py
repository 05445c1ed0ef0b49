"""The file of an adapter's state: declared tensors, parameters, and the classifier it belongs to."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pta.core.classifier import ZeroShotClassifier
from pta.core.towers import Model
from pta.door.files import load_tensors, pack_tensors, tensor_names, unpack_tensors
from pta.errors import StateMismatch, naming, some_of
from pta.methods.state import Snapshot

_VERSION = 4
IN_MEMORY = "the state"  # the name of a state that is not in a file
ANCHORS = "classifier.anchors"
PROMPT_FEATURES = "classifier.prompt_features"
SAME_DIRECTION = 0.9999  # cosine: other templates are far below, another processor's rounding far above


MONITOR = "monitor."  # how the tensors of a stream's monitor begin
Monitored = tuple[Mapping[str, Tensor], Mapping[str, Any]]
"""What a monitor keeps, as tensors and as JSON."""


def pack_state(
    snapshot: Snapshot,
    model: Model | None,
    stream: Mapping[str, Any] | None = None,
    monitor: Monitored | None = None,
    *,
    prompts: bool = False,
) -> bytes:
    """The content of the file, with a record of the stream and of its monitor, if given, and the prompts' features."""
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
        **({} if monitor is None else {"monitor": monitor[1]}),
    }
    watched = {} if monitor is None else {MONITOR + name: tensor for name, tensor in monitor[0].items()}
    texts = {ANCHORS: classifier.anchors}
    if prompts and classifier.prompt_features is not None:
        texts[PROMPT_FEATURES] = classifier.prompt_features
    return pack_tensors({**snapshot.tensors, **texts, **watched}, about)


def pack_monitor(monitor: Monitored) -> bytes:
    """The content of a file with a monitor alone, for `read_monitor`."""
    about = {"kind": "state", "version": _VERSION, "monitor": monitor[1]}
    return pack_tensors({MONITOR + name: tensor for name, tensor in monitor[0].items()}, about)


def load_state(path: str | Path, classifier: ZeroShotClassifier | None, model: Model | None) -> Snapshot:
    """Read the file, if it was saved for this classifier and, where the method needs a tower, for this model.

    Without a classifier the state belongs to the one that it was saved with.
    """
    return _understood(path, *load_tensors(path, kind="state"), classifier, model)


def unpack_state(content: bytes, classifier: ZeroShotClassifier | None, model: Model | None) -> Snapshot:
    """The same from the content of the file."""
    return _understood(IN_MEMORY, *unpack_tensors(content, "state", IN_MEMORY), classifier, model)


def _understood(
    path: str | Path,  # its name in messages
    tensors: dict[str, Tensor],
    about: dict[str, Any],
    classifier: ZeroShotClassifier | None,
    model: Model | None,
) -> Snapshot:
    if (found := about.get("version")) != _VERSION:
        raise StateMismatch(f"{path} has state version {found}; this version of pta reads {_VERSION}")
    anchors, bank = (tensors.pop(name, None) for name in (ANCHORS, PROMPT_FEATURES))
    tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith(MONITOR)}
    given: dict[str, Any]
    if classifier is None:
        with naming(f"{path} holds no classifier"):
            given = {name: about.get(name) for name in ("class_names", "scale", "bias")}
            classifier = ZeroShotClassifier(anchors, **given, prompt_features=bank)
    else:
        _require_same_classes(path, about.get("class_names"), list(classifier.class_names))
        if not was_saved_for(classifier, anchors, about) or not _alike(bank, classifier.prompt_features):
            wrong = "another model or other templates; use those, or another state"
            raise StateMismatch(f"{path} was saved for the same classes but {wrong}")
        if classifier.prompt_features is None and bank is not None:
            given = {name: getattr(classifier, name) for name in ("anchors", "class_names", "scale", "bias", "prompts")}
            classifier = ZeroShotClassifier(**given, prompt_features=bank)
    method, parameters, tower_of = about.get("method"), about.get("parameters"), about.get("model")
    if not isinstance(parameters, dict) or not isinstance(method, str):
        raise StateMismatch(f"{path} does not say which method and parameters it belongs to")
    if tower_of is not None and model is not None and tower_of != model.fingerprint:
        raise StateMismatch(f"{path} was saved for the towers of another model")
    return Snapshot(method, parameters, classifier, tensors)


def require_saved_for(path: str | Path, class_names: Sequence[str], method: str | None) -> None:
    """Refuse a state of other classes, or of another method than a given one, from what the file says of itself."""
    about = load_tensors(path, kind="state", only=[])[1]
    _require_same_classes(path, about.get("class_names"), list(class_names))
    if method not in (None, about.get("method")):
        raise StateMismatch(f"{path} was learned by {about.get('method')}, not by {method}; leave out --method")


def read_stream(path: str | Path) -> Any:
    """The unchecked record of the stream; None if there is none."""
    return load_tensors(path, kind="state", only=[])[1].get("stream")


def read_monitor(path: str | Path) -> Monitored | None:
    """What a state file keeps of a monitor, unchecked; None if it keeps none."""
    names = [name for name in tensor_names(Path(path)) if name.startswith(MONITOR)]
    if not names:
        return None
    tensors, about = load_tensors(path, kind="state", only=names)
    return {name.removeprefix(MONITOR): tensor for name, tensor in tensors.items()}, about.get("monitor", {})


def _require_same_classes(path: str | Path, saved: object, given: list[str]) -> None:
    """Refuse a state of other classes; the message says how they differ."""
    if saved == given:
        return
    differ = "it does not name them"
    if isinstance(saved, list) and all(isinstance(name, str) for name in saved):
        only = {"only the state has": set(saved) - set(given), "only the given list has": set(given) - set(saved)}
        words = [f"{who} {some_of(sorted(names))}" for who, names in only.items() if names]
        differ = "; ".join(words) or f"the same names in another order, first {some_of(saved)}"
    raise StateMismatch(f"{path} was saved for other classes: {differ}; use its list of classes, or another state")


def was_saved_for(classifier: ZeroShotClassifier, anchors: Tensor | None, about: Mapping[str, Any]) -> bool:
    """Whether a state was saved for this classifier, but for the last bits that differ between machines."""
    if anchors is None:
        return False
    for name in ("scale", "bias"):
        value = about.get(name)
        if not isinstance(value, float) or not math.isclose(value, getattr(classifier, name), rel_tol=1e-3):
            return False
    return _alike(anchors, classifier.anchors)


def _alike(saved: Tensor | None, own: Tensor | None) -> bool:
    """Whether saved rows have the directions of the classifier's, if both are there."""
    if saved is None or own is None:
        return True
    unit = torch.nn.functional.normalize(saved.to(own), dim=-1)
    return saved.shape == own.shape and bool(((unit * own).sum(dim=-1) > SAME_DIRECTION).all())

"""Several operations on one object that keeps a state: after a refusal the state is the same bit for bit."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from PIL import Image

from fuzzing import valid
from fuzzing.calls import Broken, Scene, require_valid
from fuzzing.declare import target
from fuzzing.values import tensor_like
from pta import Adapter, Classifier, Samples, list_adapters
from pta import compile as compiled
from pta.errors import PtaError


def adapter_session(scene: Scene, method: str) -> None:
    """Some operations on an adapter that has learned something."""
    adapter: Any = valid.learned(method).clone()
    operations: dict[str, Callable[[], Any]] = {
        "step": lambda: adapter.step(_batch(scene)),
        "predict": lambda: adapter.predict(_batch(scene)),
        "probabilities": lambda: adapter.probabilities(_logits(scene, adapter), raw=scene.around(False)),
        "restore": lambda: (adapter.restore(_snapshot(scene, adapter)), adapter.predict(valid.samples()[:3])),
        "reset": lambda: adapter.reset(scene.around([1, 3])),
        "to": lambda: adapter.to(scene.around("cpu")),
        "save": lambda: adapter.save(scene.around(scene.folder / "state.safetensors")),
        "clone": lambda: adapter.clone().predict(valid.samples()[:2]),
        "summarise": lambda: adapter.apply(adapter.summarise(_batch(scene))),
        "apply": lambda: adapter.apply(_segment(scene)),
    }
    names = ["step", "step", "step", "predict", "predict", "restore", "restore", "reset", "to", "save", "clone"]
    names += ["probabilities"]
    names += ["summarise", "apply"] if method in ("pta", "wpta") else []
    for name in scene.random.choices(names, k=scene.random.choice((1, 1, 2, 3))):
        _checked(lambda: adapter, name, operations[name])


for _name in list_adapters():
    _calls = ("step", "predict", "probabilities", "snapshot", "restore", "clone", "reset", "to", "save", "state")
    target(18, f"adapter {_name}", covers=(f"adapter {_name}", *(f"pta:Adapter.{one}" for one in _calls)))(
        partial(adapter_session, method=_name)
    )


def _checked(adapter: Callable[[], Adapter], name: str, operation: Callable[[], Any]) -> None:
    """Do an operation; a refusal must leave the state as it was, a success a state and answers that are finite."""
    before = adapter(), _bits(adapter())
    try:
        require_valid(operation())
    except Exception as error:
        if (adapter(), _bits(adapter())) != before:
            raise Broken(f"{type(error).__name__} in {name}, after the state was changed") from error
        if isinstance(error, PtaError) and len(str(error).splitlines()) == 1:
            return
        raise
    _require_finite(adapter(), name)


def _bits(adapter: Adapter) -> list[tuple[Any, ...]]:
    return [
        (name, one.dtype, tuple(one.shape), one.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        for name, one in adapter.state().items()
    ]


def _require_finite(adapter: Adapter, name: str) -> None:
    fresh = adapter.clone()
    fresh.reset()
    usual = (fresh.state(), valid.learned(adapter.name).state())
    for piece, tensor in adapter.state().items():
        may_be_infinite = any(bool(torch.isinf(state[piece]).any()) for state in usual if piece in state)
        if bool(torch.isnan(tensor).any()) or (not may_be_infinite and bool(torch.isinf(tensor).any())):
            raise Broken(f"after {name}, {piece} is not finite")


def _batch(scene: Scene) -> Any:
    """Samples with something wrong with them: as a tensor, as an array, or as `Samples`."""
    whole = valid.samples()[4:10]
    tensors = whole.tensors()
    name = scene.random.choice(list(tensors))
    match scene.random.randrange(5):
        case 0:
            return whole
        case 1:
            return scene.odd(whole.features)
        case 2:
            return scene.odd(whole.features.numpy())
        case 3:
            return scene.around(whole)
    try:
        return Samples.of(**tensors | {name: scene.odd(tensors[name])}, normalise=scene.random.random() < 0.5)
    except Exception:  # `Samples.of` is a target of its own
        return scene.odd(tensors[name])


def _logits(scene: Scene, adapter: Adapter) -> Any:
    """The logits of some samples, most of the time with something wrong with them."""
    logits = adapter.predict(valid.samples()[:3])
    return scene.one_of(logits, logits[0], scene.odd(logits), scene.odd(logits.numpy()), scene.around(logits.tolist()))


def _snapshot(scene: Scene, adapter: Adapter) -> Any:
    """A snapshot in which a number, a tensor or something else is another."""
    snapshot = adapter.snapshot()
    if scene.exact:
        return snapshot
    tensors = dict(snapshot.tensors)
    name = scene.random.choice(list(tensors))
    tensors[name] = tensor_like(scene.random, tensors[name])
    if scene.random.random() < 0.8:
        return replace(snapshot, tensors=tensors)
    part = scene.random.choice(("method", "parameters", "classifier", "tensors"))
    return scene.around(replace(snapshot, **{part: scene.around(None)}))


def _segment(scene: Scene) -> Any:
    """A segment, one of whose parts may be another."""
    segment = valid.segment()
    part = scene.random.choice(("head", "tail", "touches", "rule", "shape", "classifier"))
    other = scene.around(getattr(segment, part))
    return scene.around(segment) if other is getattr(segment, part) else replace(segment, **{part: other})


@target(40)
def classifier_session(scene: Scene) -> None:
    """Pictures of all kinds, features, and states of files, given to a `Classifier`."""
    classifier = valid.live()
    classifier.adapter.step(torch.eye(128)[:5])
    how = {"learn": scene.around(True), "top": scene.around(2)}
    for name, operation in {
        "call": lambda: Classifier.__call__(classifier, _picture(scene), **how),
        "answer": lambda: classifier.answer(scene.odd(torch.eye(4, 128)), **how),
        "load": lambda: classifier.load(scene.file("live.safetensors")),
        "save": lambda: classifier.save(scene.around(scene.folder / "saved.safetensors")),
        "reset": lambda: classifier.reset(scene.around(["coat"])),
        "pipeline": lambda: classifier.pipeline(top_k=how["top"])(_picture(scene)),
    }.items():
        if scene.exact or scene.random.random() < 0.3:
            _checked(lambda: classifier.adapter, name, operation)


def _picture(scene: Scene) -> Any:
    picture = Image.fromarray(valid.PICTURE)
    kinds = (picture, valid.PICTURE, valid.picture("JPEG"), [picture, valid.PICTURE, picture])
    files = (lambda: scene.file("picture.png"), lambda: str(scene.file("picture.jpeg")))
    return scene.random.choice((*files, *(lambda kind=kind: scene.odd(kind) for kind in kinds)))()


@target(8)
def compiled_session(scene: Scene) -> None:
    """Pixels of all kinds, given to a compiled model and method."""
    encoder, adapter = valid.encoder(), valid.live().adapter
    given = scene.one_of(*9 * [(encoder, adapter)], (scene.around(encoder), scene.around(adapter)))
    how = {"batch": scene.around(2), "frame": scene.around((9, 7)), "optimise": scene.around(True)}
    program = compiled(*given, **how)
    pixels = scene.around(torch.zeros(2, 1, 9, 7, dtype=torch.uint8))
    _checked(lambda: adapter, "a compiled step", lambda: program(pixels).logits)
    _checked(lambda: adapter, "a compiled stream", lambda: program.stream([pixels]))

"""Several operations on one object that keeps a state: after a refusal the state is the same bit for bit."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from fuzzing import valid
from fuzzing.calls import Broken, Scene
from fuzzing.values import tensor_like
from pta import Adapter, Samples, create_adapter
from pta.errors import PtaError

Operation = tuple[str, Callable[[], Any]]


def adapter_session(method: str) -> Callable[[Scene], Callable[[], Any]]:
    """Some operations on an adapter that has learnt something."""

    def prepare(scene: Scene) -> Callable[[], Any]:
        adapter = valid.learnt(method).clone()
        makers = [maker for maker in _OPERATIONS if maker is not _segment or method == "pta"]
        operations = [scene.random.choice(makers)(scene, adapter) for _ in range(scene.random.choice((1, 1, 2, 3)))]
        return lambda: [_checked(adapter, *operation) for operation in operations]

    return prepare


def _checked(adapter: Adapter, name: str, operation: Callable[[], Any]) -> None:
    """Do an operation; a refusal must leave the state as it was, a success a state and answers that are finite."""
    before = _bits(adapter)
    try:
        result = operation()
    except PtaError as error:
        if _bits(adapter) != before:
            raise Broken(f"a refused {name} has changed the state") from error
        if len(str(error).splitlines()) != 1:
            raise
        return
    except Exception as error:
        if _bits(adapter) != before:
            raise Broken(f"{type(error).__name__} in {name}, after the state was changed") from error
        raise
    _require_finite(adapter, name)
    if isinstance(result, Tensor) and not bool(torch.isfinite(result).all()):
        raise Broken(f"{name} gives logits that are not finite")


def _bits(adapter: Adapter) -> list[tuple[Any, ...]]:
    state = adapter.state()
    return [
        (name, one.dtype, tuple(one.shape), one.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        for name, one in state.items()
    ]


def _require_finite(adapter: Adapter, name: str) -> None:
    usual = valid.learnt(adapter.name).state()
    for piece, tensor in adapter.state().items():
        if not tensor.is_floating_point():
            continue
        may_be_infinite = bool(torch.isinf(usual[piece]).any()) or bool(torch.isinf(_fresh(adapter.name)[piece]).any())
        if bool(torch.isnan(tensor).any()) or (not may_be_infinite and bool(torch.isinf(tensor).any())):
            raise Broken(f"after {name}, {piece} is not finite")


def _fresh(method: str) -> dict[str, Tensor]:
    twin = valid.learnt(method).clone()
    twin.reset()
    return twin.state()


# -- operations --------------------------------------------------------------------------------------------------------


def _batch(scene: Scene) -> Any:
    """Samples with something wrong with them: as a tensor, as an array, or as `Samples`."""
    whole = valid.samples()[4:10]
    match scene.random.randrange(5):
        case 0:
            return whole
        case 1:
            return scene.odd(whole.features)
        case 2:
            return scene.odd(whole.features.numpy())
        case 3:
            return scene.around(whole)
        case _:
            tensors = whole.tensors()
            name = scene.random.choice(list(tensors))
            try:
                normalise = scene.random.random() < 0.5
                return Samples.of(**tensors | {name: scene.odd(tensors[name])}, normalise=normalise)
            except Exception:  # `Samples.of` is a target of its own
                return scene.odd(tensors[name])


def _step(scene: Scene, adapter: Adapter) -> Operation:
    batch = _batch(scene)
    return "step", lambda: adapter.step(batch)


def _predict(scene: Scene, adapter: Adapter) -> Operation:
    batch = _batch(scene)
    return "predict", lambda: adapter.predict(batch)


def _restore(scene: Scene, adapter: Adapter) -> Operation:
    """A snapshot in which a number, a tensor or something else is another."""
    snapshot = adapter.snapshot()
    tensors = dict(snapshot.tensors)
    name = scene.random.choice(list(tensors))
    if not scene.exact and tensors[name].numel() and scene.random.random() < 0.5:
        number = scene.random.choice((-1, 1.01, -1e-3, 1e18, 1e30, float("nan"), float("inf"), -(2**63), 2**53))
        try:
            tensors[name].view(-1)[scene.random.randrange(tensors[name].numel())] = number
        except (RuntimeError, OverflowError):
            tensors.pop(name)
    elif not scene.exact:
        tensors[name] = tensor_like(scene.random, tensors[name])
    given = replace(snapshot, tensors=tensors)
    if scene.random.random() < 0.2:
        given = scene.around(
            replace(
                snapshot, **{scene.random.choice(("method", "parameters", "classifier", "tensors")): scene.around(None)}
            )
        )
        given = snapshot if scene.exact else given

    def restore_and_answer() -> Tensor:
        adapter.restore(given)
        return adapter.predict(valid.samples()[:3])

    return "restore", restore_and_answer


def _reset(scene: Scene, adapter: Adapter) -> Operation:
    classes = scene.around([1, 3])
    return "reset", lambda: adapter.reset(classes)


def _to(scene: Scene, adapter: Adapter) -> Operation:
    device = scene.around("cpu")
    return "to", lambda: adapter.to(device)


def _save(scene: Scene, adapter: Adapter) -> Operation:
    place = scene.around(scene.folder / "state.safetensors")
    return "save", lambda: adapter.save(place)


def _copy(scene: Scene, adapter: Adapter) -> Operation:
    return "clone", lambda: adapter.clone().predict(valid.samples()[:2])


def _segment(scene: Scene, adapter: Any) -> Operation:
    """Summarise samples, or apply a segment, one of whose parts may be another."""
    if scene.random.random() < 0.4:
        batch = _batch(scene)
        return "summarise", lambda: adapter.apply(adapter.summarise(batch))
    segment = valid.segment()
    part = scene.random.choice(("head", "tail", "touches", "rule", "shape", "classifier"))
    other = scene.around(getattr(segment, part))
    return "apply", lambda: adapter.apply(
        scene.around(segment) if other is getattr(segment, part) else replace(segment, **{part: other})
    )


_OPERATIONS: list[Callable[[Scene, Adapter], Operation]] = [
    *(_step, _step, _step, _predict, _predict, _restore, _restore),
    *(_reset, _to, _save, _copy, _segment, _segment),
]


# -- a classifier for pictures, and a compiled one ---------------------------------------------------------------------


def live_session(scene: Scene) -> Callable[[], Any]:
    """Pictures of all kinds, features, and states of files, given to a `Classifier`."""
    classifier = valid.live()
    classifier.adapter = create_adapter("pta", classifier.classifier)
    classifier.adapter.step(torch.eye(128)[:5])
    picture = Image.fromarray(valid.PICTURE)
    top, learn = scene.around(2), scene.around(True)
    given = scene.random.choice(
        (
            lambda: scene.odd(picture),
            lambda: scene.odd(valid.PICTURE),
            lambda: scene.odd(valid.picture("JPEG")),
            lambda: scene.file("picture.png"),
            lambda: str(scene.file("picture.jpeg")),
            lambda: [picture, scene.odd(valid.PICTURE), picture],
            lambda: scene.around([picture, picture]),
        )
    )()
    features = scene.odd(torch.from_numpy(np.eye(4, 128, dtype=np.float32)))
    place = scene.file("live.safetensors")
    saved = scene.around(scene.folder / "saved.safetensors")
    operations: list[Operation] = [
        ("Classifier(…)", lambda: classifier(given, learn=learn, top=top)),
        ("answer", lambda: classifier.answer(features, learn=learn, top=top)),
        ("load", lambda: classifier.load(place)),
        ("save", lambda: classifier.save(saved)),
        ("pipeline", lambda: classifier.pipeline(top_k=top)(given)),
    ]
    chosen = operations if scene.exact else scene.random.sample(operations, scene.random.choice((1, 1, 2)))
    return lambda: [_checked_live(classifier, *operation) for operation in chosen]


def _checked_live(classifier: Any, name: str, operation: Callable[[], Any]) -> None:
    before, adapter = _bits(classifier.adapter), classifier.adapter
    try:
        operation()
    except PtaError as error:
        if classifier.adapter is not adapter or _bits(adapter) != before:
            raise Broken(f"a refused {name} has changed the state") from error
        if len(str(error).splitlines()) != 1:
            raise
        return
    _require_finite(classifier.adapter, name) if classifier.adapter.name == "pta" else None


def program_session(scene: Scene) -> Callable[[], Any]:
    """Pixels of all kinds, given to a compiled model and method."""
    from pta import compile as compiled

    encoder, adapter = valid.encoder(), valid.live().adapter.clone()
    batch, frame, optimise = scene.around(2), scene.around((9, 7)), scene.around(True)
    pixels = scene.around(torch.zeros(2, 1, 9, 7, dtype=torch.uint8))
    given = (
        (encoder, adapter)
        if scene.exact or scene.random.random() < 0.9
        else (scene.around(encoder), scene.around(adapter))
    )

    def call() -> None:
        program = compiled(*given, batch=batch, frame=frame, optimise=optimise)
        _checked(adapter, "a compiled step", lambda: program(pixels).logits)
        _checked(adapter, "a compiled stream", lambda: list(program.stream([pixels])))

    return call

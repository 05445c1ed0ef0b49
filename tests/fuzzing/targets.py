"""What is called: a line for each public function and reader, with valid input, which a call then mutates."""

import io
import sys
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
import torch
from PIL import Image

from fuzzing import valid
from fuzzing.calls import Broken, Scene, Target
from fuzzing.files import odd_argument
from fuzzing.sessions import adapter_session, live_session, program_session
from fuzzing.values import TEXTS
from pta import list_adapters
from pta.errors import PtaError


@dataclass(frozen=True)
class Own:
    """An object of the project, which is given as it is."""

    make: Callable[[Scene], Any]


@dataclass(frozen=True)
class Made:
    """A valid value that is made when it is needed, and mutated."""

    make: Callable[[Scene], Any]


@dataclass(frozen=True)
class File:
    """A file of this name, mutated."""

    name: str
    form: Callable[[Path], Any] = str


def calls(
    name: str,
    *arguments: Any,
    then: Callable[[Any], Any] | None = None,
    covers: Iterable[str] = (),
    weight: int = 2,
    **named: Any,
) -> Target:
    """A call of a public function with this valid input; `then` uses what it gives."""

    def prepare(scene: Scene) -> Callable[[], Any]:
        function = resolve_name(name)
        given = [_given(scene, one) for one in arguments]
        also = {key: _given(scene, one) for key, one in named.items()}

        def call() -> Any:
            result = function(*given, **also)
            return result if then is None else then(result)

        return call

    return Target(name, prepare, weight, (name, *covers))


def _given(scene: Scene, argument: Any) -> Any:
    match argument:
        case Own(make):
            return make(scene)
        case Made(make):
            return scene.around(make(scene))
        case File(name, form):
            return form(scene.file(name))
        case _:
            return scene.around(argument)


def command(*arguments: Any, stdin: str = "names.txt", weight: int = 2, always_refused: bool = False) -> Target:
    """A call of the command with these arguments, in this process."""
    return Target(
        f"pta {arguments[0]}",
        lambda scene: _prepare_command(scene, arguments, stdin),
        weight,
        (f"pta.cli:{arguments[0]}",),
        always_refused,
    )


def _prepare_command(scene: Scene, arguments: tuple[Any, ...], stdin: str) -> Callable[[], Any]:
    given = [str(scene.file(one.name)) if isinstance(one, File) else one for one in arguments]
    if not scene.exact:
        for at in range(1, len(given)):
            if scene.random.random() < (0.03 if given[at].startswith("--") else 0.12):
                given[at] = odd_argument(scene.random, given[at])
        if scene.random.random() < 0.1:
            del given[scene.random.randrange(1, len(given)) :]
    return partial(_run_command, given, scene.file(stdin))


def _run_command(arguments: list[str], stdin: Path) -> None:
    from pta.cli import main

    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="surrogateescape")
    error = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace")
    before = sys.argv, sys.stdin, sys.stdout, sys.stderr, warnings.showwarning
    with _readable(stdin).open("rb") as file:
        try:
            sys.argv, sys.stdin, sys.stdout, sys.stderr = ["pta", *arguments], file, out, error
            main()
        except SystemExit as stop:
            code = stop.code
        finally:
            sys.argv, sys.stdin, sys.stdout, sys.stderr, warnings.showwarning = before
    said = error.buffer.getvalue().decode("utf-8", "surrogateescape") if not error.flush() else ""
    if code not in (0, 1, 2):
        raise Broken(f"exit code {code}")
    if any((sign < " " and sign not in "\n") or sign in "\x7f\x9b" for sign in said):
        raise Broken("control characters on the terminal")
    if code == 2:
        if not said.strip() and arguments:
            raise Broken("exit code 2 without a line")
        raise PtaError(said.strip().splitlines()[-1] if said.strip() else "help was shown")


def _readable(path: Path) -> Path:
    """Standard input is a file that somebody could open."""
    return path if path.is_file() and not path.is_symlink() else Path("/dev/null")


# -- what does not fit into a line -------------------------------------------------------------------------------------


def _tensors(scene: Scene) -> dict[str, Any]:
    given = {"views": valid.VIEW_FEATURES, "most_confident": valid.VIEW_FEATURES[:, :2], "raw": valid.PIXELS}
    return {name: scene.around(torch.from_numpy(array)) for name, array in given.items() if scene.random.random() < 0.5}


def _samples(name: str) -> Callable[[Scene], Callable[[], Any]]:
    def prepare(scene: Scene) -> Callable[[], Any]:
        features, others = scene.odd(torch.from_numpy(valid.FEATURES)), _tensors(scene)
        if name == "pta:Samples.of":
            others["normalise"] = scene.around(True)
        return lambda: _checked_samples(resolve_name(name)(features, **others))

    return prepare


def _checked_samples(samples: Any) -> None:
    norms = samples.features.detach().double().norm(dim=1)
    if not bool(torch.isfinite(norms).all()):
        raise Broken("accepted features are not finite")
    list(samples.batches(5))


def _checked_classifier(classifier: Any) -> None:
    unit = classifier.anchors.double().norm(dim=1)
    if not bool(((unit - 1).abs() < 1e-3).all()):
        raise Broken("anchors are not of unit length")
    if not bool(torch.isfinite(classifier.logits(classifier.anchors)).all()):
        raise Broken("logits are not finite")
    classifier.fingerprint  # noqa: B018 (its computation is what is tried)


def _create(method: str) -> Callable[[Scene], Callable[[], Any]]:
    def prepare(scene: Scene) -> Callable[[], Any]:
        from pta import create_adapter
        from pta.adapters import adapter_class

        declared = adapter_class(method).declared
        some = scene.random.sample(
            sorted(declared), min(len(declared), 0 if scene.exact else scene.random.randrange(4))
        )
        parameters = {name: scene.odd(declared[name].default) for name in some}
        model, source = scene.around(valid.toy()), scene.around(valid.samples())
        classifier, name = (
            valid.classifier() if scene.random.random() < 0.9 else scene.around(None),
            scene.around(method),
        )
        name = method if scene.random.random() < 0.8 else name

        def call() -> None:
            adapter = create_adapter(name, classifier, model=model, source=source, **parameters)
            logits = adapter.step(valid.samples()[:4])
            if not bool(torch.isfinite(logits).all()):
                raise Broken(f"accepted parameters {parameters} give logits that are not finite")

        return call

    return prepare


def _register(scene: Scene) -> Callable[[], Any]:
    from pta.adapters import registry

    given = scene.around(registry.adapter_class("pta"))

    def call() -> None:
        before = dict(registry._registered)
        try:
            registry.register(given)
            registry.list_adapters()
        finally:
            registry._registered.clear()
            registry._registered.update(before)

    return call


def _load_adapter(method: str) -> Callable[[Scene], Callable[[], Any]]:
    def prepare(scene: Scene) -> Callable[[], Any]:
        from pta import load_adapter

        place = scene.state(method)

        def call() -> None:
            adapter = load_adapter(place, valid.classifier(), model=valid.toy())
            for name, tensor in adapter.state().items():
                if bool(torch.isnan(tensor).any()):
                    raise Broken(f"a loaded state holds NaN in {name}")
            for answer in (adapter.predict, adapter.step, adapter.predict):
                if not bool(torch.isfinite(answer(valid.samples()[12:16])).all()):
                    raise Broken("a loaded state gives logits that are not finite")

        return call

    return prepare


def _load_segment(scene: Scene) -> Callable[[], Any]:
    from pta import Segment, compose, create_adapter

    place, adapter = scene.file("segment.safetensors"), create_adapter("pta", valid.classifier())

    def call() -> None:
        segment = Segment.load(place)
        adapter.apply(compose(segment, valid.segment()))
        if not bool(torch.isfinite(adapter.predict(valid.samples()[:4])).all()):
            raise Broken("a loaded segment gives logits that are not finite")

    return call


def _model(scheme: str, *files: str) -> Callable[[Scene], Callable[[], Any]]:
    def prepare(scene: Scene) -> Callable[[], Any]:
        from pta.encoders import load_encoder

        place = scene.file(scene.random.choice(files))
        ending = "#quickgelu" if "weights" in place.name else ""

        def call() -> None:
            encoder = load_encoder(f"{scheme}:{place}{ending}")
            if not bool(torch.isfinite(encoder.encode_texts(["a cat", "a dog"])).all()):
                raise Broken("a loaded model gives features that are not finite")

        return call

    return prepare


def _encoded(rows: Any) -> None:
    if not bool(torch.isfinite(rows).all()):
        raise Broken("features are not finite")


def _read_all(samples: Any) -> None:
    samples.fingerprint  # noqa: B018 (its computation is what is tried)
    for sample in samples.samples[:5]:
        sample.read()


def _decode_all(scene: Scene) -> Callable[[], Any]:
    from pta.images.frames import split_frames

    place = scene.file("frames.bin")
    content = place.read_bytes() if place.is_file() and not place.is_symlink() else b""
    return lambda: split_frames(io.BufferedReader(io.BytesIO(content)))


def _store(scene: Scene) -> Callable[[], Any]:
    from pta.evaluation.result_store import ResultStore, result_key

    folder, inputs, record = (
        scene.file("store"),
        scene.around({"method": "pta", "seed": 1}),
        scene.around({"accuracy": 60.0}),
    )

    def call() -> None:
        store = ResultStore(folder)
        key = result_key(inputs)
        store.put(inputs, record)
        store.get(key)
        len(store)
        with store.claim(key, wait=False):
            pass

    return call


def _compare(scene: Scene) -> Callable[[], Any]:
    from pta.evaluation.compare import Resampling, compare
    from pta.evaluation.contenders import Choice, names, pair
    from pta.evaluation.record_files import read_contenders

    place, settings = scene.file("records.json"), scene.around({})
    level, resamples, seed = scene.around(0.95), scene.around(1000), scene.around(1)

    def call() -> None:
        contenders = read_contenders(place)
        names(contenders)
        for a, b in pair(contenders, contenders, Choice("clip", settings), Choice("pta")):
            compare(a, b, Resampling(level, resamples, seed)).record()

    return call


def _extract(scene: Scene) -> Callable[[], Any]:
    from pta.datasets.open import open_samples
    from pta.inference.encoding import Reading, Views
    from pta.inference.extract import extract

    images, out = open_samples(valid.file(scene.files, "classes")), scene.around(scene.folder / "out.safetensors")
    batch, workers, views, shard = scene.around(2), scene.around(2), scene.around(2), scene.around(2)
    about, on_error, replace = scene.around({"model": "x"}), scene.around("skip"), scene.around(False)

    def call() -> None:
        reading = Reading(batch, workers, views=Views(views, "crops"))
        given = (images, valid.encoder(), valid.live().classifier, out, reading)
        extract(*given, about=about, shard=shard, replace=replace, on_error=on_error)

    return call


def _predict_stream(scene: Scene) -> Callable[[], Any]:
    from pta import Classifier
    from pta.inference.encoding import Reading
    from pta.inference.predict import predict_stream
    from pta.inference.sources import find_samples

    places = [scene.file("classes"), scene.file("picture.png"), scene.file("picture.jpeg")]
    batch, top, on_error, learn = scene.around(2), scene.around(2), scene.around("skip"), scene.around(True)
    taken = 1000 if scene.exact else scene.random.choice((0, 1, 1000))

    def call() -> None:
        classifier = Classifier(valid.encoder(), valid.CLOTHES, cache=None)
        stream = predict_stream(
            classifier, find_samples(places), Reading(batch, 2), learn=learn, top=top, on_error=on_error
        )
        for _, _ in zip(range(taken), stream, strict=False):
            pass
        del stream  # which leaves no thread

    return call


def _rows(scene: Scene) -> Callable[[], Any]:
    from pta.inference.answers import answers_from
    from pta.inference.rows import CsvRows, JsonLines

    path = "1.png" if scene.exact else scene.random.choice(TEXTS)
    logits = torch.randn(3, len(valid.NAMES), generator=torch.Generator().manual_seed(1))

    def call() -> None:
        for rows in (JsonLines(io.StringIO()), CsvRows(io.StringIO(), 2)):
            for answer in answers_from(logits, logits.softmax(dim=1), logits, valid.NAMES, 2):
                rows.write(path, answer)

    return call


def _experiment(scene: Scene) -> Callable[[], Any]:
    from pta.reproduction.declaration import load_experiments
    from pta.reproduction.plan import place
    from pta.reproduction.world import world_with

    source, most = str(scene.file("mine.toml")), scene.around(2)

    def call() -> None:
        for experiment in load_experiments([source]):
            list(place(experiment, world_with([valid.data()], offline=True, most_seeds=most)).all_jobs)

    return call


def _evaluate(scene: Scene) -> Callable[[], Any]:
    from pta.evaluation.evaluate import Summary, evaluate
    from pta.evaluation.stream import Stream

    kind, gamma, drop, look = scene.around("dirichlet"), scene.around(0.1), scene.around(False), scene.around(False)
    methods, seeds, batch = scene.around({"clip": {}, "pta": {"h": 5.0}}), scene.around([1, 2]), scene.around(8)

    def call() -> None:
        stream = Stream(kind, gamma, drop_last=drop, lookahead=look)
        done = [one.record() for one in evaluate(valid.data(), methods, seeds, stream=stream, batch=batch)]
        if done:
            Summary.of(done)

    return call


def _sweep(scene: Scene) -> Callable[[], Any]:
    from pta.evaluation.result_store import ResultStore
    from pta.evaluation.stream import Stream
    from pta.evaluation.sweep import Grid, sweep, sweep_csv

    method, grid, seeds, batch = (
        scene.around("pta"),
        scene.around({"h": [5.0, 20.0]}),
        scene.around([1]),
        scene.around(8),
    )

    def call() -> None:
        found = Grid(method, grid)
        found.require(valid.data())
        store = ResultStore(scene.folder / "results")
        sweep_csv(found, {"made": list(sweep(store, valid.data(), found, seeds, stream=Stream(), batch=batch))})

    return call


def _reads(prepared: Any) -> Any:
    return prepared.read()


def _all_records(catalogue: Any) -> Any:
    return [entry.record() for entry in catalogue.values()]


_PICTURE = Image.fromarray(valid.PICTURE)
_RIGHT = np.array([True, False, True, True, False])
_METHODS = tuple(list_adapters())
_OF_ADAPTERS = tuple(
    f"pta:Adapter.{name}"
    for name in ("step", "predict", "snapshot", "restore", "clone", "reset", "to", "save", "state")
)
_PICTURES = ("png", "jpeg", "gif", "webp", "bmp", "tiff", "ppm")
_FASHION = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot")

TARGETS: tuple[Target, ...] = (
    # what everything stands on
    Target(
        "Samples.of", _samples("pta:Samples.of"), 30, ("pta:Samples.of", "pta:Samples.batches", "pta:Samples.tensors")
    ),
    Target("Samples", _samples("pta:Samples"), 20, ("pta:Samples",)),
    calls(
        "pta:ZeroShotClassifier",
        valid.ANCHORS,
        valid.NAMES,
        20.0,
        0.0,
        prompts=None,
        then=_checked_classifier,
        weight=20,
    ),
    calls(
        "pta:ZeroShotClassifier",
        Own(lambda scene: scene.odd(torch.from_numpy(valid.ANCHORS))),
        valid.NAMES,
        scale=20.0,
        bias=0.5,
        prompts=[["a"], ["b"], ["c"], ["d"], ["e"]],
        then=_checked_classifier,
        weight=20,
    ),
    Target(
        "ZeroShotClassifier.to",
        lambda scene: partial(
            valid.classifier().to, device=scene.around(torch.device("cpu")), dtype=scene.around(torch.float64)
        ),
        2,
        ("pta:ZeroShotClassifier.to",),
    ),
    # methods
    *(Target(f"adapter {name}", adapter_session(name), 18, (f"adapter {name}", *_OF_ADAPTERS)) for name in _METHODS),
    *(Target(f"create_adapter {name}", _create(name), 3, ("pta:create_adapter",)) for name in _METHODS),
    *(Target(f"load_adapter {name}", _load_adapter(name), 14, ("pta:load_adapter",)) for name in _METHODS),
    Target("Segment.load", _load_segment, 30, ("pta:Segment", "pta:Segment.load", "pta:Segment.save", "pta:compose")),
    Target("register", _register, 2, ("pta:register",)),
    calls("pta:list_adapters"),
    calls("pta.adapters:adapter_class", "pta"),
    calls("pta.adapters:needs_model", "tca", {"rate": 0.5}),
    calls("pta.adapters:needs_of_samples", "zero", {}),
    calls("pta.adapters.presets:require_preset", "paper", "dtd"),
    calls("pta.adapters.presets:load_preset", "pta", "paper", "dtd"),
    calls("pta.adapters.presets:depends_on_dataset", "pta"),
    calls("pta.adapters.presets:preset_names"),
    calls("pta.adapters:Snapshot", "pta", {}, Own(lambda scene: valid.classifier()), {}),
    # from pictures and texts to features
    calls("pta.encoders:load_encoder", "embedded", device="cpu", dtype="float32"),
    calls("pta.encoders:find_device", "cpu"),
    Target("load_encoder file:", _model("file", "openai.pt", "weights.pt", "weights.safetensors"), 12),
    Target("load_encoder hf:", _model("hf", "hf-clip", "hf-siglip"), 6),
    *(
        calls("fuzzing.targets:encode_picture", File(f"picture.{kind}", Path), then=_encoded, weight=5)
        for kind in _PICTURES
    ),
    calls("fuzzing.targets:as_raw", _PICTURE, weight=6),
    calls("fuzzing.targets:encode", torch.zeros(2, 1, 28, 28), weight=6),
    calls("fuzzing.targets:encode_texts", ["a cat", "a dog"], then=_encoded, weight=6),
    calls("pta.images:decode_image", valid.picture(), "the image", at_least=None, weight=6),
    calls("pta.images:decode_image", valid.picture("JPEG"), "the image", at_least=4, weight=6),
    calls("pta.images:as_picture", valid.PICTURE),
    calls("pta.images:Preprocessing", 8, "shortest", "bicubic", (0.5, 0.5, 0.5), (0.2, 0.2, 0.2)),
    calls("fuzzing.targets:preprocess", [_PICTURE, _PICTURE], covers=["pta.images:CLIP_PREPROCESSING"]),
    calls(
        "fuzzing.targets:resize_on_device",
        *(9, 7, torch.from_numpy(valid.PICTURE).permute(2, 0, 1)[None].contiguous()),
        covers=["pta.images:DevicePreprocessing"],
    ),
    Target("split_frames", _decode_all, 10, ("pta.images.frames:split_frames",)),
    calls(
        "pta.views:make_views", _PICTURE, Own(lambda scene: valid.encoder().preprocess), count=3, mode="augmix", seed=1
    ),
    calls(
        "pta.views:confident_mean", Own(lambda scene: valid.samples()), Own(lambda scene: valid.classifier()), keep=0.3
    ),
    calls("pta.corruptions:apply_shift", np.zeros((2, 6, 6), np.uint8), "blur", 2, 1, weight=6),
    # class names to anchors
    calls(
        "pta.prompts:build_classifier",
        Own(lambda scene: valid.encoder()),
        list(valid.NAMES),
        ["a photo of a {}."],
        descriptions=valid.DESCRIPTIONS,
        cache=Made(lambda scene: scene.folder / "anchors"),
        weight=6,
    ),
    calls("pta.prompts:class_texts", list(valid.NAMES), ["a photo of a {}."], valid.DESCRIPTIONS, weight=4),
    calls("pta.prompts:load_templates", "clip", "dtd"),
    calls("pta.prompts:load_templates", File("templates.txt"), weight=5),
    calls("pta.prompts:load_templates", File("templates.json"), weight=5),
    calls("pta.prompts:load_descriptions", File("descriptions.json"), weight=8),
    calls("pta.prompts:default_cache"),
    # data
    calls("pta.datasets.features:load_features", File("features.npz"), then=lambda file: file.fingerprint, weight=40),
    calls(
        "pta.datasets.features:load_features",
        File("features.safetensors"),
        then=lambda file: file.fingerprint,
        weight=40,
    ),
    calls("pta.datasets.features:load_features", Made(lambda scene: valid.file(scene.files, "features.npz"))),
    calls("pta.datasets.features:read_about", File("features.safetensors", Path), weight=6),
    calls("pta.datasets:open_samples", File("classes"), class_names=None, then=_read_all, weight=8),
    calls("pta.datasets:open_samples", File("classes", Path), class_names=valid.NAMES, then=_read_all, weight=4),
    calls("pta.datasets:open_samples", File("shard.tar"), class_names=valid.NAMES, then=_read_all, weight=12),
    calls("pta.datasets:open_samples", File("listed", lambda path: path / "list.csv"), then=_read_all, weight=12),
    *(
        calls(
            "pta.datasets:open_samples", source, root=File("datasets", Path), class_names=None, then=_read_all, weight=4
        )
        for source in ("dtd", "fgvc_aircraft", "imagenet_a", "imagenet_v2", "imagenet_c/fog/5")
    ),
    calls("pta.datasets:SampleFile", Own(lambda scene: scene.file("picture.png")), "key", then=_reads),
    calls(
        "pta.datasets:SampleFile",
        Made(lambda scene: scene.files / "picture.png"),
        "key",
        covers=["pta.datasets:SampleSet"],
    ),
    calls("pta.datasets.catalogue:find_entry", "imagenet_c/fog/5"),
    calls("pta.datasets.catalogue:is_catalogued", "dtd"),
    calls("pta.datasets.catalogue:catalogue", then=_all_records),
    calls("pta.datasets.check:check", "dtd", File("datasets", Path), weight=4),
    calls("pta.datasets.fashion:load_fashion_test"),
    calls("pta.files:load_tensors", File("segment.safetensors", Path), Own(lambda scene: "segment")),
    calls("pta.files:read_json", File("records.json", Path), "record"),
    # orders
    calls("pta.streams:iid", 10, 3),
    calls("pta.streams:dirichlet", valid.LABELS, 0.1, 1, batch=4, slots=None, weight=4),
    calls("pta.streams:slot_count", 100, 10, 8),
    calls("pta.streams:separate", valid.LABELS, 1),
    calls("pta.streams:drifting", valid.LABELS, 1),
    calls("pta.streams:poisoned", np.arange(4), np.array([0, 1, 0, 1]), np.full((4, 2), 0.5), prefix=2, confidence=0.4),
    calls("pta.streams:batches", np.arange(10), 3, drop_last=True),
    calls("pta.streams:kept", 10, 3, drop_last=True),
    # evaluation
    Target(
        "evaluate",
        _evaluate,
        8,
        ("pta.evaluation.evaluate:evaluate", "pta.evaluation.evaluate:Summary", "pta.evaluation.stream:Stream"),
    ),
    Target(
        "sweep",
        _sweep,
        4,
        (
            *("pta.evaluation.sweep:Grid", "pta.evaluation.sweep:Point", "pta.evaluation.sweep:sweep"),
            *("pta.evaluation.sweep:sweep_csv", "pta.evaluation.cached_evaluation:evaluate_once"),
        ),
    ),
    Target(
        "compare",
        _compare,
        16,
        (
            *("pta.evaluation.record_files:read_contenders", "pta.evaluation.contenders:pair"),
            *(
                "pta.evaluation.contenders:Choice",
                "pta.evaluation.contenders:names",
                "pta.evaluation.compare:Resampling",
            ),
            *("pta.evaluation.contenders:Contender", "pta.evaluation.contenders:shared_datasets"),
            *("pta.evaluation.compare:compare", "pta.evaluation.compare:Comparison"),
        ),
    ),
    Target(
        "ResultStore", _store, 10, ("pta.evaluation.result_store:ResultStore", "pta.evaluation.result_store:result_key")
    ),
    calls("pta.evaluation.bits:read_bits", "kA==", 4, weight=4),
    # encoders, data and methods together
    Target(
        "Classifier",
        live_session,
        40,
        tuple(f"pta:Classifier{name}" for name in ("", ".answer", ".save", ".load", ".pipeline")),
    ),
    calls(
        "pta:Classifier",
        Own(lambda scene: valid.encoder()),
        list(valid.CLOTHES),
        templates="clip",
        descriptions=None,
        method="pta",
        device="cpu",
        dtype="float32",
        cache=None,
        views=4,
        expected=10,
        weight=16,
    ),
    Target("compile", program_session, 8, ("pta:compile",)),
    Target(
        "extract",
        _extract,
        6,
        tuple(f"pta.inference.{name}" for name in ("extract:extract", "encoding:Reading", "encoding:Views")),
    ),
    Target(
        "predict_stream",
        _predict_stream,
        6,
        ("pta.inference.predict:predict_stream", "pta.inference.sources:find_samples"),
    ),
    Target(
        "rows",
        _rows,
        8,
        tuple(f"pta.inference.{name}" for name in ("answers:answers_from", "rows:JsonLines", "rows:CsvRows")),
    ),
    calls("pta.inference.extract:require_feature_file", Made(lambda scene: scene.folder / "x.safetensors")),
    calls("pta.inference.open_source:open_source", "fashion/blur/2/5", root=None, class_names=list(_FASHION), weight=1),
    calls("pta.inference.open_source:open_fashion", "fashion/blur/2/5", list(_FASHION), weight=1),
    calls("pta.inference.sources:open_places", Made(lambda scene: [str(scene.file("classes"))]), frames=False),
    calls("pta.inference.verify:find_reference", "ViT-B/16", "clip", then=lambda found: found.choose(["dtd"])),
    calls("pta.demo:run_demo", "blur", 2, 1, limit=5, weight=1),
    # experiments
    Target(
        "experiment",
        _experiment,
        16,
        (
            *("pta.reproduction.declaration:load_experiment", "pta.reproduction.declaration:load_experiments"),
            *("pta.reproduction.plan:place", "pta.reproduction.world:world_with"),
        ),
    ),
    calls("pta.reproduction.declaration:parse_experiment", "mine", valid.EXPERIMENT, weight=6),
    # the command
    command(
        *("eval", "--features", File("features.npz"), "--method", "pta", "--method", "zero", "--seed", "1"),
        *("--set", "pta.h=5", "--stream", "dirichlet", "--gamma", "0.1", "--batch", "8", "--json", "out.json"),
        *("--predictions", "answers"),
        weight=6,
    ),
    command(
        "eval", "--features", File("features.safetensors"), "--method", "all", "--preset", "paper/dtd", "--json", "-"
    ),
    command(
        "compare", File("records.json"), "--a", "clip", "--b", "pta", "--resamples", "1000", "--level", "0.9", weight=6
    ),
    command(
        *(
            "sweep",
            "--features",
            File("features.npz"),
            "--set",
            "pta.h=5,20",
            "--seed",
            "1",
            "--results",
            File("store"),
        ),
        *("--csv", "out.csv", "--json", "out.json"),
        weight=3,
    ),
    command(
        *(
            "reproduce",
            File("mine.toml"),
            "--features",
            File("features.npz"),
            "--offline",
            "--out",
            "results",
            "--seeds",
            "1",
        ),
        weight=1,
    ),
    command("methods", "pta", "--json", "-", weight=1),
    command(
        *(
            "predict",
            File("classes"),
            "--classes",
            "coat,bag",
            "--model",
            "embedded",
            "--out",
            "rows.jsonl",
            "--top",
            "2",
        ),
        *("--on-error", "skip", "--workers", "2", "--method", "pta", "--set", "pta.h=5", "--state", "s.safetensors"),
        weight=6,
    ),
    command(
        *(
            "predict",
            File("picture.png"),
            "--classes",
            "coat,bag,sneaker",
            "--model",
            "embedded",
            "--out",
            File("rows.jsonl"),
        ),
        *("--append", "--state", File("live.safetensors"), "--workers", "1"),
        weight=4,
    ),
    command(
        *(
            "predict",
            "-",
            "--frames",
            "--classes",
            "coat,bag",
            "--model",
            "embedded",
            "--out",
            "-",
            "--csv",
            "--device",
            "cpu",
        ),
        *("--on-error", "skip", "--workers", "1"),
        stdin="frames.bin",
        weight=4,
    ),
    command(
        *(
            "predict",
            "-",
            "--classes",
            File("names.txt"),
            "--model",
            "embedded",
            "--descriptions",
            File("descriptions.json"),
        ),
        *("--on-error", "skip", "--workers", "1"),
        stdin="paths.txt",
        weight=3,
    ),
    command(
        *(
            "extract",
            File("classes"),
            "--out",
            "f.safetensors",
            "--model",
            "embedded",
            "--views",
            "2",
            "--view-mode",
            "crops",
        ),
        *("--seed", "1", "--shard", "2", "--on-error", "skip", "--templates", File("templates.txt"), "--json", "-"),
        *("--workers", "2"),
        weight=5,
    ),
    command(
        "extract",
        File("shard.tar"),
        "--out",
        "f.safetensors",
        "--model",
        "embedded",
        "--classes",
        "a,b,c",
        "--pixels",
        weight=3,
    ),
    command(
        "verify",
        "embedded",
        "--data",
        File("datasets"),
        "--dataset",
        "dtd",
        "--features",
        "f",
        weight=1,
        always_refused=True,
    ),
    command("datasets", "check", "dtd", "--data", File("datasets"), "--json", "-", weight=3),
    command("datasets", "--json", "list.json", weight=1),
    command(
        "demo",
        "--shift",
        "nothing",
        "--severity",
        "3",
        "--seed",
        "1",
        "--report",
        "r.html",
        weight=1,
        always_refused=True,
    ),
)


def encode_picture(path: Path) -> Any:
    """The features of a picture in a file."""
    return valid.encoder().encode(
        torch.from_numpy(valid.encoder().prepare(path.read_bytes() if _is_plain(path) else b"", str(path)))[None]
    )


def as_raw(given: Any) -> Any:
    """The pixels of a picture."""
    return valid.encoder().as_raw(given)


def encode(pixels: Any) -> Any:
    """The features of pixels."""
    return valid.encoder().encode(pixels)


def encode_texts(texts: Any) -> Any:
    """The features of texts."""
    return valid.encoder().encode_texts(texts)


def preprocess(pictures: Any) -> Any:
    """The pixels of pictures."""
    return valid.encoder().preprocess(pictures)


def resize_on_device(height: Any, width: Any, pixels: Any) -> Any:
    """The same by tensors."""
    from pta.images import DevicePreprocessing, Preprocessing

    return DevicePreprocessing(Preprocessing(8), height, width)(pixels)


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


NOT_CALLED = {
    "pta:PtaError": "an exception",
    "pta:Adapter": "abstract; every method is a target",
    "pta:Adapter.add_state": "for the author of a method",
    "pta:Adapter.complete": "through create_adapter",
    "pta:Adapter.needs_with": "through create_adapter",
    "pta:Adapter.refined": "for the author of a method",
    "pta:Adapter.probabilities": "for logits that were computed",
    "pta:Adapter.require": "through step",
    "pta:Adapter.require_model": "through create_adapter",
    "pta:Adapter.stands_on": "through create_adapter",
    "pta:Adapter.step_unchecked": "for features that were checked",
    "pta:Adapter.zero_shot": "for the author of a method",
    "pta:Classifier.reading": "takes and gives a Reading, which is checked when it is made",
    "pta:Samples.to": "for samples that were checked",
    "pta:Samples.unchecked": "for tensors that were checked",
    "pta:Segment.of": "through summarise",
    "pta:Segment.require_for": "through apply and compose",
    "pta:ZeroShotClassifier.logits": "for features that were checked",
    "pta:ZeroShotClassifier.scores": "for cosines that were computed",
    "pta:check_adapter": "runs a program of the caller's, and says what is wrong with it",
    "pta.adapters:Origin": "what create_adapter hands to a method",
    "pta.datasets:TarMember": "made by open_samples",
    "pta.demo:render_report": "given what run_demo has computed",
    "pta.demo:DemoResult": "made by run_demo",
    "pta.demo:ClassScore": "made by run_demo",
    "pta.encoders:Encoder": "abstract",
    "pta.encoders:ImageEncoder": "abstract",
    "pta.encoders:EmbeddedConfig": "for training",
    "pta.encoders:EmbeddedEncoder": "through load_encoder",
    "pta.prompts:DuplicateClassNames": "a warning",
    "pta.prompts:TextEncoder": "a protocol",
    "pta.cli": "through the commands",
    "pta.corruptions": "through apply_shift",
    "pta.demo": "through run_demo",
    "pta.encoders": "through load_encoder, with mutated files, and the methods of the encoder",
    "pta.engines": "called by methods, with tensors that were checked",
    "pta.errors": "says what is wrong",
    "pta.parameters": "through create_adapter",
    "pta.plugins": "loads what is installed",
    "pta.reference": "loops to be read, which tests call",
    "pta.reproduction": "through load_experiments, place and the command",
    "pta.towers": "called by methods",
    "pta.views.augmix": "through make_views",
    "pta.views.crops": "through make_views",
    "pta.adapters.adapter:require_classifier": "through create_adapter",
    "pta.adapters.checks": "the laws of check_adapter",
    "pta.adapters.state_bounds": "declared by methods; through restore and load_adapter",
    "pta.adapters.state_file": "through save and load_adapter",
    "pta.datasets.class_index": "through open_samples",
    "pta.datasets.csv_list": "through open_samples",
    "pta.datasets.folder_layouts": "through open_samples",
    "pta.datasets.imagenet": "through open_samples",
    "pta.datasets.own_folder": "through open_samples",
    "pta.datasets.shard_names": "through open_samples",
    "pta.datasets.split_files": "through open_samples",
    "pta.datasets.trees": "through open_samples and find_samples",
    "pta.datasets.webdataset": "through open_samples",
    "pta.evaluation.bits:write_bits": "given what evaluate has computed",
    "pta.evaluation.cached_evaluation": "through sweep",
    "pta.evaluation.compare:bootstrap_means": "through compare",
    "pta.evaluation.compare:points": "given what compare has computed",
    "pta.evaluation.contenders:as_given": "through names",
    "pta.evaluation.drawing": "asks for a package",
    "pta.evaluation.evaluate:require_same_model": "through evaluate",
    "pta.evaluation.html_page": "fills in the package's own pages",
    "pta.evaluation.machine": "takes nothing",
    "pta.evaluation.metrics": "given what evaluate has computed",
    "pta.evaluation.number_text": "given what evaluate has computed",
    "pta.evaluation.stream_run": "through evaluate",
    "pta.evaluation.sweep_figure": "through pta sweep --plot",
    "pta.evaluation.version": "reads the package's own files",
    "pta.files": "through every reader and writer",
    "pta.memory": "says how much there is",
    "pta.plain": "through everything that takes numbers",
    "pta.samples:longest_unit": "given a precision",
    "pta.images.bare": "through decode_image",
    "pta.images.jpeg": "through decode_image",
    "pta.images.preprocessing:require_bytes": "through compile and preprocess",
    "pta.images.reading:load_image": "through decode_image",
    "pta.images.reading:open_image": "through decode_image",
    "pta.inference.encoding": "through predict_stream and extract",
    "pta.inference.feed": "through predict_stream and extract",
    "pta.inference.recordable": "asked by compile",
    "pta.inference.rows:columns": "through CsvRows",
    "pta.inference.shards": "through extract",
    "pta.inference.verify:verify": "through pta verify",
    "pta.prompts": "through build_classifier, load_templates and load_descriptions",
}
"""Public names, and modules and packages, that are not called by themselves, and why."""

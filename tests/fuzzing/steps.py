"""What several targets do, and what takes more than a line to prepare."""

import io
from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import torch

from fuzzing import valid
from fuzzing.calls import Broken, Scene
from fuzzing.values import TEXTS


def _tensors(scene: Scene) -> dict[str, Any]:
    given = {"views": valid.VIEW_FEATURES, "most_confident": valid.VIEW_FEATURES[:, :2], "raw": valid.PIXELS}
    return {name: scene.around(torch.from_numpy(array)) for name, array in given.items() if scene.random.random() < 0.5}


def make_samples(name: str) -> Callable[[Scene], Callable[[], Any]]:
    """Samples of odd tensors."""

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


def check_classifier(classifier: Any) -> None:
    """Unit anchors and finite logits, whatever was accepted."""
    unit = classifier.anchors.double().norm(dim=1)
    if not bool(((unit - 1).abs() < 1e-3).all()):
        raise Broken("anchors are not of unit length")
    if not bool(torch.isfinite(classifier.logits(classifier.anchors)).all()):
        raise Broken("logits are not finite")
    classifier.fingerprint  # noqa: B018 (its computation is what is tried)


def create(method: str) -> Callable[[Scene], Callable[[], Any]]:
    """A method with odd parameters, which takes a step if it is accepted."""

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


def register(scene: Scene) -> Callable[[], Any]:
    """A class that may be no method."""
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


def load_state(method: str) -> Callable[[Scene], Callable[[], Any]]:
    """The file of a method's state, and answers from it."""

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


def load_segment(scene: Scene) -> Callable[[], Any]:
    """The file of a segment, composed and applied."""
    from pta import Segment, compose, create_adapter

    place, adapter = scene.file("segment.safetensors"), create_adapter("pta", valid.classifier())

    def call() -> None:
        segment = Segment.load(place)
        adapter.apply(compose(segment, valid.segment()))
        if not bool(torch.isfinite(adapter.predict(valid.samples()[:4])).all()):
            raise Broken("a loaded segment gives logits that are not finite")

    return call


def load_model(scheme: str, *files: str) -> Callable[[Scene], Callable[[], Any]]:
    """A model in a file or folder, and texts for it."""

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


def check_features(rows: Any) -> None:
    """Finite features, whatever was accepted."""
    if not bool(torch.isfinite(rows).all()):
        raise Broken("features are not finite")


def read_all(samples: Any) -> None:
    """The samples of a source, read."""
    samples.fingerprint  # noqa: B018 (its computation is what is tried)
    for sample in samples.samples[:5]:
        sample.read()


def decode_frames(scene: Scene) -> Callable[[], Any]:
    """Frames of a pipe."""
    from pta.images.frames import split_frames

    place = scene.file("frames.bin")
    content = place.read_bytes() if place.is_file() and not place.is_symlink() else b""
    return lambda: split_frames(io.BufferedReader(io.BytesIO(content)))


def use_store(scene: Scene) -> Callable[[], Any]:
    """A store of results: put and get."""
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


def compare_records(scene: Scene) -> Callable[[], Any]:
    """Two results of a record file."""
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


def extract_folder(scene: Scene) -> Callable[[], Any]:
    """A folder to a feature file."""
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


def predict_folder(scene: Scene) -> Callable[[], Any]:
    """A folder to answers, perhaps abandoned."""
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


def write_rows(scene: Scene) -> Callable[[], Any]:
    """Answers of odd paths to rows."""
    from pta.inference.answers import answers_from
    from pta.inference.rows import CsvRows, JsonLines

    path = "1.png" if scene.exact else scene.random.choice(TEXTS)
    logits = torch.randn(3, len(valid.NAMES), generator=torch.Generator().manual_seed(1))

    def call() -> None:
        json_file, csv_file = io.StringIO(), io.StringIO()
        for rows in (JsonLines(json_file), CsvRows(csv_file, 2)):
            for answer in answers_from(logits, logits.softmax(dim=1), logits, valid.NAMES, 2):
                rows.write(path, answer)
        if not all(line.isprintable() for file in (json_file, csv_file) for line in file.getvalue().split("\n")):
            raise Broken("control characters in rows")

    return call


def place_experiment(scene: Scene) -> Callable[[], Any]:
    """The file of an experiment, placed."""
    from pta.reproduction.declaration import load_experiments
    from pta.reproduction.plan import place
    from pta.reproduction.world import world_with

    source, most = str(scene.file("mine.toml")), scene.around(2)

    def call() -> None:
        for experiment in load_experiments([source]):
            list(place(experiment, world_with([valid.data()], offline=True, most_seeds=most)).all_jobs)

    return call


def evaluate_methods(scene: Scene) -> Callable[[], Any]:
    """Methods over a stream."""
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


def sweep_grid(scene: Scene) -> Callable[[], Any]:
    """A grid of parameters."""
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


def read_one(prepared: Any) -> Any:
    """A sample, read."""
    return prepared.read()


def all_records(catalogue: Any) -> Any:
    """Every set of the catalogue."""
    return [entry.record() for entry in catalogue.values()]


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

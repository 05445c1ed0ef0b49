"""Targets of several steps: each makes something of odd input, and uses it."""

import io
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from PIL import Image

from fuzzing import valid
from fuzzing.calls import Broken, Scene
from fuzzing.declare import target
from fuzzing.values import TEXTS
from pta import Classifier, Samples, Segment, ZeroShotClassifier, compose, create_adapter, list_adapters, load_adapter
from pta.cluster import (
    Block,
    boundary,
    cut,
    replay_block,
    run_blocks,
    scan,
    start_of,
    summarise_block,
)
from pta.cluster.blocks.summary import Summary as BlockSummary
from pta.data.sources import find_samples
from pta.door.images import CLIP_PREPROCESSING
from pta.evaluation.compare import Resampling, compare
from pta.evaluation.contenders import Choice, names, pair, shared_datasets
from pta.evaluation.evaluate import Summary
from pta.evaluation.record_files import read_contenders
from pta.evaluation.result_store import ResultStore, result_key
from pta.evaluation.stream import Stream
from pta.evaluation.sweep import Grid, sweep, sweep_csv
from pta.methods import adapter_class, register, registry
from pta.models import load_encoder
from pta.run.classifier import answers_from
from pta.run.predict import predict_stream
from pta.run.reading import Reading
from pta.run.row_file import CsvRows, JsonLines

_PICTURE = Image.fromarray(valid.PICTURE)


def check_classifier(classifier: ZeroShotClassifier) -> Any:
    """Unit anchors and finite logits, whatever was accepted."""
    if not bool(((classifier.anchors.double().norm(dim=1) - 1).abs() < 1e-3).all()):
        raise Broken("anchors are not of unit length")
    classifier.fingerprint  # noqa: B018 (its computation is what is tried)
    return classifier.logits(classifier.anchors)


def read_all(samples: Any) -> None:
    samples.fingerprint  # noqa: B018 (its computation is what is tried)
    for sample in samples.samples[:5]:
        sample.read()


def summarise(runs: Any) -> Any:
    """What is shown of the runs of an evaluation."""
    records = [run.record() for run in runs]
    return Summary.of(records) if records else None


@target(50)
def make_samples(scene: Scene) -> Any:
    arrays = {"views": valid.VIEW_FEATURES, "most_confident": valid.VIEW_FEATURES[:, :2], "raw": valid.PIXELS}
    arrays |= {"patches": valid.PATCH_FEATURES, "generated": valid.VIEW_FEATURES}
    odd = {key: scene.around(torch.from_numpy(one)) for key, one in arrays.items() if scene.random.random() < 0.5}
    features = scene.odd(torch.from_numpy(valid.FEATURES))
    plain = scene.random.random() < 0.4
    samples = Samples(features, **odd) if plain else Samples.of(features, **odd, normalise=scene.around(True))
    return [samples.tensors()["features"], *(part.features for part in samples.batches(5))]


def create(scene: Scene, method: str) -> Any:
    """A method with odd parameters, which takes a step if it is accepted."""
    declared = adapter_class(method).declared
    some = scene.random.sample(sorted(declared), min(len(declared), scene.one_of(0, 1, 2, 3)))
    parameters = {name: scene.odd(declared[name].default) for name in some}
    classifier = scene.one_of(*9 * [valid.classifier()], scene.around(None))
    name = scene.one_of(*4 * [method], scene.around(method))
    model, source = scene.around(valid.toy()), scene.around(valid.samples())
    adapter = create_adapter(name, classifier, model=model, source=source, **parameters)
    return adapter.step(valid.samples()[:4])


def load_state(scene: Scene, method: str) -> Any:
    """The file of a method's state, and answers from it."""
    classifier = scene.one_of(valid.classifier(), None)
    adapter = load_adapter(scene.file(f"state-{method}.safetensors"), classifier, model=valid.toy())
    for name, tensor in adapter.state().items():
        if bool(torch.isnan(tensor).any()):
            raise Broken(f"a loaded state holds NaN in {name}")
    return [answer(valid.samples()[12:16]) for answer in (adapter.predict, adapter.step, adapter.predict)]


for _name in list_adapters():
    target(3, f"create_adapter {_name}")(partial(create, method=_name))
    target(14, f"load_adapter {_name}")(partial(load_state, method=_name))


@target(30)
def load_segment(scene: Scene) -> Any:
    """The file of a segment, composed, applied and saved again."""
    adapter = create_adapter("pta", valid.classifier())
    segment = Segment.load(scene.file("segment.safetensors"))
    adapter.apply(compose(segment, valid.segment()))
    segment.save(scene.around(scene.folder / "again.safetensors"))
    return adapter.predict(valid.samples()[:4])


@target(12)
def stream_in_blocks(scene: Scene) -> Any:
    """A stream that is cut into blocks, all passes."""
    numbers, features = list(range(len(valid.samples()))), valid.samples().features
    blocks = cut(scene.around(numbers), scene.around(features), scene.around(7), scene.around([]))
    run = run_blocks(create_adapter("pta", valid.classifier()), blocks, scene.around(1e-6))
    return run.answers[0].probabilities


@target(12)
def one_block(scene: Scene) -> Any:
    """The bytes of a block's summary, and the block from them."""
    adapter, rows = create_adapter("pta", valid.classifier()), valid.samples()[:8]
    block = Block.of(scene.around(0), scene.around(8), scene.around(list(range(8))), rows, scene.around([]))
    summary = BlockSummary.of_bytes(scene.around(summarise_block(adapter, block).to_bytes()))
    learned = scan(adapter, start_of(adapter), [summary])
    answers, _ = replay_block(adapter, block, summary, boundary(adapter, learned[0], None))
    return answers.probabilities, boundary(adapter, learned[1], (learned[0], summary))["anchored"]


@target(2)
def register_class(scene: Scene) -> None:
    with patch.dict(registry._registered):
        register(scene.around(adapter_class("pta")))
        list_adapters()


@target(18)
def load_model(scene: Scene) -> Any:
    """A model in a file or folder, and texts for it."""
    for name in scene.some_of("openai.pt", "weights.pt", "weights.safetensors", "hf-clip", "hf-siglip"):
        ending = "#quickgelu" if "weights" in name else ""
        encoder = load_encoder(f"{'hf' if 'hf' in name else 'file'}:{scene.file(name)}{ending}")
        yield encoder.encode_texts(["a cat", "a dog"])


@target(65)
def encode(scene: Scene) -> Any:
    """The features of a picture in a file, and of pixels and texts; and the pixels of pictures."""
    encoder, (kind, *_) = valid.encoder(), scene.some_of(*valid.PICTURES)
    operations = scene.some_of(
        lambda: encoder.encode(torch.from_numpy(encoder.prepare(scene.content(f"picture.{kind}"), "x"))[None]),
        lambda: encoder.encode(scene.around(torch.zeros(2, 1, 28, 28))),
        lambda: encoder.encode_texts(scene.around(["a cat", "a dog"])),
        lambda: encoder.as_raw(scene.around(_PICTURE)),
        lambda: encoder.preprocess(scene.around([_PICTURE, _PICTURE])),
        lambda: CLIP_PREPROCESSING(scene.around([_PICTURE])),
    )
    return [operation() for operation in operations]


@target(10)
def use_store(scene: Scene) -> None:
    store, inputs = ResultStore(scene.file("store")), scene.around({"method": "pta", "seed": 1})
    key = result_key(inputs)
    store.put(inputs, scene.around({"accuracy": 60.0}))
    store.get(key)
    len(store)
    with store.claim(key, wait=False):
        pass


@target(16)
def compare_records(scene: Scene) -> None:
    contenders = read_contenders(scene.file("records.json"))
    names(contenders)
    shared_datasets(contenders, contenders)
    resampling = Resampling(scene.around(0.95), scene.around(1000), scene.around(1))
    for a, b in pair(contenders, contenders, Choice("clip", scene.around({})), Choice("pta")):
        compare(a, b, resampling).record()


@target(6)
def predict_folder(scene: Scene) -> None:
    """A folder to answers, perhaps abandoned."""
    classifier = Classifier(valid.encoder(), valid.CLOTHES, cache=None)
    places = [scene.file("classes"), scene.file("picture.png"), scene.file("picture.jpeg")]
    how = {"learn": scene.around(True), "top": scene.around(2), "on_error": scene.around("skip")}
    stream = predict_stream(classifier, find_samples(places), Reading(scene.around(2), 2), **how)
    for _, _ in zip(range(scene.one_of(1000, 0, 1)), stream, strict=False):
        pass
    del stream  # which leaves no thread


@target(8)
def write_rows(scene: Scene) -> None:
    """Answers of odd paths to rows."""
    path = scene.one_of("1.png", *TEXTS)
    logits = torch.randn(3, len(valid.NAMES), generator=torch.Generator().manual_seed(1))
    json_file, csv_file = io.StringIO(), io.StringIO()
    for rows in (JsonLines(json_file), CsvRows(csv_file, 2)):
        rows.write([path] * 3, answers_from(logits, logits.softmax(dim=1), logits, valid.NAMES, 2))
    if not all(line.isprintable() for file in (json_file, csv_file) for line in file.getvalue().split("\n")):
        raise Broken("control characters in rows")


@target(4)
def sweep_grid(scene: Scene) -> None:
    grid = Grid(scene.around("pta"), scene.around({"h": [5.0, 20.0]}))
    grid.require(valid.data())
    store, seeds = ResultStore(scene.folder / "results"), scene.around([1])
    points = list(sweep(store, valid.data(), grid, seeds, stream=Stream(), batch=scene.around(8)))
    sweep_csv(grid, {"made": points})

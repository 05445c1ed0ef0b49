"""Frozen states as matrices and ONNX graphs: their answers are the library's, and they run without torch."""

import io
import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from hf_models import write_hf_clip
from hypothesis import given, settings
from hypothesis import strategies as st
from photos import FASHION
from PIL import Image
from random_clip import random_state
from safetensors.numpy import load
from snippets import python_blocks

import pta as library
from pta.data.features import load_features
from pta.door.images import Preprocessing
from pta.door.images.resize_by_products import ResizeByProducts
from pta.errors import InvalidParameter, StateMismatch
from pta.methods import create_adapter, load_adapter
from pta.models import load_encoder
from pta.models.clip.encoder import ClipEncoder
from pta.models.onnx import graph
from pta.run.export import frozen_head
from pta.run.export.arrays import linear_file
from pta.run.export.frozen_head import FrozenHead
from pta.run.export.onnx_files import frame_file, head_file

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

BOTH = [("pta", {}), ("wpta", {})]
STATES = [
    *BOTH,
    ("pta", {"variant": "paper"}),
    ("pta", {"fusion": "probabilities"}),
    ("pta", {"state_dtype": "float16", "w": 0.5, "anchor": "fixed"}),
    ("pta", {"prior": "local", "gate": "balance", "calibration": "matched"}),
    ("pta", {"gate": "balance"}),
    ("wpta", {"depth": 2}),
    ("wpta", {"prior": "none", "gate": "none", "calibration": "fixed"}),
    ("wpta", {"gate": "none", "min_probability": 0.3}),
]
TORCHLESS = "import sys; sys.modules['torch'] = sys.modules['pta'] = None; exec(sys.stdin.read())"


@pytest.fixture
def animals(pets):
    return load_features(pets)


def learned(animals, method, samples=slice(0, 200), bias=0.0, **parameters):
    own = animals.classifier
    classifier = library.ZeroShotClassifier(own.anchors, own.class_names, own.scale / 4, bias)
    adapter = create_adapter(method, classifier, **parameters)
    adapter.step(animals.samples[samples])
    return adapter


@pytest.mark.parametrize("bias", [0.0, -12.9])
@pytest.mark.parametrize(("method", "parameters"), STATES, ids=str)
def test_a_frozen_head_answers_as_predict(animals, method, parameters, bias):
    skewed = torch.cat([torch.arange(200), torch.tensor([3]).repeat(100)])  # which closes the gate in part
    adapter = learned(animals, method, skewed, bias=bias, **parameters)
    samples = animals.samples
    index, probabilities, logits = FrozenHead(adapter)(samples.features.float() * 3)
    expected = adapter.predict(samples)
    torch.testing.assert_close(logits, expected.float(), atol=1e-4, rtol=0)
    torch.testing.assert_close(probabilities, adapter.probabilities(expected).float(), atol=1e-5, rtol=0)
    assert torch.equal(index, expected.argmax(dim=1))


@pytest.mark.parametrize(("method", "parameters"), BOTH, ids=str)
def test_a_graph_has_names_and_answers_batches_of_any_size(animals, method, parameters):
    adapter = learned(animals, method, **parameters)
    content = head_file(adapter)
    model, session = onnx.load_from_string(content), graph.GraphSession(content)
    onnx.checker.check_model(model)
    assert [(one.domain, one.version) for one in model.opset_import] == [("", graph.OPSET)]
    described = {one.key: json.loads(one.value) for one in model.metadata_props}
    assert described == {"class_names": list(adapter.classifier.class_names), "method": method}
    assert b".py" not in content  # no file of the machine that made it
    expected = adapter.predict(animals.samples)
    for rows in (slice(0, 1), slice(0, 37), slice(None)):
        answers = session.run(animals.samples[rows].features.float().numpy())
        np.testing.assert_allclose(answers["logits"], expected[rows].float(), atol=1e-3)
        labels = [adapter.classifier.class_names[number] for number in expected[rows].argmax(dim=1)]
        assert answers["label"].tolist() == labels


@pytest.mark.parametrize("bias", [0.0, -12.9])
@pytest.mark.parametrize("ending", [".npz", ".safetensors"])
def test_the_released_rule_is_one_matrix(animals, ending, bias):
    adapter = learned(animals, "pta", bias=bias, prior="local")  # which frozen answers do not take
    content = linear_file(adapter, ending)
    if ending == ".npz":
        with np.load(io.BytesIO(content)) as file:
            found = {name: file[name] for name in file.files}
        assert found["classnames"].tolist() == list(adapter.classifier.class_names)
    else:
        about = json.loads(json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]["about"])
        found = load(content) | about
        assert found["class_names"] == list(adapter.classifier.class_names)
    unit = animals.samples.features.float().numpy()
    logits = found["scale"] * unit @ found["matrix"].T + found["bias"]
    np.testing.assert_allclose(logits, adapter.predict(animals.samples), atol=1.4e-4)
    assert found["logit_factor"] == adapter.logit_factor


@pytest.mark.parametrize(
    ("method", "parameters", "reason"),
    [
        ("wpta", {}, "the length of each sample"),
        ("pta", {"variant": "paper"}, "the printed rule"),
        ("pta", {"gate": "balance"}, 'gate="balance"'),
        ("pta", {"calibration": "matched"}, 'calibration="matched"'),
        ("pta", {"offset": "centre"}, 'offset="centre"'),
        ("tda", {}, "a state of tda"),
    ],
)
def test_what_is_not_one_matrix_is_refused_with_the_reason(animals, method, parameters, reason):
    with pytest.raises(StateMismatch, match=reason):
        linear_file(learned(animals, method, **parameters), ".npz")


# -- frames -----------------------------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(
    st.integers(1, 90),
    st.integers(1, 90),
    st.sampled_from(["nearest", "bilinear", "bicubic", "lanczos"]),
    st.sampled_from(["shortest", "square"]),
    st.booleans(),
)
def test_a_frame_is_resized_byte_for_byte_as_pillow_does(height, width, resample, resize, is_grey):
    grey = {"mean": (0.3,), "std": (0.3,)} if is_grey else {}
    preprocess = Preprocessing(size=24, resize=resize, resample=resample, **grey)
    frame = np.random.default_rng(height * width).integers(0, 256, (height, width, 3), dtype=np.uint8)
    found = ResizeByProducts(preprocess, height, width)(torch.from_numpy(frame))
    np.testing.assert_array_equal(found[0].numpy(), preprocess.pixels(Image.fromarray(frame)))


def state_of(encoder, method="pta"):
    names = ["a coat", "a boot", "a shirt"]
    anchors = encoder.encode_texts([f"a photo of {name}." for name in names])
    adapter = create_adapter(method, library.ZeroShotClassifier(anchors, names, encoder.scale, encoder.bias))
    rng = np.random.default_rng(1)
    raw = [encoder.as_raw((share * rng.integers(0, 256, (40, 40, 3))).astype(np.uint8)) for share in rng.random(30)]
    adapter.step(encoder.encode(torch.from_numpy(np.stack(raw))))
    return adapter


def test_a_model_of_transformers_takes_the_resized_picture_if_frames_are_large(tmp_path):
    encoder = load_encoder(f"hf:{write_hf_clip(tmp_path / 'clip')}")
    assert encoder.model.config.vision_config.hidden_act == "quick_gelu"
    made = frame_file(state_of(encoder), encoder, 480, 640)
    assert (made.takes, made.resizes) == ((64, 64, 3), False)


@pytest.mark.extensive
@pytest.mark.parametrize("method", ["pta", "wpta"])
@pytest.mark.parametrize(("kind", "quick_gelu"), [("ViT", True), ("ViT", False), ("RN50", True)])
def test_models_of_openai_are_exported(kind, quick_gelu, method):
    encoder = ClipEncoder(random_state(kind), quick_gelu=quick_gelu).ready()
    adapter = state_of(encoder, method)
    for height, width in ((encoder.preprocess.size, encoder.preprocess.size + 8), (480, 640)):
        frame_file(adapter, encoder, height, width)  # which compares its answers with the library's


# -- the command, and programs without torch --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """States of the packaged model after pictures of clothing, and some of these as features and as a frame."""
    folder = tmp_path_factory.mktemp("shop")
    for method, state in (("wpta", "shop"), ("pta", "plain")):
        clf = library.Classifier("embedded", list(FASHION.class_names), method=method, cache=None)
        pictures = [Image.fromarray(image).convert("RGB") for image in FASHION.images[:60]]
        clf(pictures)
        clf.save(folder / f"{state}.safetensors")
    pictures[7].resize((640, 480), Image.Resampling.NEAREST).save(folder / "frame.png")
    np.save(folder / "features.npy", clf.encoder.encode(clf.encoder.preprocess(pictures[:20])).numpy())
    return folder


@pytest.fixture
def export(pta, shop):
    """`pta state export` in the folder of the states."""
    return lambda *arguments: pta("state", "export", *arguments, cwd=shop)


FORMS = {
    "linear.npz": ("plain", "--to", "linear"),
    "head.onnx": ("shop", "--to", "onnx-head"),
    "camera.onnx": ("shop", "--to", "onnx", "--model", "embedded", "--frame", "640x480"),
}


@pytest.mark.parametrize("name", FORMS)
def test_the_programs_of_the_document_run_without_torch(export, shop, name):
    state, *how = FORMS[name]
    done = export(f"{state}.safetensors", *how, "--out", name, "--replace")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{name}: ")
    program = next(one.text for one in python_blocks() if f'"{name}"' in one.text)
    assert len(program.splitlines()) <= 13
    ran = subprocess.run(
        [sys.executable, "-c", TORCHLESS], input=program, cwd=shop, capture_output=True, text=True, check=True
    )
    lines = [line.rsplit(" ", 1) for line in ran.stdout.splitlines()]
    adapter = load_adapter(shop / f"{state}.safetensors")
    features = torch.from_numpy(np.load(shop / "features.npy"))
    if name == "camera.onnx":
        encoder = load_encoder("embedded")
        features = encoder.encode(encoder.preprocess(Image.open(shop / "frame.png")))
    probabilities, numbers = adapter.probabilities(adapter.predict(features)).max(dim=1)
    assert [label for label, _ in lines] == [adapter.classifier.class_names[number] for number in numbers]
    assert [float(one) for _, one in lines] == pytest.approx(probabilities.tolist(), abs=1e-4)


def test_an_export_that_answers_otherwise_is_not_written(export, shop, monkeypatch):
    monkeypatch.setattr(frozen_head, "LARGEST_DIFFERENCE", 1e-12)
    for to, out in (("linear", "wrong.npz"), ("onnx-head", "wrong.onnx")):
        done = export("plain.safetensors", "--to", to, "--out", out)
        assert done.returncode == 1
        assert "answers otherwise than the library" in done.stderr
        assert not (shop / out).exists()


def test_a_graph_that_one_file_cannot_hold_is_refused(animals, monkeypatch):
    monkeypatch.setattr(graph, "_LARGEST", 100)
    with pytest.raises(InvalidParameter, match="GiB of weights do not fit into one ONNX file"):
        head_file(learned(animals, "pta"))


def test_whoever_exports_a_state_that_has_learned_too_little_is_warned(export, pets, shop):
    adapter = learned(load_features(pets), "pta", slice(0, 8))
    adapter.save(shop / "early.safetensors")
    done = export("early.safetensors", "--to", "linear", "--out", "early.npz", "--replace")
    assert done.returncode == 0
    assert "samples per class" in done.stderr
    assert "use wpta" in done.stderr


def test_mistakes_are_refused_in_one_line_and_nothing_is_written(export, shop, pets, monkeypatch):
    animals = load_features(pets)
    create_adapter("pta", animals.classifier).save(shop / "new.safetensors")
    learned(animals, "tda").save(shop / "tda.safetensors")
    learned(animals, "wpta").save(shop / "pets.safetensors")
    (shop / "there.onnx").write_bytes(b"mine")
    before = {path.name: path.read_bytes() for path in shop.iterdir()}
    monkeypatch.delenv("PTA_MODEL", raising=False)
    tower = ("--to", "onnx", "--model", "embedded", "--out", "x.onnx")
    for arguments, complaint in (
        (["plain", "--to", "linear", "--out", "x.onnx"], "must end in .npz or .safetensors"),
        (["plain", "--to", "onnx-head", "--out", "x.npz"], "must end in .onnx"),
        (["plain", "--to", "onnx-head", "--out", "there.onnx"], "exists; --replace overwrites it"),
        (["plain", "--to", "tflite", "--out", "x.onnx"], "--to"),
        (["plain", "--to", "linear", "--frame", "640x480", "--out", "x.npz"], "belong to --to onnx"),
        (["plain", *tower], "--frame, e.g. 640x480"),
        (["plain", "--to", "onnx", "--frame", "640x480", "--out", "x.onnx"], "needs --model MODEL"),
        (["plain", *tower, "--frame", "640"], "expected WIDTHxHEIGHT"),
        (["plain", *tower, "--frame", "0x480"], "expected WIDTHxHEIGHT"),
        (["plain", *tower, "--frame", "99999x99999"], "of at most 33,177,600 pixels"),
        (["new", "--to", "linear", "--out", "x.npz"], "has learned nothing"),
        (["tda", "--to", "onnx-head", "--out", "x.onnx"], "a state of tda"),
        (["tda", *tower, "--frame", "640x480"], "a state of tda"),
        (["pets", *tower, "--frame", "640x480"], "features of 128 dimensions, the state is of 16"),
        (["shop", "--to", "linear", "--out", "x.npz"], "use --to onnx-head"),
        (["nowhere", "--to", "linear", "--out", "x.npz"], "no such state file"),
    ):
        state, *rest = arguments
        done = export(f"{state}.safetensors", *rest)
        assert (done.returncode, done.stdout) == (2, ""), arguments
        assert complaint in done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
    monkeypatch.setattr(graph, "find_spec", lambda name: None)
    done = export("plain.safetensors", "--to", "onnx-head", "--out", "x.onnx")
    assert done.returncode == 2
    assert "ONNX needs onnx, onnxscript, onnxruntime; run pip install 'pta-vlm[onnx]'" in done.stderr
    assert {path.name: path.read_bytes() for path in shop.iterdir()} == before


def test_a_model_whose_texts_are_not_those_of_the_state_is_refused(export, shop):
    adapter = load_adapter(shop / "shop.safetensors")
    turned = library.ZeroShotClassifier(adapter.classifier.anchors.flip(1), adapter.classifier.class_names)
    other = create_adapter("pta", turned)
    other.step(turned.anchors.repeat(20, 1))
    other.save(shop / "other.safetensors")
    done = export("other.safetensors", "--to", "onnx", "--model", "embedded", "--frame", "64x64", "--out", "x.onnx")
    assert done.returncode == 2
    assert "give the model that it learned with" in done.stderr

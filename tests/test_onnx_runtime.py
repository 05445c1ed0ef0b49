"""Image encoders in ONNX Runtime: torch's features, a graph that is kept in private and made anew if it is damaged."""

import os
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import torch
from photos import FASHION, write_photos
from PIL import Image

import pta as library
from pta.data.features import load_features, read_about
from pta.data.open import open_samples
from pta.door import private_cache as cache_module
from pta.errors import InvalidParameter, MachineFailure, MissingPackage, StateMismatch
from pta.methods.state_file import read_stream
from pta.models import load_encoder
from pta.models.load import check_model
from pta.models.onnx import encoder as module
from pta.models.onnx import graph
from pta.run.extract import extract
from pta.run.reading import Reading

for package in ("onnx", "onnxscript", "onnxruntime"):
    pytest.importorskip(package)

COUNTS = (1, 2, 7)
SECOND_PROCESS = """
import sys
from pathlib import Path
from pta.door import private_cache
from pta.models import load_encoder
from pta.models.onnx import encoder

check, top = private_cache._made_safe, Path(sys.argv[1])
private_cache._made_safe = lambda folder: top.is_relative_to(folder) or check(folder)
encoder._exported = None  # so that calling it fails
print(load_encoder("embedded", runtime="onnx").runtime)
"""


@pytest.fixture(scope="module", autouse=True)
def kept(tmp_path_factory):
    """The user's cache, in a folder that counts as safe from others, for all tests here."""
    top, check = tmp_path_factory.mktemp("user"), cache_module._made_safe
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cache_module, "_made_safe", lambda folder: top.is_relative_to(folder) or check(folder))
        patched.setenv("PTA_CACHE", str(top / "pta"))
        yield top / "pta" / "onnx"


@pytest.fixture(scope="module")
def encoder(kept):
    return load_encoder("embedded", runtime="onnx")


@pytest.fixture
def exports(monkeypatch):
    """How many graphs were exported."""
    made = []
    monkeypatch.setattr(module, "_exported", lambda encoder, export=module._exported: made.append(1) or export(encoder))
    return made


def pictures(encoder, count):
    return torch.from_numpy(np.stack([encoder.as_raw(Image.fromarray(one)) for one in FASHION.images[:count]]))


@pytest.mark.parametrize("kind", ["embedded", "clip", "clip resnet", "clip of transformers", "siglip2"])
def test_features_and_texts_are_those_of_torch_from_bytes_and_from_normalised_pixels(encoders, kind):
    by_torch = encoders[kind]
    by_onnx = module.OnnxEncoder(by_torch)
    for count in COUNTS:
        raw = pictures(by_torch, count)
        for given in (raw, by_torch.preprocess.normalise(raw)):
            expected, found = by_torch.encode(given), by_onnx.encode(given)
            assert (found - expected).abs().max() <= module.LARGEST_DIFFERENCE
            assert (found * expected).sum(dim=1).min() >= 0.99999
    assert not len(by_onnx.encode(raw[:0]))
    texts = ["a photo of a boot.", "a bag"]
    assert torch.equal(by_onnx.encode_texts(texts), by_torch.encode_texts(texts))
    tuned = [one.prompt_tower(["boot", "bag"]) for one in (by_onnx, by_torch)]
    assert torch.equal(*(one.read(one.context[None]) for one in tuned))
    assert (by_onnx.fingerprint, by_onnx.preparation) == (by_torch.fingerprint, by_torch.preparation)
    assert (by_onnx.runtime, by_torch.runtime) == ("onnx", "torch")


def test_a_second_process_takes_the_graph_from_the_cache(encoder, kept):
    line = [sys.executable, "-c", SECOND_PROCESS, str(kept)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert (done.stdout, done.returncode) == ("onnx\n", 0), done.stderr


@pytest.mark.parametrize("damage", ["cut", "one bit", "empty", "a folder"])
def test_a_damaged_graph_is_made_again(encoder, kept, exports, monkeypatch, damage):
    name = f"{module._key(encoder.model)}.graph"
    whole = (kept / name).read_bytes()
    monkeypatch.setattr(module, "_exported", lambda encoder: exports.append(1) or whole[32:])
    wrong = {"cut": whole[:-1], "one bit": whole[:-1] + bytes([whole[-1] ^ 1]), "empty": b""}
    (kept / name).unlink()
    if damage == "a folder":
        (kept / name).mkdir()
        with pytest.warns(UserWarning, match=r"it is not a file; the image tower was exported for this process alone"):
            module.OnnxEncoder(encoder.model)
        (kept / name).rmdir()
    else:
        (kept / name).write_bytes(wrong[damage])
    called = []
    module.OnnxEncoder(encoder.model, lambda: called.append(1))
    assert len(called) == 1
    assert (kept / name).read_bytes() == whole
    count = len(exports)
    module.OnnxEncoder(encoder.model, pytest.fail)
    assert len(exports) == count


def test_a_folder_that_others_can_write_to_is_neither_read_nor_written(encoder, kept, exports):
    before = {path: path.read_bytes() for path in kept.iterdir()}
    kept.chmod(0o777)
    try:
        with pytest.warns(UserWarning, match="is not a folder that this user alone can write to; the image"):
            module.OnnxEncoder(encoder.model)
    finally:
        kept.chmod(0o700)
    assert len(exports) == 1
    assert {path: path.read_bytes() for path in kept.iterdir()} == before


def test_another_model_has_another_graph(encoder, encoders):
    assert module._key(encoder.model) != module._key(encoders["clip"])


def test_a_graph_with_other_features_is_refused(encoder, encoders, monkeypatch):
    run = graph.GraphSession.run
    monkeypatch.setattr(
        graph.GraphSession, "run", lambda own, given: {"features": np.roll(run(own, given)["features"], 1, axis=1)}
    )
    with pytest.raises(MachineFailure, match=r"its features differ from torch's by .* more than 1e-05; use --runtime"):
        module.OnnxEncoder(encoder.model)


def test_a_model_that_cannot_be_exported_is_refused(encoder, monkeypatch):
    monkeypatch.setattr(module, "_kept_graph", lambda *given: b"no graph")
    with pytest.raises(MachineFailure, match=r"ONNX Runtime cannot run embedded: .*; use --runtime torch"):
        module.OnnxEncoder(encoder.model)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"dtype": "float16"}, "the runtime onnx runs in float32, not in float16"),
        ({"device": "meta"}, "the runtime onnx is for a CPU, and the device is meta"),
        ({"name": "embedded-points"}, "the runtime onnx is for images; this model reads clouds"),
        ({"runtime": "onx"}, "runtime='onx' is not a choice; did you mean 'onnx'"),
    ],
)
def test_what_onnx_runtime_does_not_run_is_refused_before_loading(monkeypatch, given, complaint):
    monkeypatch.setattr("pta.models.load.find_device", torch.device)
    with pytest.raises(InvalidParameter, match=complaint):
        check_model(**{"name": "hf:x", "runtime": "onnx", **given})


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(graph, "find_spec", lambda name: None)
    with pytest.raises(MissingPackage, match=r"ONNX needs onnx, onnxscript, onnxruntime; run pip install .*\[onnx\]"):
        check_model("embedded", runtime="onnx")
    check_model("embedded")


@pytest.mark.parametrize("method", ["tca", "gs-bias", "panda"])
def test_methods_that_need_the_inside_of_the_image_tower_are_refused(encoder, method):
    chosen = {"method": "pta", "offset": "panda"} if method == "panda" else {"method": method}
    with pytest.raises(InvalidParameter, match="no patches or blocks of its image tower"):
        library.Classifier(encoder, ["boot", "bag"], templates=["{}"], cache=None, **chosen)


def test_a_loaded_model_keeps_its_runtime(encoder):
    make = partial(library.Classifier, classes=["boot", "bag"], templates=["{}"], cache=None)
    assert make(encoder).encoder is make(encoder, runtime="onnx").encoder is encoder
    with pytest.raises(InvalidParameter, match=r"the model is loaded already; give its name, or load_encoder\("):
        make(encoder.model, runtime="onnx")


def test_a_classifier_answers_as_with_torch(kept):
    given = [Image.fromarray(one) for one in FASHION.images[:30]]
    by_torch, by_onnx = (
        library.Classifier("embedded", FASHION.class_names, cache=None, runtime=runtime)(given)
        for runtime in ("torch", "onnx")
    )
    assert [one.label for one in by_onnx] == [one.label for one in by_torch]


def test_feature_files_name_the_runtime_and_are_not_mixed(encoder, tmp_path):
    write_photos(tmp_path / "photos", 12)
    samples, out = open_samples(tmp_path / "photos"), tmp_path / "f.safetensors"
    classifier = library.Classifier(encoder, samples.class_names, templates=["{}"], cache=None).classifier
    make = partial(extract, samples, classifier=classifier, out=out, reading=Reading(batch=4))
    make(encoder=encoder)
    assert read_about(out)["images"]["runtime"] == load_features(out).runtime == "onnx"
    assert make(encoder=encoder).encoded == 0
    with pytest.raises(StateMismatch, match=r"features made by onnx, not by torch \(see --runtime\)"):
        make(encoder=encoder.model)
    make(encoder=encoder.model, replace=True)
    assert "runtime" not in read_about(out)["images"]
    assert load_features(out).runtime == ""


def test_the_command_answers_as_with_torch_and_says_what_made_a_state(pta, tmp_path, kept):
    write_photos(tmp_path / "photos", 30)
    names = ",".join(FASHION.class_names)
    fixed = ("predict", tmp_path / "photos", "--classes", names, "--model", "embedded", "--device", "cpu")
    answers = {}
    for runtime in ("torch", "onnx"):
        done = pta(*fixed, "--runtime", runtime, "--state", tmp_path / f"{runtime}.safetensors")
        assert done.returncode == 0, done.stderr
        answers[runtime] = [line.split(",")[:2] for line in done.stdout.splitlines()]
        assert read_stream(tmp_path / f"{runtime}.safetensors")["runtime"] == runtime
    assert answers["onnx"] == answers["torch"]
    assert len(answers["onnx"]) == 30
    done = pta(*fixed, "--state", tmp_path / "onnx.safetensors")
    assert "was learned from features made by onnx; now torch makes them" in done.stderr
    assert read_stream(tmp_path / "onnx.safetensors")["runtime"] == "onnx and torch"
    done = pta(*fixed, "--runtime", "onnx", "--cluster", "local", "--out", tmp_path / "folder")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "--runtime onnx cannot be used with --cluster" in done.stderr


def test_extract_runs_in_onnx_runtime_and_refuses_patches(pta, tmp_path, kept):
    write_photos(tmp_path / "photos", 12)
    fixed = ("--model", "embedded", "--device", "cpu", "--runtime", "onnx")
    done = pta("extract", tmp_path / "photos", *fixed, "--out", tmp_path / "f.safetensors")
    assert done.returncode == 0, done.stderr
    assert load_features(tmp_path / "f.safetensors").runtime == "onnx"
    done = pta("extract", tmp_path / "photos", *fixed, "--patches", "--out", tmp_path / "p.safetensors")
    assert (done.returncode, done.stderr.splitlines()[-1].count("use --runtime torch")) == (2, 1)


def test_a_watched_region_says_what_made_its_state(pta, tmp_path, kept):
    pytest.importorskip("av", reason="PyAV is not installed")
    from videos import fashion_frames, write_video

    clip = write_video(tmp_path / "clip.mp4", fashion_frames(["ankle boot", "shirt"], 12))
    fixed = ("watch", clip, "--classes", "ankle boot,shirt", "--model", "embedded", "--device", "cpu")
    for runtime, said in (("onnx", "onnx"), ("torch", "onnx and torch")):
        done = pta(*fixed, "--runtime", runtime, "--state", tmp_path / "states")
        assert done.returncode == 0, done.stderr
        assert read_stream(tmp_path / "states" / "camera.safetensors")["runtime"] == said

"""A modality that the package does not know goes from files to answers, and its plugins are found when installed."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import signals
import torch
from photos import write_photos
from signals import NAMES, SIGNALS, SignalEncoder, write_signals

import pta
from pta.data.features import load_features
from pta.data.open import find_samples, open_samples
from pta.data.prompts import build_classifier
from pta.errors import InvalidParameter, UnavailableModel, UnreadableFile, UnreadableSample
from pta.models import EmbeddedEncoder, load_encoder
from pta.run.extract import extract
from pta.run.predict import predict_stream
from pta.run.reading import Reading, Views

TEMPLATES = ("the sound of a {}.",)


@pytest.fixture
def encoder():
    return SignalEncoder().ready()


@pytest.fixture
def folder(tmp_path):
    return write_signals(tmp_path / "sounds")


def extracted(samples, encoder, out, *reading, **how):
    return extract(samples, encoder, build_classifier(encoder, samples.class_names, TEMPLATES), out, *reading, **how)


@pytest.fixture
def features(encoder, folder, tmp_path):
    """A feature file with raw samples, made from the folder."""
    samples = open_samples(folder, modality=encoder.modality)
    return extracted(samples, encoder, tmp_path / "f.safetensors", Reading(batch=5, raw=True)).path


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package with a method, an encoder and a source, as pip would leave it, and what else it says it has."""
    site = tmp_path / "site"
    about = site / "signals_for_pta-1.0.dist-info"
    about.mkdir(parents=True)
    shutil.copy(signals.__file__, site / "signals_for_pta.py")
    (site / "wrong_for_pta.py").write_text("def nothing(*given, **named): pass")
    (site / "broken_for_pta.py").write_text("raise RuntimeError('no licence\\nfor this machine')")
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: signals-for-pta\nVersion: 1.0\n")
    declared = {
        "pta.methods": ("nearest = signals_for_pta:Nearest", "broken = broken_for_pta:Method"),
        "pta.encoders": ("signals = signals_for_pta:load_signals", "broken = broken_for_pta:load"),
        "pta.sources": ("waves = signals_for_pta:open_waves", "broken = broken_for_pta:open"),
    }
    groups = [[f"[{group}]", *lines, "wrong = wrong_for_pta:nothing"] for group, lines in declared.items()]
    (about / "entry_points.txt").write_text("\n".join(line for group in groups for line in group))
    monkeypatch.syspath_prepend(site)


# -- files to features -------------------------------------------------------------------------------------------------


def test_files_become_features_as_one_by_one_by_hand(encoder, folder, features):
    data, files = load_features(features), sorted(folder.rglob("*.sig"))
    raw = torch.from_numpy(np.stack([encoder.prepare(file.read_bytes()) for file in files]))
    assert torch.equal(data.samples.raw, raw)
    torch.testing.assert_close(data.samples.features, encoder.encode(raw))
    assert data.classifier.class_names == ("click", "hiss", "hum")
    assert [data.classifier.class_names[label] for label in data.labels] == [file.parent.name for file in files]


def test_what_cannot_be_read_is_told_or_skipped(encoder, folder, tmp_path):
    (folder / "hum" / "00.sig").write_text("1 2 three")
    call = (open_samples(folder, modality=SIGNALS), encoder, tmp_path / "f.safetensors")
    with pytest.raises(UnreadableSample, match=r"hum/00\.sig is no signal of eight numbers; use --on-error skip"):
        extracted(*call)
    assert extracted(*call, on_error="skip", shard=1).samples == 11


@pytest.mark.parametrize("reading", [{"views": Views(4)}, {"fast_decode": True}])
def test_options_of_images_are_refused_before_anything_is_read(reading, encoder, folder, tmp_path):
    samples = open_samples(folder, modality=SIGNALS)
    with pytest.raises(InvalidParameter, match=r"signal projection reads signals, for which pta has no "):
        extracted(samples, encoder, tmp_path / "f.safetensors", Reading(**reading), on_error="skip")


def test_a_model_of_another_modality_is_refused(encoder, folder, tmp_path):
    write_photos(tmp_path / "photos", 3)
    with pytest.raises(UnreadableFile, match=r"photos holds no signals \(\.sig\)"):
        open_samples(tmp_path / "photos", modality=encoder.modality)
    with pytest.raises(UnreadableFile, match=r"no images in .*sounds"):
        find_samples([folder], EmbeddedEncoder.modality)
    images = open_samples("fashion/clean", modality=encoder.modality)
    with pytest.raises(InvalidParameter, match=r"fashion/clean holds images, but signal projection reads signals"):
        extracted(images, encoder, tmp_path / "f.safetensors")


# -- files to answers --------------------------------------------------------------------------------------------------


def test_a_classifier_takes_paths_and_bytes_of_any_modality(encoder, folder):
    classifier, stream = (pta.Classifier(encoder, NAMES, templates=TEMPLATES, cache=None) for _ in range(2))
    files = find_samples([folder], encoder.modality)
    one_by_one = [classifier(file.read() if at % 2 else file.path) for at, file in enumerate(files)]
    assert [answer.label for answer in one_by_one] == [file.path.parent.name for file in files]
    streamed = [
        pair
        for part in predict_stream(stream, files, Reading(batch=5))
        for pair in zip(part.answered, part.answers, strict=True)
    ]
    for answer, (key, expected) in zip(one_by_one, streamed, strict=True):
        assert (Path(key).parent.name, answer.label) == (expected.label, expected.label)
        assert answer.probability == pytest.approx(expected.probability, abs=1e-5)
    with pytest.raises(UnreadableSample, match="expected a path or bytes of a signal, got int"):
        classifier(7)


def test_a_text_tower_without_embeddings_has_no_prompt_tower(encoder):
    with pytest.raises(InvalidParameter, match="takes texts only"):
        encoder.prompt_tower(NAMES)


# -- what other packages add -------------------------------------------------------------------------------------------


def test_an_installed_package_adds_a_method_a_model_and_a_source(installed, folder, tmp_path):
    assert "nearest" in pta.list_adapters()
    encoder, samples = load_encoder("signals:any"), open_samples(f"waves{folder}")
    assert (encoder.fingerprint, len(samples)) == (SignalEncoder().ready().fingerprint, 12)
    data = load_features(extracted(samples, encoder, tmp_path / "f.safetensors").path)
    adapter = pta.create_adapter("nearest", data.classifier, rate=0.5)
    assert adapter.step(data.samples).argmax(dim=1).tolist() == data.labels.tolist()
    assert "a_clone_is_independent" in pta.check_adapter(pta.methods.adapter_class("nearest"))


def test_the_command_knows_what_was_installed(installed, pta, features, folder, tmp_path):
    listed = pta("methods", "--json", "-")
    assert "nearest" in listed.stdout, listed.stderr
    assert "broken (broken_for_pta:Method) cannot be imported: no licence" in listed.stderr
    out = tmp_path / "g.safetensors"
    done = pta("extract", f"waves{folder}", "--model", "signals", "--templates", *TEMPLATES, "--out", out)
    assert done.returncode == 0, done.stderr
    done = pta("eval", "--features", out, "--method", "nearest", "--json", tmp_path / "o.json")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "o.json").read_text())


BROKEN = "broken (broken_for_pta:{}) cannot be imported: no licence"


@pytest.mark.parametrize(
    ("call", "name", "mistake", "complaint"),
    [
        (pta.methods.adapter_class, "broken", InvalidParameter, BROKEN.format("Method")),
        (load_encoder, "broken:x", UnavailableModel, BROKEN.format("load")),
        (open_samples, "broken/x", UnreadableFile, BROKEN.format("open")),
        (pta.methods.adapter_class, "wrong", InvalidParameter, "must be a subclass"),
        (load_encoder, "wrong", UnavailableModel, "does not return a pta.models.Encoder"),
        (open_samples, "wrong/x", UnreadableFile, "does not return a pta.data.SampleSet"),
        (load_encoder, "none", UnavailableModel, "no model is called 'none'; models are embedded "),
        (load_encoder, "none", UnavailableModel, ", signals:…"),
    ],
)
@pytest.mark.usefixtures("installed")
def test_a_plugin_that_is_broken_wrong_or_not_there_is_one_line(call, name, mistake, complaint):
    with pytest.raises(mistake) as refusal:
        call(name)
    assert complaint in str(refusal.value)
    assert "\n" not in str(refusal.value)

"""Files to rows and features on a GPU: compiled or not, decoded here or there, the answers of the host."""

import pytest
import torch
from openai_checkpoints import random_state
from photos import write_photos

import pta
from pta.data.open import find_samples, open_samples
from pta.door.images.decoders import available_decoder
from pta.models.clip.encoder import ClipEncoder
from pta.run.extract import extract
from pta.run.gpu import encoder_program
from pta.run.predict import predict_stream
from pta.run.reading import Reading

if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)

NAMES = ("boot", "bag", "coat", "dress")
DECODERS = ["pillow", *(["gpu"] if available_decoder(torch.device("cuda")) else [])]
MARGIN = 2e-3  # of the two best probabilities, from which on a label must not change


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    for number, path in enumerate(path for path, _ in write_photos(folder, 60)):
        if number in (7, 23):
            path.write_bytes(path.read_bytes()[:-300])
    return folder


@pytest.fixture(autouse=True)
def compiled_early(monkeypatch):
    monkeypatch.setattr(encoder_program, "COMPILED_FROM", 16)


def encoder(device):
    return ClipEncoder(random_state("ViT"), quick_gelu=True).ready(device)


def rows(photos, device, **how):
    classifier = pta.Classifier(encoder(device), NAMES, templates=["a photo of a {}."], cache=None)
    parts = predict_stream(
        classifier, find_samples([photos]), Reading(batch=8, **how), top=2, on_error="skip", total=60
    )
    return [one for part in parts for one in zip(part.answered, part.answers, strict=True)]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("decode", DECODERS)
def test_rows_are_those_of_the_host(photos, decode, compiled):
    expected, given = rows(photos, "cpu"), rows(photos, "cuda", decode=decode, compiled=compiled)
    assert [key for key, _ in given] == [key for key, _ in expected]
    for (_, answer), (_, host) in zip(given, expected, strict=True):
        assert answer.probability == pytest.approx(host.probability, abs=MARGIN if decode == "pillow" else 0.05)
        if host.top[0][1] - host.top[1][1] > (MARGIN if decode == "pillow" else 0.1):
            assert answer.label == host.label


@pytest.mark.parametrize("decode", DECODERS)
def test_a_resumed_extraction_gives_the_same_bytes(photos, tmp_path, decode):
    samples, model = open_samples(photos), encoder("cuda")
    classifier = pta.Classifier(model, samples.class_names, templates=["{}"], cache=None).classifier
    reading, how = Reading(batch=8, decode=decode), {"shard": 16, "on_error": "skip"}
    extract(samples, model, classifier, tmp_path / "whole.safetensors", reading, **how)

    def stop(done):
        if done >= 32:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        extract(samples, model, classifier, tmp_path / "cut.safetensors", reading, on_progress=stop, **how)
    done = extract(samples, model, classifier, tmp_path / "cut.safetensors", reading, **how)
    assert done.encoded < 60
    assert (tmp_path / "cut.safetensors").read_bytes() == (tmp_path / "whole.safetensors").read_bytes()


@pytest.mark.parametrize("decode", DECODERS)
def test_a_classifier_answers_as_on_the_host_before_and_after_it_was_compiled(photos, decode):
    paths = [path for number, path in enumerate(sorted(photos.rglob("*.jpg"))) if number not in (7, 23)][:40]
    host = pta.Classifier(encoder("cpu"), NAMES, templates=["{}"], cache=None)
    here = pta.Classifier(encoder("cuda"), NAMES, templates=["{}"], cache=None, decode=decode)
    for path in paths:
        expected, answer = host(path), here(path)
        assert answer.probability == pytest.approx(expected.probability, abs=MARGIN if decode == "pillow" else 0.05)

"""Files to answers and features by Pillow and by a GPU's decoder: the same order, the same verdicts, the same record.

The decoder stands in for a GPU's and gives Pillow's pixels, so that nothing else may differ.
"""

import pickle
import sys
from functools import partial

import numpy as np
import pytest
import torch
from openai_checkpoints import random_state
from photos import write_photos
from PIL import Image
from stand_in_decoder import LenientDecoder

import pta
from pta.core.modality import CLOUDS, IMAGES
from pta.data.features import load_features, read_about
from pta.data.open import find_samples, open_samples
from pta.errors import InvalidParameter, StateMismatch, UnreadableSample
from pta.methods.state_file import read_stream
from pta.models.clip.encoder import ClipEncoder
from pta.run import encoding
from pta.run import reading as decoding
from pta.run.extract import extract
from pta.run.feed import batches as feed
from pta.run.predict import predict_stream
from pta.run.reading import Reading, Views, open_decoding, start_early

NAMES = ("boot", "bag", "coat")


@pytest.fixture(scope="module")
def encoder():
    return ClipEncoder(random_state("ViT"), quick_gelu=True).ready()


@pytest.fixture
def photos(tmp_path):
    """Twelve JPEG files, of which one is cut and one is grey, a PNG file and a file of text."""
    paths = [path for path, _ in write_photos(tmp_path / "photos", 12)]
    paths[3].write_bytes(paths[3].read_bytes()[:-200])
    Image.open(paths[5]).convert("L").save(paths[5])
    Image.open(paths[7]).save(paths[7].with_suffix(".png"))
    paths[8].write_text("no picture")
    return tmp_path / "photos"


@pytest.fixture
def by_gpu(monkeypatch):
    """A decoder that is there on every device, and batches that overlap as on a GPU."""
    decoder = LenientDecoder()
    monkeypatch.setattr(decoding, "available_decoder", lambda device: decoder)
    staged = encoding.in_stages
    monkeypatch.setattr(encoding, "in_stages", lambda batches, decode, begin, ahead: staged(batches, decode, begin, 1))
    return decoder


def answers(encoder, samples, reading, **how):
    classifier = pta.Classifier(encoder, NAMES, templates=["{}"], cache=None)
    for part in predict_stream(classifier, samples, reading, **how):
        yield part.keys, part.answered, [(one.label, round(one.probability, 4)) for one in part.answers], part.failures


def test_skipped_files_order_and_answers_are_the_same_on_both_ways(encoder, photos, by_gpu):
    samples = find_samples([photos])
    host, gpu = (
        list(answers(encoder, samples, Reading(batch=4, decode=decode), on_error="skip"))
        for decode in ("pillow", "gpu")
    )
    assert [[*part[:3], list(map(str, part[3]))] for part in gpu] == [
        [*part[:3], list(map(str, part[3]))] for part in host
    ]
    assert sum(by_gpu.batches) == 10  # the cut one, the text and the PNG went through Pillow
    assert sum(len(part[3]) for part in gpu) == 2


@pytest.mark.parametrize("decode", ["pillow", "gpu"])
def test_files_are_prepared_in_another_process_as_here(encoder, photos, by_gpu, decode):
    prepare = encoding._PrepareFile(
        open_decoding(encoder, Reading(decode=decode)).prepare, encoder.preparer(), Reading()
    )
    elsewhere = pickle.loads(pickle.dumps(prepare))
    for item in enumerate(find_samples([photos])):
        outcomes = [feed._prepare_all(one, [item]) for one in (prepare, elsewhere)]
        assert str(outcomes[0]) == str(outcomes[1])


def test_a_gpu_resizes_what_pillow_has_decoded_to_the_same_bytes(encoder, photos, monkeypatch):
    monkeypatch.setattr(decoding, "_MOST_HANDED_ON", 96 * 80)
    large = photos / "large.png"
    Image.open(sorted(photos.rglob("*.jpg"))[0]).resize((200, 150)).save(large)
    reading = Reading(batch=4)
    there, here = decoding._ResizedOnGpu(encoder, reading), open_decoding(encoder, reading)
    given = [large, *sorted(photos.rglob("*.jpg"))[:3], Image.new("L", (40, 30), 7)]
    (pixels, errors), (expected, _) = (
        one.finish([one.prepare(each, "x", number) for number, each in enumerate(given)]) for one in (there, here)
    )
    assert (pixels.numpy() == np.stack(expected)).all()
    assert errors == [None] * 5
    with pytest.raises(UnreadableSample, match="not an image that pta reads"):
        there.prepare(b"no picture", "x", 0)


def test_both_ways_give_out_what_came_before_a_bad_file_and_stop(encoder, photos, by_gpu):
    samples, given = find_samples([photos]), {}
    for decode in ("pillow", "gpu"):
        given[decode] = []
        with pytest.raises(UnreadableSample) as stopped:
            given[decode].extend(part[1:3] for part in answers(encoder, samples, Reading(batch=4, decode=decode)))
        given[decode].append(str(stopped.value))
    assert given["gpu"] == given["pillow"]


def test_a_file_that_only_the_gpu_refuses_is_read_by_pillow(encoder, photos, by_gpu):
    by_gpu.refuses = lambda content: len(content) % 2
    samples = find_samples([photos])
    host, gpu = (
        list(answers(encoder, samples, Reading(batch=4, decode=decode), on_error="skip"))
        for decode in ("pillow", "gpu")
    )
    assert [part[:3] for part in gpu] == [part[:3] for part in host]


def test_a_classifier_takes_pictures_in_every_form_on_both_ways(encoder, photos, by_gpu):
    path = sorted(photos.rglob("*.jpg"))[0]
    forms = [path, path.read_bytes(), Image.open(path)]
    make = partial(pta.Classifier, encoder, NAMES, templates=["{}"], cache=None)
    expected = make(decode="pillow")(forms, learn=False)
    for answer, one in zip(make()(forms, learn=False), expected, strict=True):
        assert (answer.label, round(answer.probability, 5)) == (one.label, round(one.probability, 5))
    assert by_gpu.batches == [2]
    with pytest.raises(UnreadableSample, match="not an image that pta reads"):
        make()(b"no picture")


def test_features_name_their_decoder_and_are_not_mixed(encoder, tmp_path, by_gpu):
    write_photos(tmp_path / "photos", 12)
    samples, out = open_samples(tmp_path / "photos"), tmp_path / "f.safetensors"
    classifier = pta.Classifier(encoder, samples.class_names, templates=["{}"], cache=None).classifier
    make = partial(extract, samples, encoder, classifier, out)
    done = make(Reading(batch=4))
    assert done.decoded == "decoded by stand-in 1.0: 12 pictures; by Pillow: 0"
    assert read_about(out)["images"]["decoder"] == load_features(out).decoder == "stand-in 1.0"
    assert make(Reading(batch=4, decode="gpu")).encoded == 0
    with pytest.raises(StateMismatch, match=r"pictures decoded by stand-in 1\.0, not by pillow \(see --decode\)"):
        make(Reading(batch=4, decode="pillow"))
    assert make(Reading(batch=4, decode="pillow"), replace=True).decoded is None
    assert "decoder" not in read_about(out)["images"]


@pytest.mark.parametrize(
    ("how", "complaint"),
    [
        ({"fast_decode": True}, r"--fast-decode.* made by Pillow"),
        ({"views": Views(4)}, "views are made by Pillow"),
    ],
)
def test_what_a_gpu_does_not_decode_is_refused_or_left_to_pillow(encoder, by_gpu, how, complaint):
    with pytest.raises(InvalidParameter, match=complaint):
        Reading(decode="gpu", **how)
    assert open_decoding(encoder, Reading(**how)).name == "pillow"


@pytest.mark.parametrize(
    ("how", "modality", "device", "expected", "started"),
    [
        ({}, IMAGES, "cuda", 5_000, ["cuda"]),
        ({"decode": "gpu", "processes": None}, IMAGES, "cuda:1", 5_000, ["cuda:1", "processes"]),
        ({"decode": "pillow", "processes": None}, IMAGES, "cuda", 5_000, ["processes"]),
        ({"decode": "pillow", "processes": None}, IMAGES, "cuda", 50, []),
        ({"decode": "pillow", "processes": None}, IMAGES, "cuda", None, []),
        ({"views": Views(4)}, IMAGES, "cuda", 5_000, []),
        ({"processes": True}, CLOUDS, "cuda", 5_000, []),
        ({"processes": None}, IMAGES, "cpu", 5_000, []),
        ({"processes": True}, IMAGES, "cpu", 1, ["processes"] if sys.platform == "linux" else []),
    ],
)
def test_what_may_be_asked_for_starts_while_the_model_is_loaded(monkeypatch, how, modality, device, expected, started):
    begun = []
    monkeypatch.setattr(decoding, "opening_decoder", lambda device: begun.append(str(device)))
    monkeypatch.setattr(decoding, "start_server", lambda: begun.append("processes"))
    start_early(Reading(**how), modality, torch.device(device), expected)
    assert begun == started


def test_a_gpu_that_is_not_there_is_said_to_be_missing(encoder):
    if torch.cuda.is_available():
        pytest.skip("has a GPU")
    with pytest.raises(InvalidParameter, match="--decode gpu needs an image model on a GPU; this one reads images on"):
        open_decoding(encoder, Reading(decode="gpu"))
    assert open_decoding(encoder, Reading()).name == "pillow"


def test_a_state_of_another_decoder_is_gone_on_with_only_if_decode_says_so(pta, tmp_path):
    write_photos(tmp_path / "photos", 3)
    fixed = (
        "--classes",
        "boot,bag",
        "--model",
        "embedded",
        "--device",
        "cpu",
        "--state",
        tmp_path / "state.safetensors",
    )
    pta("predict", tmp_path / "photos", *fixed)
    assert read_stream(tmp_path / "state.safetensors")["decoder"] == "pillow"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(decoding.Decoding, "name", "another 1.0")
        done = pta("predict", tmp_path / "photos", *fixed)
        assert "was learned from pictures decoded by pillow, not by another 1.0; choose the decoder" in done.stderr
        assert (done.returncode, done.stdout) == (2, "")
        pta("predict", tmp_path / "photos", *fixed, "--decode", "pillow")
    assert read_stream(tmp_path / "state.safetensors")["decoder"] == "pillow and another 1.0"


@pytest.mark.parametrize("command", ["predict", "extract"])
def test_fast_decoding_and_a_gpu_are_refused_together(pta, tmp_path, command):
    write_photos(tmp_path / "photos", 3)
    fixed = ("--classes", "boot,bag", "--model", "embedded", "--device", "cpu", "--fast-decode", "--decode", "gpu")
    done = pta(
        command, tmp_path / "photos", *fixed, "--out", tmp_path / ("f.safetensors" if command == "extract" else "r.csv")
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "--fast-decode" in done.stderr
    assert "leave out --decode gpu" in done.stderr

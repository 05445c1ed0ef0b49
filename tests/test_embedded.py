"""The embedded dual encoder, with its packaged weights."""

import csv
import runpy
import subprocess
import sys
import warnings
from dataclasses import asdict
from importlib import resources
from pathlib import Path

import embedded_words
import numpy as np
import pytest
import torch
from PIL import Image
from result_file import RESULTS
from torch.nn.functional import normalize

import pta
from pta.data.fashion import load_fashion_test
from pta.data.prompts import DoubtfulClassNames, build_classifier
from pta.door.files import save_tensors
from pta.errors import InvalidParameter, InvalidSamples, UnavailableModel, UnreadableFile
from pta.models import EMBEDDED_TEMPLATES, EmbeddedConfig, EmbeddedEncoder, load_encoder
from pta.models.packaged.embedded import training_nouns, unread_names

TEXTS = ["a photo of a coat.", "bag", "the ankle boot that she wanted, seen from above"]


@pytest.fixture(scope="module")
def encoder():
    return EmbeddedEncoder.load()


@pytest.fixture(scope="module")
def fashion():
    return load_fashion_test()


@pytest.fixture(scope="module")
def pixels(encoder, fashion):
    return encoder.preprocess(fashion.images[:20])


def test_more_images_than_a_chunk_keep_their_order(encoder, pixels):
    features = encoder.encode(pixels.repeat(14, 1, 1, 1))
    torch.testing.assert_close(features, encoder.encode(pixels).repeat(14, 1), atol=1e-5, rtol=0)


def test_case_does_not_matter_and_every_script_and_half_a_letter_can_be_read(encoder):
    features = encoder.encode_texts(["A Coat", "a coat", "外套", "caf\udce9"])
    torch.testing.assert_close(features[0], features[1], atol=1e-6, rtol=0)
    assert features[2:].isfinite().all()


def test_image_features_may_enter_a_graph(encoder, pixels):
    prompt = torch.randn(encoder.dim, requires_grad=True)
    (encoder.encode(pixels) @ prompt).sum().backward()
    assert prompt.grad.any()


def test_a_pillow_image_and_its_array_give_the_same_pixels(encoder, fashion):
    arrays = fashion.images[:2]
    images = [Image.fromarray(array) for array in arrays]
    assert torch.equal(encoder.preprocess(images), encoder.preprocess(arrays))
    assert torch.equal(encoder.preprocess(images[0]), encoder.preprocess(arrays[:1]))


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "CMYK"])
def test_pillow_images_of_any_size_and_mode_are_accepted(encoder, mode):
    assert encoder.preprocess(Image.new(mode, (61, 40))).shape == (1, 1, 28, 28)


@pytest.mark.parametrize(
    "wrong",
    [np.zeros((1, 28, 28)), np.zeros((28, 28), np.uint8), np.zeros((1, 32, 32), np.uint8)],
    ids=["float", "one image", "another size"],
)
def test_what_is_no_image_batch_is_rejected(encoder, wrong):
    with pytest.raises(InvalidSamples, match="uint8"):
        encoder.preprocess(wrong)


def test_a_bare_string_is_rejected(encoder):
    with pytest.raises(InvalidParameter, match=r"\['a coat'\]"):
        encoder.encode_texts("a coat")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"name": "embeded"}, r"no model is called 'embeded'; did you mean 'embedded'\?"),
        ({"name": "embedded", "dtype": "float61"}, r"unknown precision 'float61'; did you mean 'float16'\?"),
        ({"name": "embedded", "device": "gpu"}, r"unknown device 'gpu'; cpu, cuda, cuda:1, mps or auto"),
        ({"name": "embedded", "device": "cuda"}, r"--device cpu \(device=\"cpu\" in Python\) works everywhere"),
    ],
    ids=["name", "precision", "device", "no GPU"],
)
def test_a_model_that_cannot_be_had_as_asked_is_told_in_one_line(monkeypatch, asked, message):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises((InvalidParameter, UnavailableModel), match=message):
        load_encoder(**asked)


def test_writing_and_reading_keep_the_encoder_and_its_fingerprint(encoder, tmp_path):
    encoder.write(tmp_path / "copy.safetensors", seed=1)
    copy = EmbeddedEncoder.read(tmp_path / "copy.safetensors")
    assert copy.fingerprint == encoder.fingerprint == EmbeddedEncoder.load().fingerprint
    torch.testing.assert_close(copy.encode_texts(TEXTS), encoder.encode_texts(TEXTS), atol=1e-6, rtol=0)


def test_another_weight_or_configuration_has_another_fingerprint(encoder):
    torch.manual_seed(1)
    four_heads = EmbeddedEncoder()
    two_heads = EmbeddedEncoder(EmbeddedConfig(image_heads=2))
    two_heads.load_state_dict(four_heads.state_dict())
    assert len({encoder.fingerprint, four_heads.fingerprint, two_heads.fingerprint}) == 3


def test_the_recipe_and_the_shapes_of_weights_are_part_of_the_fingerprint(encoder, monkeypatch):
    class Reshaped(EmbeddedEncoder):
        def state_dict(self):
            return {name: weight.flatten() for name, weight in super().state_dict().items()}

    reshaped = Reshaped()
    reshaped.load_state_dict(encoder.state_dict())
    before = encoder.fingerprint
    assert reshaped.fingerprint != before
    monkeypatch.setattr("pta.models.encoder.RECIPE", 2)
    assert encoder.fingerprint != before


def test_a_file_carries_the_configuration_it_is_read_with(tmp_path):
    shallow = EmbeddedConfig(image_depth=1, text_depth=1, dim=32)
    EmbeddedEncoder(shallow).write(tmp_path / "shallow.safetensors")
    assert EmbeddedEncoder.read(tmp_path / "shallow.safetensors").config == shallow


def test_the_packaged_model_is_small():
    assert len((resources.files("pta") / "assets" / "embedded.safetensors").read_bytes()) < 2 * 1024**2


def test_the_packaged_models_are_loaded_without_torchs_compiler():
    code = "from pta.models import load_encoder; load_encoder('embedded'); load_encoder('embedded-points')"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; import sys; print('torch._dynamo' in sys.modules)"],
        capture_output=True,
        text=True,
    )
    assert done.stdout == "False\n", done.stderr


def test_the_recommended_templates_were_not_trained_on():
    captions = runpy.run_path(str(Path(__file__).parents[1] / "training" / "captions.py"))
    trained = captions["training_templates"]()
    assert "a photo of a {}." in trained
    assert trained.isdisjoint({*EMBEDDED_TEMPLATES, *captions["VALIDATION_TEMPLATES"]})
    assert set(EMBEDDED_TEMPLATES).isdisjoint(captions["VALIDATION_TEMPLATES"])


@pytest.mark.parametrize(
    ("model", "known", "unknown", "instead"),
    [
        ("embedded", ["Coat", "leather_jackets", "raincoat", "T-shirt/top"], ["dog", "hat"], "hf:openai/clip"),
        ("embedded-points", ["sofas", "desk lamp", "bookshelf"], ["dog", "pizza"], "ulip:FOLDER"),
    ],
)
def test_a_class_that_the_packaged_model_was_not_trained_on_is_named_in_one_line(model, known, unknown, instead):
    encoder = load_encoder(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build_classifier(encoder, known, ["a {}."])
    with pytest.warns(
        DoubtfulClassNames, match=f"not trained on {', '.join(map(repr, unknown))}: .* use --model {instead}"
    ) as caught:
        pta.Classifier(encoder, [*known, *unknown], cache=None)
    assert len(caught) == 1
    assert "\n" not in str(caught[0].message)


def test_the_names_of_every_packaged_class_and_synonym_are_known():
    for model in ("embedded", "embedded-points"):
        nouns = training_nouns(model)
        assert not unread_names(model, [noun for name, others in nouns.items() for noun in (name, *others)])
    assert not unread_names("embedded", load_fashion_test().class_names)


@pytest.mark.extensive
def test_the_committed_counts_of_warnings_are_those_of_the_words():
    with (RESULTS / "embedded-words.csv").open(newline="") as file:
        committed = [row for row in csv.DictReader(file) if row["measure"] == "nouns"]
    lists = {
        ("chosen on", "embedded"): (embedded_words.CLOTHING, embedded_words.OTHERS),
        ("checked on", "embedded"): (embedded_words.FURTHER_CLOTHING, embedded_words.FURTHER_OTHERS),
        ("checked on", "embedded-points"): (embedded_words.SHAPES, embedded_words.NO_SHAPES),
    }
    counted = []
    for (part, model), words in lists.items():
        judged = embedded_words.judged(model, *words)
        counted += [
            {key: str(value) for key, value in row.items()} for row in embedded_words.counted(part, model, judged, {})
        ]
    assert [{key: value for key, value in row.items() if key != "version"} for row in committed] == counted
    chosen, further = (
        embedded_words.judged("embedded", *lists[part, "embedded"]) for part in ("chosen on", "checked on")
    )
    assert (len(chosen), len(further)) == (100, 40)
    assert not {word.name for word in chosen} & {word.name for word in further}


def test_clothes_are_recognised_from_prompts_never_seen_in_training(encoder, fashion):
    prompts = torch.stack(
        [encoder.encode_texts([t.format(name) for t in EMBEDDED_TEMPLATES]) for name in fashion.class_names]
    )
    anchors = normalize(prompts.mean(dim=1), dim=1)
    answers = (encoder.encode(encoder.preprocess(fashion.images[:500])) @ anchors.T).argmax(dim=1)
    assert (answers.numpy() == fashion.labels[:500]).mean() >= 0.88


@pytest.mark.parametrize(
    "changes",
    [
        {"image_width": 10**9},
        {"image_depth": 10**9},
        {"text_depth": -1},
        *({"text_heads": heads} for heads in (0, -4, 7, "4")),
        {"patch_size": -4},
        {"dim": "128"},
        {"dropout": 7.0},
        {"pixel_std": float("nan")},
        {"image_size": 10**9},
        {"unknown": 1},
    ],
    ids=str,
)
def test_a_model_file_with_absurd_settings_is_refused_before_memory_is_taken(encoder, tmp_path, changes):
    about = {"kind": "embedded encoder", "config": asdict(encoder.config) | changes}
    save_tensors(tmp_path / "model.safetensors", encoder.state_dict(), about)
    with pytest.raises(UnreadableFile, match="describes no embedded encoder"):
        EmbeddedEncoder.read(tmp_path / "model.safetensors")


@pytest.mark.parametrize("about", [{}, {"config": None}, {"config": [1]}, {"config": {}}], ids=str)
def test_a_model_file_without_settings_or_weights_is_refused(tmp_path, about):
    save_tensors(tmp_path / "model.safetensors", {"a": torch.zeros(1)}, {"kind": "embedded encoder", **about})
    with pytest.raises(UnreadableFile, match="describes no embedded encoder"):
        EmbeddedEncoder.read(tmp_path / "model.safetensors")

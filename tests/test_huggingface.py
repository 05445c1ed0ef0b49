"""`hf:` encoders against transformers' own code, on small random models in folders."""

import json
import os
import shutil
import socket
import sys
from functools import partial
from itertools import product
from types import SimpleNamespace

import pytest
import torch
from effort import repeated
from hostile_archives import Trap
from hypothesis import given, settings
from hypothesis import strategies as st
from photos import noise
from safetensors.torch import load_file, save_file
from torch.nn.functional import normalize

pytest.importorskip("transformers")
pytest.importorskip("sentencepiece")

import huggingface_hub
import transformers
from hf_models import (
    SIGLIP_LENGTH,
    TRANSFORMERS_5,
    CLIPImageProcessorPil,
    SiglipImageProcessorPil,
    needs_transformers_5,
    write_hf_clip,
    write_hf_siglip,
    write_hf_siglip2,
)
from transformers import AutoModel, AutoTokenizer, CLIPModel

from pta.door.images import CLIP_PREPROCESSING, Preprocessing
from pta.errors import InvalidParameter, UnavailableModel
from pta.models.huggingface import HuggingFaceEncoder, _architecture, canonical_text
from pta.models.huggingface_files import preprocessing_from

TEXTS = ["a photo of a cat", "the dog", "itap of a very small origami fox in a video game"]
KINDS = ["clip", "siglip", "siglip2"]
WRITERS = {
    **dict(zip(KINDS, [write_hf_clip, write_hf_siglip, write_hf_siglip2], strict=True)),
    "clip of openai": partial(write_hf_clip, legacy_end=True),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {kind: write(tmp_path_factory.mktemp("hf") / kind) for kind, write in WRITERS.items()}


@pytest.fixture(scope="module")
def encoders(folders):
    return {kind: load(folder) for kind, folder in folders.items()}


@pytest.fixture(scope="module")
def reference(folders):
    return {kind: AutoModel.from_pretrained(folder).eval() for kind, folder in folders.items()}


@pytest.fixture
def folder_copy(folders, tmp_path):
    def copy(kind):
        return shutil.copytree(folders[kind], tmp_path / kind)

    return copy


def load(folder):
    return HuggingFaceEncoder.load(str(folder))


def pixels(encoder, count=3):
    return encoder.preprocess([noise(90, 70, seed=seed) for seed in range(count)])


def edit(path, changes):
    path.write_text(json.dumps(merged(json.loads(path.read_text()), changes)))


def merged(old, new):
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    return {**old, **{name: merged(old.get(name), value) for name, value in new.items()}}


def message_of(name):
    with pytest.raises(UnavailableModel) as caught:
        load(name)
    return str(caught.value)


# -- features ----------------------------------------------------------------------------------------------------------


FULL_LENGTH = {"padding": "max_length", "max_length": SIGLIP_LENGTH, "truncation": True}


@pytest.mark.parametrize(
    ("kind", "last", "padding"),
    [
        *((kind, "a cat<|endoftext|> and a dog", {"padding": True}) for kind in ("clip", "clip of openai")),
        *((kind, "the quick brown fox " * 40, FULL_LENGTH) for kind in ("siglip", "siglip2")),
    ],
)
def test_features_and_logits_equal_transformers_own(encoders, reference, folders, kind, last, padding):
    """In CLIP the first end token ends a text; SigLIP pads and cuts to its full length and keeps the end token."""
    encoder, tokenizer, texts = encoders[kind], AutoTokenizer.from_pretrained(folders[kind]), [*TEXTS, last]
    batch, ids = pixels(encoder), tokenizer(texts, return_tensors="pt", **padding).input_ids
    with torch.no_grad():
        own = reference[kind](input_ids=ids, pixel_values=batch)
    images = encoder.encode(batch)
    anchors = torch.cat([encoder.encode_texts(TEXTS), encoder.encode_texts([last])])  # a long text would pad all others
    torch.testing.assert_close(images, own.image_embeds, atol=1e-5, rtol=0)
    torch.testing.assert_close(anchors, own.text_embeds, atol=1e-5, rtol=0)
    logits = encoder.scale * images @ anchors.T + encoder.bias
    torch.testing.assert_close(logits, own.logits_per_image, atol=1e-3, rtol=0)
    assert (encoder.bias == 0) == ("clip" in kind)


def test_clips_patches_are_projected_like_the_class_token(encoders, reference):
    encoder, model = encoders["clip"], reference["clip"]
    batch = pixels(encoder)
    with torch.no_grad():
        tokens = model.vision_model(batch).last_hidden_state
        own = normalize(model.visual_projection(model.vision_model.post_layernorm(tokens)), dim=-1)
    torch.testing.assert_close(encoder.encode_tokens(batch), own[:, 1:], atol=1e-5, rtol=0)
    torch.testing.assert_close(encoder.encode(batch), own[:, 0], atol=1e-5, rtol=0)


def test_siglip_gives_no_patches(encoders):
    with pytest.raises(InvalidParameter, match=r"SigLIP ViT .* gives no patch tokens"):
        encoders["siglip"].encode_tokens(pixels(encoders["siglip"]))


def with_other_weights(folder):
    WRITERS[folder.name](folder, seed=1)


def with_another_activation(folder):
    edit(folder / "config.json", {"vision_config": {"hidden_act": "gelu"}})


def without_a_merge(folder):
    lines = (folder / "merges.txt").read_text().splitlines()
    (folder / "merges.txt").write_text("\n".join(line for line in lines if line != "a t</w>") + "\n")


def with_other_pieces(folder):
    other = write_hf_siglip(folder / "other", pieces=["cat"])
    shutil.copy(other / "spiece.model", folder / "spiece.model")


def without_a_merge_in_its_only_file(folder):
    merges = json.loads((folder / "tokenizer.json").read_text())["model"]["merges"]
    edit(folder / "tokenizer.json", {"model": {"merges": merges[:-1]}})


OTHER_TOKENIZERS = {"clip": without_a_merge, "siglip": with_other_pieces, "siglip2": without_a_merge_in_its_only_file}


@pytest.mark.parametrize(
    ("kind", "change"),
    [*product(KINDS, [with_other_weights, with_another_activation]), *OTHER_TOKENIZERS.items()],
)
def test_the_fingerprint_follows_weights_activation_and_tokenizer_but_not_the_folder(
    encoders, folder_copy, kind, change
):
    folder = folder_copy(kind)
    assert load(folder).fingerprint == encoders[kind].fingerprint
    change(folder)
    changed = load(folder)
    same_tokens = torch.equal(changed.tokenize(TEXTS)[0], encoders[kind].tokenize(TEXTS)[0])
    assert same_tokens == (change is not OTHER_TOKENIZERS[kind]), "only another tokenizer gives other tokens"
    assert changed.fingerprint != encoders[kind].fingerprint
    assert load(folder).fingerprint == changed.fingerprint


# -- texts -------------------------------------------------------------------------------------------------------------


def test_siglip_reads_canonical_texts_whatever_form_its_tokenizer_has(encoders, folder_copy):
    folder = folder_copy("siglip")
    slow = AutoTokenizer.from_pretrained(folder)
    (folder / "spiece.model").unlink()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=fast_form_of(slow), eos_token="</s>", pad_token="</s>", unk_token="<unk>"
    ).save_pretrained(folder)
    fast = load(folder)
    assert type(fast.tokenizer) is not type(slow)
    assert fast.tokenizer("A CAT!").input_ids != fast.tokenizer("a cat").input_ids, "nothing is left to do for us"
    for encoder in (encoders["siglip"], fast):
        features = encoder.encode_texts(["A Photo of a CAT!!", "a photo of a cat", "a photo of a dog"])
        torch.testing.assert_close(features[0], features[1], atol=1e-6, rtol=0)
        assert (features[1] - features[2]).abs().max() > 1e-4


def fast_form_of(slow):
    """A tokenizer of the same pieces without any clean-up of its own."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    pieces = slow.sp_model
    scored = [(pieces.id_to_piece(i), pieces.get_score(i)) for i in range(pieces.get_piece_size())]
    tokenizer = Tokenizer(models.Unigram(scored, unk_id=2))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return tokenizer


@given(st.text(st.characters(max_codepoint=0x7F), max_size=60))
def test_canonical_text_is_what_siglips_own_tokenizer_makes_of_it(encoders, text):
    if "_" not in text:  # which the program SigLIP was trained with makes a space, and transformers drops
        given = text if TRANSFORMERS_5 else text.lower()  # which 4 does outside of this function
        assert canonical_text(text) == encoders["siglip"].tokenizer.canonicalize_text(given)


@pytest.mark.parametrize(
    "tokenizer_class",
    ["GemmaTokenizer", pytest.param("Siglip2Tokenizer", marks=needs_transformers_5), "PreTrainedTokenizerFast"],
)
def test_siglip2_reads_lower_case_with_its_punctuation_whatever_its_tokenizer_is_called(
    encoders, tmp_path, tokenizer_class
):
    encoder = load(write_hf_siglip2(tmp_path / "model", tokenizer_class=tokenizer_class))
    assert encoder.architecture.startswith("SigLIP2 ")
    texts = ["A Photo of a CAT!", "a photo of a cat!", "a photo of a cat"]
    capital, small, bare = ids = encoder.tokenize(texts)[0]
    assert torch.equal(capital, small)
    assert not torch.equal(small, bare)
    assert torch.equal(ids, encoders["siglip2"].tokenize(texts)[0])


def test_siglip_wants_embeddings_of_its_full_length(encoders):
    with pytest.raises(InvalidParameter, match="reads 64 token embeddings, padding included, not 9"):
        encoders["siglip"].text_from_embeddings(torch.zeros(1, 9, 48), torch.ones(1, 9, dtype=torch.bool))


@settings(max_examples=repeated(30))
@given(st.lists(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30), min_size=1, max_size=4))
def test_a_mask_is_true_exactly_up_to_the_end_token(encoders, texts):
    for encoder in encoders.values():
        ids, mask = encoder.tokenize(texts)
        for row, seen in zip(ids.tolist(), mask.tolist(), strict=True):
            end = row.index(encoder.tokenizer.eos_token_id)
            assert seen == [position <= end for position in range(len(row))]


# -- images ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "height"), [(64, 64), (96, 64), (64, 200), (128, 192), (640, 480), (30, 20)])
@pytest.mark.parametrize(("kind", "processor"), [("clip", CLIPImageProcessorPil), ("siglip2", SiglipImageProcessorPil)])
def test_pixels_equal_the_processors_own(encoders, folders, kind, processor, width, height):
    image = noise(width, height)
    own = processor.from_pretrained(folders[kind])(image, return_tensors="pt").pixel_values
    torch.testing.assert_close(encoders[kind].preprocess(image), own, atol=1e-6, rtol=0)


def test_a_configuration_nested_in_the_processors_is_found(encoders, folder_copy):
    folder = folder_copy("siglip")
    settings_file = folder / "preprocessor_config.json"
    nested = {"image_processor": json.loads(settings_file.read_text()), "processor_class": "SiglipProcessor"}
    (folder / "processor_config.json").write_text(json.dumps(nested))
    settings_file.unlink()
    assert load(folder).preprocess == encoders["siglip"].preprocess


def test_the_settings_of_the_usual_models_are_understood():
    siglip = preprocessing_from({"size": {"height": 384, "width": 384}, "resample": 2}, 384, square=True)
    assert siglip == Preprocessing(384, resize="square", resample="bilinear", mean=(0.5,) * 3, std=(0.5,) * 3)
    sizes = {"size": {"shortest_edge": 224}, "crop_size": {"height": 224, "width": 224}}
    assert preprocessing_from(sizes, 224, square=False) == CLIP_PREPROCESSING


# -- names and files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("width", "depth", "patch", "size", "name"),
    [
        (768, 12, 16, 224, "ViT-B/16"),
        (768, 12, 32, 224, "ViT-B/32"),
        (1024, 24, 14, 224, "ViT-L/14"),
        (1024, 24, 14, 336, "ViT-L/14@336px"),
        (48, 2, 16, 224, "CLIP ViT 48×2/16"),
    ],
)
def test_architectures_have_the_names_people_know(width, depth, patch, size, name):
    vision = SimpleNamespace(hidden_size=width, num_hidden_layers=depth, patch_size=patch, image_size=size)
    assert _architecture("CLIP", vision) == name
    if name.startswith("ViT"):
        assert _architecture("SigLIP", vision) == f"SigLIP {name}"


BROKEN = {
    "config.json": "its config.json is",
    "preprocessor_config.json": "its preprocessor_config.json is",
    "model.safetensors": "its weights (model.safetensors or pytorch_model.bin) are",
    "spiece.model": "its tokenizer is",
    "vocab.json": "its tokenizer is",
    "tokenizer_config.json": "its tokenizer is",
}


DAMAGED = [b"", b"{", b"[]", b"3", b"[" * 100_000, b"\x80\xff", b'"text"']


@pytest.mark.parametrize(
    ("name", "content"),
    [*product(BROKEN, DAMAGED), *((name, None) for name in BROKEN if name != "tokenizer_config.json")],  # not needed
    ids=repr,
)
def test_a_missing_or_damaged_file_is_named(folder_copy, name, content):
    folder = folder_copy("siglip" if name == "spiece.model" else "clip")
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    assert message_of(folder).startswith(f"hf:{folder} cannot be used: {BROKEN[name]} missing or cannot be read")


def in_one_pickle_file_with_a_trap(folder):
    weights = load_file(folder / "model.safetensors")
    torch.save({**weights, "trap": Trap(folder / "sprung")}, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def in_several_files(folder):
    model = CLIPModel.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="100KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 2


@pytest.mark.parametrize("change", [in_one_pickle_file_with_a_trap, in_several_files])
def test_weights_in_other_files_give_the_same_model(encoders, folder_copy, change):
    folder = folder_copy("clip")
    change(folder)
    assert load(folder).fingerprint == encoders["clip"].fingerprint
    assert not (folder / "sprung").exists()


def test_an_index_of_weights_names_files_in_its_own_folder(folder_copy, tmp_path):
    folder, outside = folder_copy("clip"), tmp_path / "outside.safetensors"
    (folder / "model.safetensors").rename(outside)
    os.mkfifo(folder / "pipe.bin")
    index = folder / "model.safetensors.index.json"
    for part in (str(outside), "pipe.bin"):
        index.write_text(json.dumps({"weight_map": {"a": part}}))
        assert "no such checkpoint file" in message_of(folder)
    for content in ("[]", "{}", '{"weight_map": [1]}', '{"weight_map": {"a": 1}}', "[" * 10_000):
        index.write_text(content)
        assert "its weights" in message_of(folder)


def test_weights_that_are_not_there_are_not_made_up(folder_copy):
    folder = folder_copy("clip")
    weights = load_file(folder / "model.safetensors")
    del weights["visual_projection.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert message_of(folder).endswith("cannot be used: the weight 'visual_projection.weight' is missing")


NAN, INFINITY = float("nan"), float("inf")
REFUSED = {
    ("config.json", "is a 'bert' model; hf: reads CLIP, SigLIP and SigLIP 2 models"): [{"model_type": "bert"}],
    ("config.json", "NaFlex"): [{"model_type": "siglip2"}],
    ("config.json", ""): [
        *({"text_config": {"num_hidden_layers": value}} for value in (10**9, -1, 1.5, "x", None)),
        *({"vision_config": {"hidden_size": value}} for value in (10**9, 10**30, 0, -4, [])),
        *({"vision_config": {"num_attention_heads": value}} for value in (0, -1, 7, 10**9)),
        *({"vision_config": {"image_size": value}} for value in (10**9, -1, 0, [64, 64], "64")),
        *({"vision_config": {"patch_size": value}} for value in (10**9, -1, 0)),
        *({"text_config": {"vocab_size": value}} for value in (10**9, 2**63, -1)),
        *({"text_config": {"max_position_embeddings": value}} for value in (10**9, 0, NAN)),
        *({"text_config": {"hidden_act": "os.system"}}, {"text_config": []}, {"vision_config": 3}),
        *({"model_type": ["clip"]}, {"projection_dim": 10**9}),
    ],
    ("preprocessor_config.json", "the images of hf:{} cannot be prepared: "): [
        *({"do_resize": False}, {"do_normalize": False}, {"do_pad": True}, {"do_center_crop": False}),
        *({"rescale_factor": value} for value in (1 / 127.5, NAN, "1")),
        *({"size": value} for value in (10**9, -1, [64, 64], {"shortest_edge": 80}, {"shortest_edge": INFINITY})),
        {"size": {"height": 64, "width": 80}, "do_center_crop": False},
        {"crop_size": {"height": 32, "width": 32}},
        *({"resample": value} for value in (5, [], {}, "x", 1e39)),
        *({"image_mean": value} for value in ([NAN] * 3, [1e39] * 3, [[]] * 3, 3, "abc", [True, None, 1])),
        *({"image_std": value} for value in ([0.5, 0.5], [0.0] * 3, [-1] * 3, [1e-40] * 3, {})),
    ],
}


@pytest.mark.parametrize(
    ("name", "words", "changes"), [(*file, changes) for file, many in REFUSED.items() for changes in many], ids=str
)
def test_settings_that_cannot_be_followed_are_refused_before_memory_is_taken(folder_copy, name, words, changes):
    folder = folder_copy("clip")
    edit(folder / name, changes)
    message = message_of(folder)
    assert words.format(folder) in message
    assert len(message) < 600


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("vocab.json", {"photo": 2**28}),
        ("vocab.json", {"a</w>": 5000}),  # which the model does not know
        ("tokenizer_config.json", {"tokenizer_class": "BertTokenizer"}),
        ("tokenizer_config.json", {"model_max_length": [[]]}),
    ],
)
def test_a_tokenizer_that_does_not_fit_is_refused(folder_copy, name, changes):
    folder = folder_copy("clip")
    edit(folder / name, changes)
    with pytest.raises(UnavailableModel, match="tokenizer"):
        load(folder).encode_texts(TEXTS)


def test_code_in_a_folder_is_not_run(folder_copy, tmp_path):
    folder = folder_copy("clip")
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'harm')!r}, 'w')\nclass Evil: pass\n")
    evil = {"auto_map": dict.fromkeys(["AutoConfig", "AutoModel", "AutoTokenizer"], "evil.Evil")}
    kernel = {"attn_implementation": "evil/kernel", "_attn_implementation": "evil/kernel"}
    towers = {"text_config": kernel, "vision_config": kernel, "quantization_config": {"quant_method": "evil"}}
    edit(folder / "config.json", evil | kernel | towers)
    edit(folder / "tokenizer_config.json", evil)
    edit(folder / "preprocessor_config.json", {"auto_map": {"AutoImageProcessor": "evil.Evil"}})
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "evil/model"}')
    assert load(folder).encode_texts(TEXTS).isfinite().all()
    assert not (tmp_path / "harm").exists()


def test_a_path_that_does_not_exist_is_no_hub_name(tmp_path):
    missing = tmp_path / "nowhere" / "model"
    assert message_of(missing) == f"hf:{missing} is neither a folder on this machine nor a name on the hub"


def hub_error(kind):
    """What the hub's client raises; these classes want the answer of a server, which there is none of here."""
    return kind.__new__(kind)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (huggingface_hub.errors.OfflineModeIsEnabled("off"), "HF_HUB_OFFLINE is set"),
        (hub_error(huggingface_hub.errors.GatedRepoError), "its licence must be accepted on the hub first"),
        (hub_error(huggingface_hub.errors.RepositoryNotFoundError), "the hub knows no such model, or it is private"),
        (hub_error(huggingface_hub.errors.HfHubHTTPError), "the hub says: "),
        (RuntimeError("no route"), "the hub cannot be reached"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_model_that_cannot_be_fetched_says_why_and_what_else_there_is(monkeypatch, tmp_path, error, reason):
    def refuse(*_, **__):
        raise error

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", refuse)
    message = message_of("pta-tests/not-a-model")
    assert message.startswith(f"hf:pta-tests/not-a-model is not on this machine and could not be fetched ({reason}")
    assert "; give a local folder with --model hf:/path/to/folder" in message
    assert message.endswith("or try --model embedded (it knows clothing only)")


def test_without_network_folders_and_cached_names_load_and_nothing_is_printed(
    encoders, folders, tmp_path, monkeypatch, capfd
):
    repository, asked = tmp_path / "models--pta-tests--cached", []
    shutil.copytree(folders["clip"], repository / "snapshots" / ("0" * 40))
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)

    def refuse(*arguments, **_):
        asked.append(arguments)
        raise socket.gaierror("no network")

    before = transformers.logging.get_verbosity(), transformers.logging.is_progress_bar_enabled()
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    assert load(folders["clip"]).fingerprint == encoders["clip"].fingerprint
    assert load("pta-tests/cached").fingerprint == encoders["clip"].fingerprint
    load(folders["siglip"])  # which has a tokenizer of another kind
    assert not asked, "the network was asked for what is here"
    assert "(the hub cannot be reached)" in message_of("openai/clip-vit-base-patch16")
    assert asked
    assert capfd.readouterr() == ("", "")
    assert (transformers.logging.get_verbosity(), transformers.logging.is_progress_bar_enabled()) == before


def test_without_transformers_the_line_says_what_to_install(monkeypatch, folders):
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert message_of(folders["clip"]) == "hf: models need transformers; run pip install 'pta-vlm[hf]'"

"""`openclip:` encoders against open_clip's own code.

open_clip runs for real. It imports torchvision, for which there is a STAND-IN (`stand_in_torchvision.py`) with nothing
that could be used. No pixel goes through it, and it is gone after these tests.
"""

import importlib
import json
import pickle
import sys
from functools import cache, partial
from unittest.mock import Mock

import pytest
import stand_in_torchvision
import torch
from hostile_archives import Trap
from refusals import refusal
from safetensors.torch import save_file

from pta.door.images import Preprocessing
from pta.errors import UnavailableModel
from pta.models import load_encoder
from pta.models.openclip import OpenClipEncoder

TEXTS = ["a photo of a cat", "A Dog!", "itap of a very small origami fox in a video game"]
VISION = {"image_size": 32, "layers": 2, "width": 64, "head_width": 32, "patch_size": 16}
TEXT = {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2}
SIGLIP_TEXT = {**TEXT, "no_causal_mask": True, "proj_bias": True, "pool_type": "last", "context_length": 64}
CONFIGURATIONS = {
    "Tiny-CLIP": {"text_cfg": TEXT},
    "Tiny-CLIP-quickgelu": {"text_cfg": TEXT, "quick_gelu": True},
    "Tiny-Sigmoid": {"text_cfg": SIGLIP_TEXT, "custom_text": True, "init_logit_bias": -10},
    "Tiny-ClassToken": {"text_cfg": {**TEXT, "embed_cls": True}, "custom_text": True},
}
MODELS = list(CONFIGURATIONS)
PIXELS = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
ABOUT_PIXELS = {"mean": [0.5] * 3, "std": [0.25] * 3, "interpolation": "bilinear", "resize_mode": "squash"}
CACHED = "openclip:hf-hub:pta-tests/tiny"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("openclip")


@pytest.fixture(scope="module")
def open_clip(folder):
    """open_clip without network, with an empty cache of the hub and some tiny architectures."""
    transformers = pytest.importorskip("transformers")
    transformers.utils.is_torchvision_available()  # which it remembers: it is not there
    assert transformers.AutoTokenizer  # which older releases cannot import beside the stand-in
    if importlib.util.find_spec("open_clip") is None:
        pytest.skip("open_clip is not installed")
    assert_near(PIXELS, PIXELS)  # which imports parts of torch that cannot be imported beside the stand-in
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        patch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder / "hub"))
        patch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(folder / "modules"))
        patch.setattr(sys, "path", [*sys.path])
        stand_in_torchvision.install()
        library = importlib.import_module("open_clip")
        for name, configuration in CONFIGURATIONS.items():
            content = {"embed_dim": 16, "vision_cfg": VISION, **configuration}
            (folder / f"{name}.json").write_text(json.dumps(content))
        library.add_model_config(folder)
        yield library
    for name in list(sys.modules):
        if name.startswith(("open_clip", "torchvision", "transformers_modules")):
            del sys.modules[name]


@pytest.fixture(scope="module")
def written(open_clip, folder):
    """Writes a model of random weights; gives open_clip's own and the name that its file is loaded by."""

    @cache
    def write(name, seed=0):
        torch.manual_seed(seed)
        model, file = open_clip.create_model(name).eval(), folder / f"{name}-{seed}.safetensors"
        save_file(model.state_dict(), file)
        return model, f"openclip:{name}/{file}"

    return write


@pytest.fixture
def snapshot(open_clip, written, folder):
    """A repository in the hub's cache: Tiny-CLIP under the usual name, and with another seed under another."""
    repository = folder / "hub" / "models--pta-tests--tiny"
    snapshot = repository / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True, exist_ok=True)
    (repository / "refs").mkdir(exist_ok=True)
    (repository / "refs" / "main").write_text("0" * 40)
    save_file(written("Tiny-CLIP")[0].state_dict(), snapshot / "open_clip_model.safetensors")
    torch.save(written("Tiny-CLIP", 1)[0].state_dict(), snapshot / "pytorch_model.bin")
    configure(snapshot)
    return snapshot


def configure(snapshot, text=(), vision=()):
    model = {"embed_dim": 16, "vision_cfg": VISION | dict(vision), "text_cfg": TEXT | dict(text)}
    content = {"model_cfg": model, "preprocess_cfg": ABOUT_PIXELS}
    (snapshot / "open_clip_config.json").write_text(json.dumps(content))


@cache
def loaded(address):
    return load_encoder(address)


assert_near = partial(torch.testing.assert_close, atol=1e-5, rtol=0)


# -- the same model ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_features_scale_and_bias_equal_open_clips_own_in_any_precision_and_survive_pickling(open_clip, written, name):
    own, address = written(name)
    encoder, half = loaded(address), load_encoder(address, dtype="bfloat16")
    with torch.no_grad():
        images = own.encode_image(PIXELS, normalize=True)
        texts = own.encode_text(open_clip.get_tokenizer(name)(TEXTS), normalize=True)
    assert (texts[0] - texts[1]).abs().max() > 1e-3, "all texts are alike, so this shows nothing"
    assert_near(encoder.encode(PIXELS), images)
    assert_near(encoder.encode_texts(TEXTS), texts)
    assert_near(torch.cat([encoder.encode_texts([text]) for text in TEXTS]), texts)
    assert (half.encode_texts(TEXTS) * texts).sum(dim=1).min() > 0.99
    assert encoder.encode_texts([]).shape == (0, encoder.dim) == (0, 16)
    assert encoder.scale == half.scale == pytest.approx(own.logit_scale.exp().item(), rel=1e-6)
    assert encoder.bias == (-10 if name == "Tiny-Sigmoid" else 0)
    twin = pickle.loads(pickle.dumps(encoder))
    assert twin.fingerprint == encoder.fingerprint
    assert_near(twin.encode_texts(TEXTS), texts)


@pytest.mark.parametrize("name", MODELS[:3])
def test_texts_equal_the_path_from_their_embeddings_and_gradients_reach_these(written, name):
    encoder = loaded(written(name)[1])
    ids, mask = encoder.tokenize(TEXTS)
    embeddings = encoder.embed_ids(ids).requires_grad_()
    features = encoder.text_from_embeddings(embeddings, mask)
    assert_near(features.detach(), encoder.encode_texts(TEXTS))
    features[:, 0].sum().backward()
    reached, padding_is_read = embeddings.grad.norm(dim=2) > 0, name == "Tiny-Sigmoid"
    assert reached[mask].all()
    assert reached[~mask].any() == padding_is_read
    assert ids.shape[1] == 64 if padding_is_read else ids.shape[1] < 77
    tower = encoder.prompt_tower(["cat", "sea_lion"])
    prompts = encoder.encode_texts(["a photo of a cat.", "a photo of a sea lion."])
    assert_near(tower.read(tower.context[None])[0], prompts)


def test_the_fingerprint_is_that_of_weights_and_configuration(written, folder):
    own, address = written("Tiny-CLIP")
    torch.save({"epoch": 3, "state_dict": own.state_dict()}, folder / "trained.pt")
    first = load_encoder(address).fingerprint
    assert load_encoder(f"openclip:Tiny-CLIP/{folder / 'trained.pt'}").fingerprint == first
    others = written("Tiny-CLIP", 1)[1], address.replace("Tiny-CLIP/", "Tiny-CLIP-quickgelu/")
    assert len({first, *(load_encoder(other).fingerprint for other in others)}) == 3


def write_words(snapshot, *words):
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    if transformers.__version__.startswith("4."):
        pytest.skip("transformers 4 needs more of torchvision than the stand-in has")
    vocabulary = {word: number for number, word in enumerate(["<end>", "<unknown>", *words])}
    rules = Tokenizer(models.WordLevel(vocabulary, unk_token="<unknown>"))
    rules.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"eos_token": "<end>", "pad_token": "<end>", "unk_token": "<unknown>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=rules, **special).save_pretrained(snapshot)
    configure(snapshot, {"hf_tokenizer_name": "words"})


def clean_by(snapshot, how):
    configure(snapshot, {"tokenizer_kwargs": {"clean": how}})


@pytest.mark.parametrize(
    ("change", "one", "other"),
    [(write_words, ("a", "photo"), ("photo", "a")), (clean_by, ("lower",), ("canonicalize",))],
)
def test_another_tokenizer_has_another_fingerprint(snapshot, change, one, other):
    found = []
    for given in (one, other, one):
        change(snapshot, *given)
        encoder = load_encoder(CACHED)
        found.append((encoder.tokenize(["a photo!"])[0].tolist(), encoder.fingerprint))
    assert found[0][0] != found[1][0], "the tokenizers are alike, so this shows nothing"
    assert found[0][1] != found[1][1]
    assert found[0] == found[2]


def test_images_are_prepared_as_open_clip_says(written):
    assert loaded(written("Tiny-CLIP")[1]).preprocess == Preprocessing(32)


@pytest.mark.parametrize(
    ("name", "architecture", "activation", "seed"),
    [
        (CACHED, "pta-tests/tiny", "", 0),
        ("openclip:Tiny-CLIP/openai", "Tiny-CLIP", "-quickgelu", 0),
        ("openclip:Tiny-CLIP/named", "Tiny-CLIP", "", 1),
    ],
)
def test_cached_repositories_and_tags_load_without_network_with_their_file_activation_and_pixels(
    open_clip, snapshot, written, monkeypatch, name, architecture, activation, seed
):
    tags = {
        "openai": {"hf_hub": "pta-tests/tiny/", "quick_gelu": True, **ABOUT_PIXELS},
        "named": {"hf_hub": "pta-tests/tiny/pytorch_model.bin", **ABOUT_PIXELS},
    }
    monkeypatch.setitem(open_clip.pretrained._PRETRAINED, "Tiny-CLIP", tags)
    expected, cached = loaded(written("Tiny-CLIP", seed)[1].replace("CLIP/", f"CLIP{activation}/")), load_encoder(name)
    assert_near(cached.encode_texts(TEXTS), expected.encode_texts(TEXTS))
    assert_near(cached.encode(PIXELS), expected.encode(PIXELS))
    assert cached.architecture == architecture
    assert cached.preprocess == Preprocessing(32, "square", "bilinear", (0.5,) * 3, (0.25,) * 3)


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_pickled_code_is_not_run_and_the_weights_beside_it_are_read(written, folder):
    own, address = written("Tiny-CLIP")
    torch.save({"state_dict": own.state_dict(), "evil": Trap(folder / "harm")}, folder / "evil.pt")
    assert load_encoder(f"openclip:Tiny-CLIP/{folder / 'evil.pt'}").fingerprint == loaded(address).fingerprint
    assert not (folder / "harm").exists()
    torch.load(folder / "evil.pt", weights_only=False)
    assert (folder / "harm").exists(), "the attack does not work, so this shows nothing"


def test_code_in_a_repository_is_not_run(open_clip, snapshot, tmp_path):
    (snapshot / "evil.py").write_text(f"open({str(tmp_path / 'harm')!r}, 'w').close()")
    (snapshot / "tokenizer_config.json").write_text(json.dumps({"auto_map": {"AutoTokenizer": ["evil.Evil", None]}}))
    configure(snapshot, {"hf_tokenizer_name": "x", "tokenizer_kwargs": {"trust_remote_code": True}})
    said = "asks for 'tokenizer_kwargs': {'trust_remote_code': True}, which is not supported"
    assert said in refusal(load_encoder, CACHED)
    assert not (tmp_path / "harm").exists()
    with pytest.raises(AttributeError):
        open_clip.get_tokenizer(f"local-dir:{snapshot}")
    assert (tmp_path / "harm").exists(), "the attack does not work, so this shows nothing"


ABSURD = {
    "text": [
        *({"layers": 10**9}, {"width": 10**9}, {"heads": 0}, {"vocab_size": [1e39]}),
        *({"context_length": -1}, {"context_length": 2**20}, {"width": 50_000, "heads": 1}),
    ],
    "vision": [{"width": float("nan")}, {"layers": "x"}, {"image_size": 65536}, {"layers": 1000, "width": 1024}],
}


@pytest.mark.parametrize("absurd", [{tower: one} for tower, many in ABSURD.items() for one in many], ids=str)
def test_absurd_settings_are_refused_in_one_line(snapshot, absurd):
    configure(snapshot, **absurd)
    with pytest.raises(UnavailableModel):
        load_encoder(CACHED)


def test_a_text_tower_that_takes_no_embeddings_says_so(written):
    encoder = loaded(written("Tiny-ClassToken")[1])
    said = refusal(encoder.embed_ids, torch.zeros(1, 4, dtype=torch.long))
    assert said == "the text tower of Tiny-ClassToken takes texts only, no token embeddings"
    assert refusal(encoder.prompt_tower, ["cat"]) == said


def test_a_text_too_long_is_refused_and_the_longest_is_not(written):
    encode_texts = loaded(written("Tiny-CLIP")[1]).encode_texts
    assert encode_texts(["x " * 75]).isfinite().all()
    assert "a text has 76 tokens, Tiny-CLIP reads at most 75; shorten 'x x" in refusal(encode_texts, ["x " * 76])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ViT-B16/openai", "open_clip has no 'ViT-B16'; did you mean 'ViT-B-16'?"),
        ("ViT-B-16/opnai", "nor a tag that open_clip has for ViT-B-16; did you mean 'openai'?"),
        ("Tiny-CLIP", "names neither a file with weights nor a tag"),
        ("ViT-B-16/openai", "openai is not on this machine and could not be fetched (HF_HUB_OFFLINE is set)"),
        ("hf-hub:laion/nothing", "openclip:hf-hub:laion/nothing is not on this machine and could not be fetched"),
    ],
)
def test_a_mistake_gets_one_line(open_clip, name, words):
    assert words in refusal(load_encoder, f"openclip:{name}")


def test_weights_of_another_architecture_are_refused(written):
    assert "cannot be loaded" in refusal(load_encoder, written("Tiny-CLIP")[1].replace("CLIP/", "Sigmoid/"))


BROKEN = RuntimeError("operator torchvision::nms does not exist\nand more")


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ("open_clip", r"need open_clip, .*pip install 'pta-vlm\[openclip\]'.*to torch \d"),
        ("torchvision", r"need torchvision, .*pip install 'pta-vlm\[openclip\]'.*to torch \d"),
        (None, r"does not load \(operator torchvision::nms does not exist\); run pip"),  # for another torch
    ],
)
def test_what_is_missing_or_broken_is_named_with_the_way_to_get_it(monkeypatch, missing, words):
    monkeypatch.setattr("pta.models.openclip.find_spec", lambda name: None if name == missing else object())
    monkeypatch.setattr("pta.models.openclip.import_module", Mock(side_effect=BROKEN))
    with pytest.raises(UnavailableModel, match=words):
        OpenClipEncoder.load("ViT-B-16/openai")

"""`openclip:` encoders against open_clip's own code.

open_clip runs for real, in a process of its own, because it imports torchvision: there torchvision is a STAND-IN
(`stand_in_torchvision.py`) that has only the names open_clip imports. No pixel goes through it.
"""

import importlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes import PATIENCE

from pta.encoders.openclip import OpenClipEncoder
from pta.errors import UnavailableModel

HERE = Path(__file__).parent

# Each model is written with random weights and loaded by the name a user would give; what is found is printed as JSON.
SCRIPT = """
import json, pickle, sys
from pathlib import Path
import stand_in_torchvision
stand_in_torchvision.install()
import numpy as np, open_clip, torch, transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from pta.encoders import load_encoder
from pta.errors import InvalidParameter, UnavailableModel

torch.set_num_threads(1)
folder = Path(sys.argv[1])
TEXTS = ["a photo of a cat", "A Dog!", "itap of a very small origami fox in a video game"]
VISION = {"image_size": 32, "layers": 2, "width": 64, "head_width": 32, "patch_size": 16}
TEXT = {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2}
SIGLIP_TEXT = {"no_causal_mask": True, "proj_bias": True, "pool_type": "last", "context_length": 64}
CONFIGURATIONS = {
    "Tiny-CLIP": {"vision_cfg": VISION, "text_cfg": TEXT},
    "Tiny-CLIP-quickgelu": {"vision_cfg": VISION, "text_cfg": TEXT, "quick_gelu": True},
    "Tiny-Sigmoid": {
        "vision_cfg": VISION, "text_cfg": {**TEXT, **SIGLIP_TEXT}, "custom_text": True, "init_logit_bias": -10,
    },
    "Tiny-ClassToken": {"vision_cfg": VISION, "text_cfg": {**TEXT, "embed_cls": True}, "custom_text": True},
}
for name, configuration in CONFIGURATIONS.items():
    (folder / f"{name}.json").write_text(json.dumps({"embed_dim": 16, **configuration}))
open_clip.add_model_config(folder)


def written(name, seed=0):
    torch.manual_seed(seed)
    model = open_clip.create_model(name)
    file = folder / f"{name}-{seed}.safetensors"
    save_file(model.state_dict(), file)
    return model.eval(), f"openclip:{name}/{file}"


def complaint(act):
    try:
        act()
    except (InvalidParameter, UnavailableModel) as error:
        return f"{type(error).__name__}: {error}"


def difference(ours, theirs):
    return float((ours - theirs).abs().max())


found = {}
pixels = torch.from_numpy(np.random.default_rng(0).standard_normal((3, 3, 32, 32), np.float32))
for name in CONFIGURATIONS:
    own, address = written(name)
    encoder = load_encoder(address)
    ids = open_clip.get_tokenizer(name)(TEXTS)
    with torch.no_grad():
        images, texts = own.encode_image(pixels, normalize=True), own.encode_text(ids, normalize=True)
    half = load_encoder(address, dtype="bfloat16")
    found[name] = {
        "architecture": encoder.architecture,
        "dim": encoder.dim,
        "images": difference(encoder.encode(pixels), images),
        "texts": difference(encoder.encode_texts(TEXTS), texts),
        "one by one": difference(encoder.encode_texts(TEXTS), torch.cat([encoder.encode_texts([t]) for t in TEXTS])),
        "spread": difference(texts[0], texts[1]),
        "scale": [encoder.scale, float(own.logit_scale.exp())],
        "bias": encoder.bias,
        "none": list(encoder.encode_texts([]).shape),
        "half": float((half.encode_texts(TEXTS) * encoder.encode_texts(TEXTS)).sum(dim=1).min()),
        "half scale": half.scale,
        "fingerprint": encoder.fingerprint,
        "again": load_encoder(address).fingerprint,
        "preprocess": encoder.preprocess.describe(),
    }
    if name != "Tiny-ClassToken":
        ids, mask = encoder.tokenize(TEXTS)
        embeddings = encoder.embed_ids(ids).requires_grad_()
        features = encoder.text_from_embeddings(embeddings, mask)
        features[:, 0].sum().backward()
        reached = embeddings.grad.norm(dim=2) > 0
        found[name]["gradients"] = [bool(reached[mask].all()), bool(reached[~mask].any())]
        found[name]["from embeddings"] = difference(features.detach(), encoder.encode_texts(TEXTS))
        found[name]["length"] = ids.shape[1]
        tower = encoder.prompt_tower(["cat", "sea_lion"])
        prompts = encoder.encode_texts(["a photo of a cat.", "a photo of a sea lion."])
        found[name]["prompt tower"] = difference(tower.read(tower.context[None])[0], prompts)
    twin = pickle.loads(pickle.dumps(encoder))
    found[name]["twin"] = [twin.fingerprint, difference(twin.encode_texts(TEXTS), encoder.encode_texts(TEXTS))]

own, address = written("Tiny-CLIP")
encoder = load_encoder(address)
found["other seed"] = load_encoder(written("Tiny-CLIP", 1)[1]).fingerprint
found["other activation"] = load_encoder(address.replace("Tiny-CLIP/", "Tiny-CLIP-quickgelu/")).fingerprint

torch.save({"epoch": 3, "state_dict": own.state_dict()}, folder / "trained.pt")
trained = load_encoder(f"openclip:Tiny-CLIP/{folder / 'trained.pt'}")
found["trained"] = trained.fingerprint

repository = folder / "hub" / "models--pta-tests--tiny"
snapshot = repository / "snapshots" / ("0" * 40)
snapshot.mkdir(parents=True)
(repository / "refs").mkdir()
(repository / "refs" / "main").write_text("0" * 40)
save_file(own.state_dict(), snapshot / "open_clip_model.safetensors")
torch.save(load_file(folder / "Tiny-CLIP-1.safetensors"), snapshot / "pytorch_model.bin")
about = {"mean": [0.5] * 3, "std": [0.25] * 3, "interpolation": "bilinear", "resize_mode": "squash"}
configuration = {"model_cfg": {"embed_dim": 16, **CONFIGURATIONS["Tiny-CLIP"]}, "preprocess_cfg": about}
(snapshot / "open_clip_config.json").write_text(json.dumps(configuration))
open_clip.pretrained._PRETRAINED["Tiny-CLIP"] = {
    "openai": {"hf_hub": "pta-tests/tiny/", "quick_gelu": True, **about},
    "named": {"hf_hub": "pta-tests/tiny/pytorch_model.bin", **about},
}
quick = load_encoder(address.replace("Tiny-CLIP/", "Tiny-CLIP-quickgelu/"))
other_seed = load_encoder(f"openclip:Tiny-CLIP/{folder / 'Tiny-CLIP-1.safetensors'}")
for name, same in (
    ("openclip:hf-hub:pta-tests/tiny", encoder),
    ("openclip:Tiny-CLIP/openai", quick),
    ("openclip:Tiny-CLIP/named", other_seed),
):
    cached = load_encoder(name)
    found[name] = {
        "texts": difference(cached.encode_texts(TEXTS), same.encode_texts(TEXTS)),
        "images": difference(cached.encode(pixels), same.encode(pixels)),
        "preprocess": cached.preprocess.describe(),
        "architecture": cached.architecture,
    }
found["activation matters"] = difference(quick.encode_texts(TEXTS), encoder.encode_texts(TEXTS))
found["file matters"] = difference(other_seed.encode_texts(TEXTS), encoder.encode_texts(TEXTS))


def with_text_settings(**settings):
    configuration["model_cfg"]["text_cfg"] = {**TEXT, **settings}
    (snapshot / "open_clip_config.json").write_text(json.dumps(configuration))
    encoder = load_encoder("openclip:hf-hub:pta-tests/tiny")
    return {"ids": encoder.tokenize(["a photo!"])[0].tolist(), "fingerprint": encoder.fingerprint}


def with_words(*words):
    vocabulary = {word: number for number, word in enumerate(["<end>", "<unknown>", *words])}
    rules = Tokenizer(models.WordLevel(vocabulary, unk_token="<unknown>"))
    rules.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"eos_token": "<end>", "pad_token": "<end>", "unk_token": "<unknown>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=rules, **special).save_pretrained(snapshot)
    return with_text_settings(hf_tokenizer_name="words")


found["tokenizers"] = {
    "by files": [with_words("a", "photo"), with_words("photo", "a"), with_words("a", "photo")],
    "by configuration": [
        with_text_settings(tokenizer_kwargs={"clean": how}) for how in ("lower", "canonicalize", "lower")
    ],
}


class Evil:
    def __reduce__(self):
        return (Path.touch, (folder / "harm-was-done",))


torch.save({"state_dict": own.state_dict(), "evil": Evil()}, folder / "evil.pt")
torch.load(folder / "evil.pt", weights_only=False)
found["harm is possible"] = [(folder / "harm-was-done").exists()]
(folder / "harm-was-done").unlink()
found["evil"] = load_encoder(f"openclip:Tiny-CLIP/{folder / 'evil.pt'}").fingerprint


def asking_for(part, **settings):
    changed = json.loads(json.dumps(configuration))
    changed["model_cfg"][part].update(settings)
    (snapshot / "open_clip_config.json").write_text(json.dumps(changed))
    return complaint(lambda: load_encoder("openclip:hf-hub:pta-tests/tiny"))


(snapshot / "evil.py").write_text(f"open({str(folder / 'harm-was-done')!r}, 'w')")
(snapshot / "tokenizer_config.json").write_text(json.dumps({"auto_map": {"AutoTokenizer": ["evil.Evil", None]}}))
found["remote code"] = asking_for("text_cfg", hf_tokenizer_name="x", tokenizer_kwargs={"trust_remote_code": True})
found["harm of remote code"] = (folder / "harm-was-done").exists()
try:
    open_clip.get_tokenizer(f"local-dir:{snapshot}")
except Exception:
    found["harm is possible"].append((folder / "harm-was-done").exists())
    (folder / "harm-was-done").unlink()
found["absurd"] = [
    asking_for("text_cfg", layers=10**9),
    asking_for("text_cfg", width=10**9),
    asking_for("vision_cfg", width=float("nan")),
    asking_for("vision_cfg", layers="x"),
    asking_for("text_cfg", heads=0),
    asking_for("text_cfg", context_length=-1),
    asking_for("text_cfg", vocab_size=[1e39]),
    asking_for("vision_cfg", image_size=65536),
    asking_for("text_cfg", width=50_000, heads=1),
    asking_for("text_cfg", context_length=2**20),
    asking_for("vision_cfg", layers=1000, width=1024),
]
class_token = load_encoder(written("Tiny-ClassToken")[1])
found["complaints"] = {
    "long": complaint(lambda: encoder.encode_texts(["x " * 76])),
    "architecture": complaint(lambda: load_encoder("openclip:ViT-B16/openai")),
    "tag": complaint(lambda: load_encoder("openclip:ViT-B-16/opnai")),
    "no tag": complaint(lambda: load_encoder("openclip:Tiny-CLIP")),
    "mismatch": complaint(lambda: load_encoder(address.replace("Tiny-CLIP/", "Tiny-Sigmoid/"))),
    "embeddings": complaint(lambda: class_token.embed_ids(torch.zeros(1, 4, dtype=torch.long))),
    "prompts": complaint(lambda: class_token.prompt_tower(["cat"])),
    "fetch": complaint(lambda: load_encoder("openclip:ViT-B-16/openai")),
    "fetch repository": complaint(lambda: load_encoder("openclip:hf-hub:laion/nothing")),
}
found["harm"] = (folder / "harm-was-done").exists()
found["longest"] = bool(encoder.encode_texts(["x " * 75]).isfinite().all())
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    if importlib.util.find_spec("open_clip") is None:
        pytest.skip("open_clip is not installed")
    folder = tmp_path_factory.mktemp("openclip")
    paths = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder)],
        env={
            **os.environ,
            "PYTHONPATH": paths,
            "HF_HUB_OFFLINE": "1",
            "HF_HUB_CACHE": str(folder / "hub"),
            "HF_MODULES_CACHE": str(folder / "modules"),
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


MODELS = ["Tiny-CLIP", "Tiny-CLIP-quickgelu", "Tiny-Sigmoid", "Tiny-ClassToken"]
WITH_EMBEDDINGS = MODELS[:3]


@pytest.mark.parametrize("name", MODELS)
def test_features_equal_open_clips_own_and_survive_pickling(found, name):
    assert found[name]["spread"] > 1e-3, "all texts are alike, so this shows nothing"
    assert found[name]["images"] < 1e-5
    assert found[name]["texts"] < 1e-5
    assert found[name]["one by one"] < 1e-5
    assert found[name]["dim"] == 16
    assert found[name]["none"] == [0, 16]
    fingerprint, distance = found[name]["twin"]  # pickled
    assert fingerprint == found[name]["fingerprint"]
    assert distance < 1e-6


@pytest.mark.parametrize("name", WITH_EMBEDDINGS)
def test_texts_equal_the_path_from_their_embeddings_and_gradients_reach_these(found, name):
    assert found[name]["from embeddings"] < 1e-6
    padding_is_read = name == "Tiny-Sigmoid"
    assert found[name]["gradients"] == [True, padding_is_read]
    assert found[name]["length"] == 64 if padding_is_read else found[name]["length"] < 77
    assert found[name]["prompt tower"] < 1e-5


@pytest.mark.parametrize("name", MODELS)
def test_scale_and_bias_are_the_models_own_in_any_precision(found, name):
    ours, theirs = found[name]["scale"]
    assert ours == pytest.approx(theirs, rel=1e-6)
    assert found[name]["half scale"] == ours
    assert found[name]["half"] > 0.99
    assert found[name]["bias"] == (-10 if name == "Tiny-Sigmoid" else 0)


def test_the_fingerprint_is_that_of_weights_and_configuration(found):
    first = found["Tiny-CLIP"]["fingerprint"]
    assert found["Tiny-CLIP"]["again"] == first
    assert found["trained"] == first
    assert len({first, found["other seed"], found["other activation"]}) == 3


@pytest.mark.parametrize("kind", ["by files", "by configuration"])
def test_another_tokenizer_has_another_fingerprint(found, kind):
    first, other, again = found["tokenizers"][kind]
    assert first["ids"] != other["ids"], "the tokenizers are alike, so this shows nothing"
    assert first["fingerprint"] != other["fingerprint"]
    assert first == again


def test_images_are_prepared_as_open_clip_says(found):
    assert found["Tiny-CLIP"]["preprocess"] == {
        "size": 32,
        "resize": "shortest",
        "resample": "bicubic",
        "mean": [0.48145466, 0.4578275, 0.40821073],
        "std": [0.26862954, 0.26130258, 0.27577711],
    }


@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        ("openclip:hf-hub:pta-tests/tiny", "pta-tests/tiny"),
        ("openclip:Tiny-CLIP/openai", "Tiny-CLIP"),
        ("openclip:Tiny-CLIP/named", "Tiny-CLIP"),
    ],
)
def test_cached_repositories_and_tags_load_without_network_with_their_file_activation_and_pixels(
    found, name, architecture
):
    assert found["file matters"] > 1e-4, "the file makes no difference, so this shows nothing"
    assert found["activation matters"] > 1e-4, "the activation makes no difference, so this shows nothing"
    assert found[name]["texts"] < 1e-6
    assert found[name]["images"] < 1e-6
    assert found[name]["architecture"] == architecture
    assert found[name]["preprocess"] == {
        "size": 32,
        "resize": "square",
        "resample": "bilinear",
        "mean": [0.5, 0.5, 0.5],
        "std": [0.25, 0.25, 0.25],
    }


def test_pickled_code_and_code_in_a_repository_are_not_run(found):
    assert found["harm is possible"] == [True, True]
    assert found["evil"] == found["trained"], "the weights beside the evil object are those of the honest file"
    assert "asks for 'tokenizer_kwargs': {'trust_remote_code': True}, which is not supported" in found["remote code"]
    assert not found["harm of remote code"]
    assert not found["harm"]


def test_absurd_settings_are_refused_in_one_line(found):
    for message in found["absurd"]:
        assert message.startswith("UnavailableModel: ")
        assert "\n" not in message


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("long", "InvalidParameter: a text has 76 tokens, Tiny-CLIP reads at most 75; shorten 'x x"),
        ("architecture", "open_clip has no 'ViT-B16'; did you mean 'ViT-B-16'?"),
        ("tag", "nor a tag that open_clip has for ViT-B-16; did you mean 'openai'?"),
        ("no tag", "names neither a file with weights nor a tag"),
        ("mismatch", "cannot be loaded"),
        ("embeddings", "InvalidParameter: the text tower of Tiny-ClassToken takes texts only, no token embeddings"),
        ("prompts", "InvalidParameter: the text tower of Tiny-ClassToken takes texts only, no token embeddings"),
        ("fetch", "openclip:ViT-B-16/openai is not on this machine and could not be fetched (HF_HUB_OFFLINE is set)"),
        ("fetch repository", "openclip:hf-hub:laion/nothing is not on this machine and could not be fetched"),
    ],
)
def test_a_mistake_gets_one_line(found, case, words):
    message = found["complaints"][case]
    assert words in message
    assert "\n" not in message
    assert found["longest"]  # of the texts that are not too long


@pytest.mark.parametrize("missing", ["open_clip", "torchvision"])
def test_what_is_missing_is_named_with_the_way_to_get_it(monkeypatch, missing):
    def find(name):
        return None if name == missing else object()

    monkeypatch.setattr("pta.encoders.openclip.find_spec", find)
    with pytest.raises(UnavailableModel, match=rf"need {missing}, .*pip install -e '\.\[openclip\]'.*to torch \d"):
        OpenClipEncoder.load("ViT-B-16/openai")


def test_a_torchvision_for_another_torch_is_told_in_one_line(monkeypatch):
    def broken(name):
        raise RuntimeError("operator torchvision::nms does not exist\nand more")

    monkeypatch.setattr("pta.encoders.openclip.find_spec", lambda name: object())
    monkeypatch.setattr("pta.encoders.openclip.import_module", broken)
    with pytest.raises(UnavailableModel, match=r"does not load \(operator torchvision::nms does not exist\); run pip"):
        OpenClipEncoder.load("ViT-B-16/openai")

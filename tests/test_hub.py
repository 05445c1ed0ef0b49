"""Classifiers on the Hugging Face Hub: what is sent, what is read, and what strangers' repositories cannot do."""

import json
import os
import subprocess
import sys
from pathlib import Path

import huggingface_hub
import pytest
import torch
from fake_hub import fake_hub
from photos import FASHION

import pta
from pta.door.files import load_tensors, save_tensors
from pta.errors import InvalidParameter, MissingPackage, PtaError, StateMismatch, UnavailableModel, UnreadableFile
from pta.run.hub import CARD, CONFIG, STATE, DifferentModel, HubModel
from pta.run.hub_config import require_model_of_the_hub

NAMES = FASHION.class_names
SECRETS = ("/home/someone", "camera-7", "patient", "thumb", "monitor")


def classifier(method="wpta", model="embedded", **options):
    return pta.Classifier(model, NAMES, method=method, cache=None, **options)


@pytest.fixture(scope="module")
def learned():
    made = classifier()
    made(list(FASHION.images[:120]))
    return made


@pytest.fixture
def folder(learned, tmp_path):
    learned.save_pretrained(tmp_path / "shop")
    return tmp_path / "shop"


@pytest.fixture
def hub(monkeypatch, tmp_path):
    with fake_hub() as running:
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", running.url)
        template = running.url + "/{repo_id}/resolve/{revision}/{filename}"
        for module in (huggingface_hub.constants, huggingface_hub.file_download):  # the latter before version 1
            monkeypatch.setattr(module, "HUGGINGFACE_CO_URL_TEMPLATE", template, raising=False)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        running.how = {"token": running.token, "cache_dir": tmp_path / "cache"}
        yield running
        if hasattr(huggingface_hub, "close_session"):  # from version 1 on
            huggingface_hub.close_session()


def load(place, **options):
    return pta.Classifier.from_pretrained(place, **{"cache": None, **options})


def rewrite(folder, **changed):
    config = json.loads((folder / CONFIG).read_text())
    config.update(changed)
    (folder / CONFIG).write_text(json.dumps({name: value for name, value in config.items() if value is not ...}))


def same_answers(one, other):
    probes = list(FASHION.images[200:210])
    return one(probes, learn=False) == other(probes, learn=False)


# -- there and back ---------------------------------------------------------------------------------------------------


def test_a_classifier_from_a_folder_answers_and_learns_on_as_before(learned, folder):
    loaded, kept = load(folder), learned.adapter.clone()
    assert (loaded.classes, loaded.adapter.name, loaded.adapter.position) == (tuple(NAMES), "wpta", 120)
    assert same_answers(loaded, learned)
    loaded(list(FASHION.images[120:140]))
    assert loaded.adapter.position == 140
    assert learned.adapter.position == kept.position


@pytest.mark.parametrize("method", ["pta", "tda", "clip", "bca"])
def test_every_kind_of_state_comes_back(method, tmp_path):
    made = classifier(method, templates=["a photo of a {}."], descriptions={name: [f"It is {name}."] for name in NAMES})
    made(list(FASHION.images[:20]))
    made.save_pretrained(tmp_path)
    loaded = load(tmp_path)
    assert (loaded.adapter.parameters, loaded.descriptions) == (made.adapter.parameters, made.descriptions)
    assert same_answers(loaded, made)


def test_a_classifier_goes_to_the_hub_and_comes_back_with_its_revision(learned, hub):
    shown = []
    address = learned.push_to_hub("me/shop", token=hub.token, show=shown.append)
    assert (set(hub.files["me/shop"]), hub.public) == ({STATE, CONFIG, CARD}, set())
    assert str(address).endswith(hub.revision("me/shop"))
    assert shown[0] == "me/shop (private):"
    assert {line.split(":")[0].strip() for line in shown} > {STATE, CONFIG, CARD}
    loaded = load("me/shop", **hub.how)
    assert loaded.origin == f"me/shop@{hub.revision('me/shop')}"
    assert same_answers(loaded, learned)
    loaded(list(FASHION.images[120:125]))
    loaded.push_to_hub("me/next", token=hub.token, show=shown.append)
    assert json.loads(hub.files["me/next"][CONFIG])["continued_from"] == loaded.origin
    assert loaded.origin.replace("_", "\\_") in hub.files["me/next"][CARD].decode()
    assert not any("README" in path for path in hub.asked if "/resolve/" in path), "the card is not read"


def test_a_revision_is_kept_and_found_again_without_a_network(learned, hub):
    learned.push_to_hub("me/shop", token=hub.token, show=str)
    first = hub.revision("me/shop")
    load("me/shop", revision=first, **hub.how)
    asked = len(hub.asked)
    again = load("me/shop", revision=first, local_files_only=True, **hub.how)
    assert (again.origin, len(hub.asked)) == (f"me/shop@{first}", asked)
    with pytest.raises(UnavailableModel, match="me/shop could not be fetched: the repository has no such revision"):
        load("me/shop", revision="v9", **hub.how)


def test_a_process_uses_the_hub_that_the_environment_names(learned, hub, tmp_path):
    learned.push_to_hub("me/shop", token=hub.token, show=str)
    code = "import pta; print(pta.Classifier.from_pretrained('me/shop', cache=None).origin)"
    given = {"HF_ENDPOINT": hub.url, "HF_TOKEN": hub.token, "HF_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **given}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == f"me/shop@{hub.revision('me/shop')}"
    kept = [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
    assert not any(hub.token.encode() in path.read_bytes() for path in kept)


# -- what is sent -----------------------------------------------------------------------------------------------------


def test_nothing_of_the_stream_is_sent(hub, tmp_path):
    made = classifier("pta")
    made(list(FASHION.images[:20]), labels=[NAMES[0], *[None] * 19])
    record = {"taken": 20, "last": "/home/someone/camera-7/patient.jpg", "keys": "0" * 64, "rows": None}
    watched = {"thumb": torch.ones(8, dtype=torch.uint8)}, {"monitor": "camera-7"}
    made.save(tmp_path / "state.safetensors", stream=record, monitor=watched)
    made.load(tmp_path / "state.safetensors")
    made.push_to_hub("me/shop", token=hub.token, show=str)
    sent = b"".join([*hub.files["me/shop"].values()])
    state = hub.files["me/shop"][STATE]
    for secret in (*SECRETS, str(tmp_path), hub.token):
        assert secret.encode() not in (state if secret == "monitor" else sent), secret
    assert not any(hub.token.encode() in body for body in hub.bodies)


def test_descriptions_of_other_classes_are_not_sent(tmp_path):
    described = {name: [f"It is {name}."] for name in NAMES}
    made = classifier("pta", descriptions={**described, "patient": ["The patient of room 7."]})
    made.save_pretrained(tmp_path)
    assert load(tmp_path).descriptions == described


def test_what_was_learned_from_something_else_has_no_origin(learned, folder):
    loaded = load(folder)
    for forget in (loaded.reset, lambda: loaded.load(folder / STATE)):
        loaded.origin = "me/shop@0"
        loaded.reset(classes=NAMES[:1])
        assert loaded.origin == "me/shop@0"
        forget()
        assert loaded.origin is None


def test_a_dry_run_shows_the_same_and_asks_nothing(learned, hub):
    shown = []
    assert learned.push_to_hub("me/shop", dry_run=True, show=shown.append) is None
    assert not hub.asked
    real = []
    learned.push_to_hub("me/shop", token=hub.token, show=real.append)
    assert shown == real
    assert "sources and labels" in shown[-1]


def test_a_public_repository_must_be_named_public(learned, hub):
    hub.files["me/shop"] = {}
    hub.public.add("me/shop")
    with pytest.raises(InvalidParameter, match="me/shop is public; give private=False"):
        learned.push_to_hub("me/shop", token=hub.token, show=str)
    assert not hub.files["me/shop"]
    learned.push_to_hub("me/shop", private=False, token=hub.token, show=str)
    assert hub.files["me/shop"]


@pytest.mark.filterwarnings("ignore::pta.data.prompts.DoubtfulClassNames")
def test_the_card_tells_what_the_state_holds_and_no_markup_of_classes(tmp_path):
    made = pta.Classifier("embedded", ["bag", "<img src=x> | [a](http://b)", "boot"], method="pta", cache=None)
    made(list(FASHION.images[:20]))
    made.save_pretrained(tmp_path)
    text = (tmp_path / CARD).read_text()
    assert "# 3 classes, pta, 20 samples" in text
    assert "&lt;img src=x&gt; \\| \\[a\\](http://b)" in text
    for part in (
        "| bag | yes |",
        "Do not stop learning yet: pta has learned from",
        "`calibration=fixed`",
        "`embedded`",
    ):
        assert part in text, part
    assert "## Not tested" in text
    front = text.split("---")[1]
    assert "library_name: pta" in front
    assert "base_model" not in front


# -- a user's mistakes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "options", "line"),
    [
        ("https://huggingface.co/me/shop", {}, "is neither a folder here nor OWNER/NAME on the hub"),
        ("shop.safetensors", {}, "Classifier.load reads a file with a state"),
        ("me/shop", {"devise": "cpu"}, "no option 'devise'; did you mean 'device'?"),
        ("me/shop", {"classes": ["a", "b"]}, "the repository has its own classes"),
        (None, {}, "None is neither a folder"),
    ],
)
def test_a_mistake_in_the_call_is_one_line(given, options, line):
    with pytest.raises(InvalidParameter) as refused:
        load(given, **options)
    assert line in str(refused.value)


def test_a_repository_of_something_else_is_one_line(hub, tmp_path):
    hub.files["openai/clip"] = {"config.json": b"{}", "model.safetensors": b""}
    with pytest.raises(UnreadableFile, match=r"openai/clip has no state\.safetensors: it was not written by push_to"):
        load("openai/clip", **hub.how)
    with pytest.raises(UnreadableFile, match=r"has no config\.json"):
        load(tmp_path)
    with pytest.raises(InvalidParameter, match="is a folder and has no revisions; leave revision out"):
        load(tmp_path, revision="main")
    with pytest.raises(UnavailableModel, match="me/none could not be fetched: the hub knows no such model"):
        load("me/none", **hub.how)


def test_a_wrong_token_and_a_hub_that_is_away_are_one_line(learned, hub, monkeypatch):
    with pytest.raises(
        UnavailableModel, match="was not sent: the hub wants a token with the right to do this"
    ) as refused:
        learned.push_to_hub("me/shop", token="hf_wrong", show=str)
    assert "hf_wrong" not in str(refused.value)
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(UnavailableModel, match="could not be fetched: the hub cannot be reached"):
        load("me/shop", **hub.how)


def test_files_of_something_else_are_not_overwritten(learned, tmp_path):
    for name in ("README.md", "config.json"):
        (tmp_path / name).write_text("mine")
        with pytest.raises(InvalidParameter, match=f"has a {name} of something else; give another folder"):
            learned.save_pretrained(tmp_path)
        assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {name: "mine"}
        (tmp_path / name).unlink()
    for _ in range(2):
        learned.save_pretrained(tmp_path)


def test_a_model_that_others_cannot_load_is_not_sent(learned, tmp_path):
    for model in (learned.encoder, "hf:/models/clip"):
        made = classifier()
        made.model_name = None if model is learned.encoder else model
        with pytest.raises(InvalidParameter, match="others cannot load"):
            made.save_pretrained(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    with pytest.raises(InvalidParameter, match="'shop' is not OWNER/NAME on the hub"):
        learned.push_to_hub("shop", dry_run=True)


def test_without_the_clients_package_one_line_says_what_to_install(learned, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingPackage, match="the hub needs huggingface_hub; run"):
        learned.push_to_hub("me/shop")


def test_a_classifier_does_not_import_the_clients_package():
    code = "import sys, pta; pta.Classifier; print('huggingface_hub' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# -- repositories of strangers ----------------------------------------------------------------------------------------

HOSTILE_MODELS = [
    *("hf:/etc", "hf:../x", "hf:~/x", "hf:a/../b", "hf:./a", "file:/etc/passwd", "file:a/b", "ulip:a/b"),
    *("https://evil/x", "hf:https://evil/x", "openclip:/x/y", "openclip:ViT-B-32//etc/x", "openclip:local-dir:/x"),
    *("openclip:ViT-B-32/../x", "plugin:x", "hf:me/a\n", "hf:me/a b", "", None, ["embedded"], {"auto_map": "x"}),
]


@pytest.mark.parametrize("model", HOSTILE_MODELS, ids=str)
def test_a_model_by_path_address_or_plugin_is_refused_before_it_is_loaded(folder, model, monkeypatch):
    monkeypatch.setattr("pta.run.classifier.load_encoder", lambda *_, **__: pytest.fail("it was loaded"))
    rewrite(folder, model=model)
    with pytest.raises(InvalidParameter, match=r"config\.json: the model .* is neither packaged nor of the hub"):
        load(folder)


def test_a_folder_here_does_not_take_the_place_of_a_model_of_the_hub(tmp_path, monkeypatch):
    (tmp_path / "openai" / "clip").mkdir(parents=True)
    (tmp_path / "weights.pt").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    for model in ("hf:openai/clip", "openclip:ViT-B-32/weights.pt"):
        with pytest.raises(InvalidParameter, match="is also here"):
            require_model_of_the_hub(model)
    for model in ("hf:openai/clip-vit-base-patch16", "openclip:ViT-B-32/laion2b_s34b_b79k", "openclip:hf-hub:a/b"):
        require_model_of_the_hub(model)


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"format": 2}, "it has format 2; this version of pta reads 1"),
        ({"format": ...}, "it has format None"),
        ({"auto_map": {"x": "y"}}, "it has 'auto_map', which pta does not read"),
        ({"trust_remote_code": True}, "it has 'trust_remote_code'"),
        ({"method": ...}, "it has no method"),
        ({"method": "os.system"}, "no method is called 'os.system'"),
        ({"method": 7}, "method must be a text"),
        ({"parameters": {"cache": "/tmp/x"}}, "wpta has no parameter 'cache'"),
        ({"parameters": {"trust_remote_code": True}}, "wpta has no parameter 'trust_remote_code'"),
        ({"parameters": [1]}, "parameters must be a dictionary"),
        ({"templates": "/etc/passwd.txt"}, "templates must be a list of texts"),
        ({"templates": ["a {}"] * 10**6}, "texts of classes; at most"),
        ({"classes": {"a": 1}}, "classes must be a list of texts"),
        ({"classes": ["a", 7]}, "classes must be a list of texts"),
        ({"descriptions": {"bag": "text"}}, "must be a list of texts"),
        ({"continued_from": 7}, "continued_from must be a text"),
    ],
    ids=str,
)
def test_a_wrong_config_is_refused_in_one_line(folder, changed, line):
    rewrite(folder, **changed)
    with pytest.raises(InvalidParameter) as refused:
        load(folder)
    assert line in str(refused.value)
    assert "config.json" in str(refused.value)


@pytest.mark.parametrize("content", [b"[]", b"{", b"\xff\xfe", b"[" * 100_000, b'"x"', b"{}"])
def test_a_config_that_is_not_one_is_refused(folder, content):
    (folder / CONFIG).write_bytes(content)
    with pytest.raises(PtaError, match=r"config\.json"):
        load(folder)


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"classes": ["a", "b"]}, "other class_names than config.json"),
        ({"classes": list(reversed(NAMES))}, "other class_names"),
        ({"method": "pta", "parameters": {}}, "other method"),
        ({"parameters": {"ridge": 1.0}}, "other parameters"),
        ({"templates": ["a blurry drawing of one {} on the moon."]}, "another model or other templates"),
    ],
)
def test_a_state_that_does_not_match_is_refused(folder, changed, line):
    rewrite(folder, **changed)
    with pytest.raises(StateMismatch, match=line):
        load(folder)


def test_absurd_parameters_take_no_memory(tmp_path, monkeypatch):
    made = classifier("adapt")
    made.save_pretrained(tmp_path)
    absurd = {**made.adapter.without_former(made.adapter.parameters), "slots": 10_000}
    rewrite(tmp_path, parameters=absurd)
    tensors, about = load_tensors(tmp_path / STATE, "state")
    save_tensors(tmp_path / STATE, tensors, {**about, "parameters": absurd})
    monkeypatch.setattr("pta.run.classifier.load_encoder", lambda *_, **__: pytest.fail("it was loaded"))
    with pytest.raises(StateMismatch, match="the parameters ask for a state of 52,"):
        load(tmp_path)


@pytest.mark.parametrize("content", [b"", b"\x80\x04cos\nsystem\n.", b"\xff" * 64])
def test_a_state_that_is_not_one_is_refused(folder, content):
    (folder / STATE).write_bytes(content)
    with pytest.raises(UnreadableFile, match=r"state\.safetensors"):
        load(folder)


@pytest.mark.parametrize(("file", "size"), [(STATE, 2**40), (CONFIG, 2**30)])
def test_a_huge_file_is_refused_before_anything_is_fetched(learned, hub, file, size):
    learned.push_to_hub("me/shop", token=hub.token, show=str)
    hub.sizes[file], before = size, len(hub.asked)
    with pytest.raises(UnreadableFile, match=f"me/shop: {file} has {size:,} bytes; at most"):
        load("me/shop", **hub.how)
    assert not any("/resolve/" in path for path in hub.asked[before:])


def test_other_files_and_paths_of_a_repository_are_never_fetched(learned, hub, tmp_path):
    learned.push_to_hub("me/shop", token=hub.token, show=str)
    hub.files["me/shop"] |= {"pytorch_model.bin": b"\x80", "run.py": b"x", "../../evil": b"x", "sub/config.json": b"{}"}
    assert same_answers(load("me/shop", **hub.how), learned)
    kept = {path.name for path in (tmp_path / "cache").rglob("snapshots/*/*")}
    assert kept == {STATE, CONFIG}
    assert not list(Path(tmp_path).rglob("evil"))


def test_another_model_than_the_states_is_told(folder):
    rewrite(folder, model_fingerprint="0" * 64)
    with pytest.warns(DifferentModel, match="is not exactly the model"):
        load(folder)


def test_the_interface_is_that_of_the_mixin():
    assert issubclass(HubModel, huggingface_hub.ModelHubMixin)
    for name in ("from_pretrained", "save_pretrained", "push_to_hub"):
        assert callable(getattr(pta.Classifier, name))

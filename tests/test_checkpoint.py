"""`file:`: every layout a CLIP checkpoint comes in gives the same model, and nothing else is mistaken for one."""

import json
import warnings

import pytest
import torch
from hostile_archives import Trap
from openai_checkpoints import random_state, random_transformers_clip, write_openai_archive
from safetensors.torch import save_file

from pta.door.images import Preprocessing
from pta.errors import InvalidParameter, PtaError, UnavailableModel, UnreadableFile
from pta.models import load_encoder
from pta.models.clip.checkpoint import load_checkpoint, settings_beside
from pta.models.clip.encoder import ClipEncoder
from pta.models.clip.transformer import QuickGelu

TEXT_TOWER = ("text_projection", "positional_embedding", "token_embedding", "transformer", "ln_final")
OPEN_CLIP = {"model_cfg": {"embed_dim": 32, "vision_cfg": {"layers": 2}, "text_cfg": {"width": 64, "heads": 1}}}


@pytest.fixture(scope="module")
def state():
    return random_state("ViT")


@pytest.fixture(scope="module")
def fingerprints(state):
    return {name: ClipEncoder(state, quick_gelu=name == "quickgelu").fingerprint for name in ("gelu", "quickgelu")}


@pytest.fixture
def written(tmp_path, state):
    """Writes weights, and perhaps a description beside them; gives the path."""

    def write(weights=state, description=None, name="open_clip_config.json"):
        torch.save(weights, tmp_path / "weights.pt")
        if description is not None:
            (tmp_path / name).write_text(description if isinstance(description, str) else json.dumps(description))
        return str(tmp_path / "weights.pt")

    return write


# -- OpenAI's archives -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["ViT", "RN50"])
def test_an_archive_of_openai_is_its_weights_with_quickgelu(tmp_path, kind):
    state = random_state(kind)
    write_openai_archive(tmp_path / "model.pt", state)
    rounded = {name: weight.half() if weight.ndim > 1 else weight for name, weight in state.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoder = load_encoder(f"file:{tmp_path / 'model.pt'}")
    assert encoder.dtype == torch.float32
    assert encoder.fingerprint == ClipEncoder(rounded, quick_gelu=True).fingerprint


# -- open_clip -------------------------------------------------------------------------------------------------------


def as_it_is(state):
    return state


def of_a_training_run(state):
    return {"epoch": 3, "name": "run", "state_dict": {f"module.{name}": weight for name, weight in state.items()}}


def with_its_own_text_tower(state):
    return {f"text.{name}" if name.startswith(TEXT_TOWER) else name: weight for name, weight in state.items()}


@pytest.mark.parametrize("layout", [as_it_is, of_a_training_run, with_its_own_text_tower])
def test_every_form_of_an_open_clip_checkpoint_gives_the_same_model(written, state, fingerprints, layout):
    assert load_checkpoint(written(layout(state), OPEN_CLIP)).fingerprint == fingerprints["gelu"]


def test_open_clip_safetensors_give_the_same_model_and_its_json_decides_activation_and_pixels(tmp_path, state):
    save_file(state, tmp_path / "open_clip_model.safetensors")
    pixels = {"mean": [0.5] * 3, "std": [0.25] * 3, "interpolation": "bilinear", "resize_mode": "squash"}
    config = {"model_cfg": {**OPEN_CLIP["model_cfg"], "quick_gelu": True}, "preprocess_cfg": pixels}
    (tmp_path / "open_clip_config.json").write_text(json.dumps(config))
    encoder = load_checkpoint(str(tmp_path / "open_clip_model.safetensors"))
    how = Preprocessing(32, "square", "bilinear", (0.5,) * 3, (0.25,) * 3)
    assert encoder.preprocess == how
    assert encoder.fingerprint == ClipEncoder(state, quick_gelu=True, preprocess=how).fingerprint


def test_the_json_decides_how_wide_a_head_is(written, state):
    model = {"vision_cfg": {"head_width": 32}, "text_cfg": {"width": 64, "heads": 4}}
    wanted = ClipEncoder(state, quick_gelu=False, image_head_width=32, text_head_width=16)
    assert load_checkpoint(written(description={"model_cfg": model})).fingerprint == wanted.fingerprint


# -- transformers ----------------------------------------------------------------------------------------------------


def test_the_processor_beside_decides_mean_and_deviation(tmp_path):
    random_transformers_clip().save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text('{"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]}')
    how = load_checkpoint(str(tmp_path / "model.safetensors")).preprocess
    assert (how.mean, how.std) == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))


def test_of_two_descriptions_the_one_of_the_layout_counts(tmp_path, written, fingerprints):
    random_transformers_clip("quick_gelu").save_pretrained(tmp_path)
    assert load_checkpoint(written(description=OPEN_CLIP)).fingerprint == fingerprints["gelu"]
    layers = load_checkpoint(str(tmp_path / "model.safetensors")).visual.transformer.resblocks[0].mlp
    assert isinstance(layers.activation, QuickGelu)


# -- the activation --------------------------------------------------------------------------------------------------


def test_the_name_says_the_activation_where_the_file_cannot_and_overrides_its_json(written, fingerprints):
    path = written()
    with pytest.raises(UnavailableModel, match=r"open_clip_config\.json .*weights\.pt#quickgelu .*#gelu"):
        load_checkpoint(path)
    assert {name: load_checkpoint(f"{path}#{name}").fingerprint for name in fingerprints} == fingerprints
    with pytest.raises(InvalidParameter, match="did you mean 'quickgelu'"):
        load_checkpoint(f"{path}#quick_gelu")
    assert load_checkpoint(f"{written(description=OPEN_CLIP)}#quickgelu").fingerprint == fingerprints["quickgelu"]


# -- what is refused -------------------------------------------------------------------------------------------------


REFUSED = {
    "no such checkpoint": ("nothing.pt", lambda path: None),
    "is a folder": ("folder", lambda path: path.mkdir()),
    "cannot be read as a checkpoint": ("half.safetensors", lambda path: path.write_bytes(b"\x10" + bytes(30))),
    r"is a pickle, as torch.save wrote before version 1\.6; save the model's state_dict\(\) as safetensors": (
        "old.pt",
        lambda path: torch.save(Trap(path.with_name("harm")), path, _use_new_zipfile_serialization=False),
    ),
    "holds no state dict": ("malice.bin", lambda path: torch.save({"a": Trap(path.with_name("harm"))}, path)),
    "neither a safetensors file nor a zip": ("text.pt", lambda path: path.write_text("version https://git-lfs")),
    "truncated or damaged": ("empty.pt", lambda path: path.touch()),
    "it holds no state dict": ("numbers.pt", lambda path: torch.save({"epoch": 3}, path)),
    "no state dict": ("list.pt", lambda path: torch.save([1, 2], path)),
    "'text_projection' is missing": ("other.pt", lambda path: torch.save({"fc.weight": torch.zeros(3, 3)}, path)),
    "is a SigLIP model": ("siglip.pt", lambda path: torch.save({"logit_bias": torch.zeros(1)}, path)),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_no_clip_checkpoint_is_refused_in_one_line(tmp_path, message):
    name, write = REFUSED[message]
    write(tmp_path / name)
    with pytest.raises((UnreadableFile, UnavailableModel), match=message) as refused:
        load_checkpoint(str(tmp_path / name))
    assert name in str(refused.value)
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("whole.pt", lambda state, path: torch.save(state, path)),
        ("whole.safetensors", save_file),
        ("archive.pt", lambda state, path: write_openai_archive(path, state)),
    ],
)
def test_a_truncated_file_is_refused_wherever_it_ends(tmp_path, state, name, write):
    write(state, tmp_path / name)
    content = (tmp_path / name).read_bytes()
    for end in (1, 100, len(content) // 2, len(content) - 10):
        (tmp_path / name).write_bytes(content[:end])
        with pytest.raises(PtaError, match="truncated or damaged"):
            load_checkpoint(f"{tmp_path / name}#gelu")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("open_clip_config.json", "{", "is not JSON"),
        ("open_clip_config.json", "[]", "does not describe a CLIP model"),
        ("open_clip_config.json", '{"model_cfg": 3}', "does not describe a CLIP model"),
        ("open_clip_config.json", '{"model_cfg": {"text_cfg": {"heads": 0}}}', "does not describe a CLIP model"),
        ("open_clip_config.json", '{"model_cfg": {"text_cfg": {"heads": 900}}}', "must have 1 to 4096 channels"),
        ("open_clip_config.json", '{"preprocess_cfg": {"resize_mode": "longest"}}', "does not describe a CLIP model"),
        ("open_clip_config.json", '{"model_cfg": {"vision_cfg": {"pool_type": "avg"}}}', "asks for 'pool_type': 'avg'"),
        ("open_clip_config.json", '{"model_cfg": {"text_cfg": {"no_causal_mask": true}}}', "asks for 'no_causal_mask'"),
        ("config.json", '{"model_type": "siglip"}', "of type 'siglip'"),
        ("config.json", '{"model_type": "clip", "text_config": {"hidden_act": "gelu"}}', "'quick_gelu' and 'gelu'"),
        ("config.json", '{"model_type": "clip", "text_config": {"layer_norm_eps": 1e-6}}', "another layer_norm_eps"),
    ],
)
def test_a_description_that_asks_for_something_else_is_refused(written, name, content, message):
    with pytest.raises((UnreadableFile, UnavailableModel), match=message):
        load_checkpoint(written(description=content, name=name))


UNUSABLE = [
    ("the width of its attention heads is unknown", {"visual.conv1.weight": torch.zeros(1280, 3, 8, 8)}),
    ("layers under", {f"transformer.resblocks.{n}.x": torch.zeros(1) for n in range(1001)}),
    *(
        ("has scale|is not finite", {"logit_scale": torch.tensor(value, dtype=torch.float64)})
        for value in (1e39, 710.0, 9.3, -200.0, float("nan"), float("-inf"))
    ),
]


@pytest.mark.parametrize(("message", "changes"), UNUSABLE)
def test_weights_that_no_model_can_have_are_refused(written, state, message, changes):
    with pytest.raises(UnavailableModel, match=message):
        load_encoder(f"file:{written(state | changes)}#gelu")


def test_weights_of_transformers_without_a_key_matrix_are_refused_by_its_name(written):
    weights = dict(random_transformers_clip().state_dict())
    del weights["text_model.encoder.layers.1.self_attn.k_proj.weight"]
    with pytest.raises(UnavailableModel, match=r"'transformer\.resblocks\.1\.attn\.k_proj\.weight' is missing"):
        load_checkpoint(f"{written(weights)}#gelu")


ABSURD = [10**9, 10**400, -1, 0, 1e39, -0.5, float("nan"), float("inf"), None, True, "x", "", [], {}, [[]], [1e39] * 3]
DESCRIPTIONS = {
    "open_clip_config.json": {
        "model_cfg": {"quick_gelu": 0, "vision_cfg": {"head_width": 64}, "text_cfg": {"width": 64, "heads": 1}},
        "preprocess_cfg": {"mean": [0.5] * 3, "std": [0.5] * 3, "interpolation": "bicubic", "resize_mode": "squash"},
    },
    "config.json": {
        "model_type": "clip",
        "vision_config": {"hidden_size": 64, "num_attention_heads": 1, "layer_norm_eps": 1e-5},
        "text_config": {"hidden_size": 64, "num_attention_heads": 1, "hidden_act": "quick_gelu"},
    },
    "preprocessor_config.json": {"image_mean": [0.5] * 3, "image_std": [0.5] * 3},
}


def variants(description):
    """A description with each of its values replaced by each absurd one."""
    yield from ABSURD
    for name, value in description.items() if isinstance(description, dict) else ():
        yield from ({**description, name: other} for other in variants(value))


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_a_description_with_absurd_values_gives_a_model_or_one_line(tmp_path, name):
    descriptions = ["[" * 100_000, '{"model_cfg": ' * 100_000, "\0\x80", *map(json.dumps, variants(DESCRIPTIONS[name]))]
    if name == "preprocessor_config.json":
        (tmp_path / "config.json").write_text(json.dumps(DESCRIPTIONS["config.json"]))
    loaded, refused = 0, []
    for description in descriptions:
        (tmp_path / name).write_text(description)
        try:
            found = settings_beside(tmp_path / "weights.pt", prefer=name)
            assert 0 < found.image_head_width <= 4096
            assert torch.tensor([*found.preprocess.mean, *found.preprocess.std]).isfinite().all()
            loaded += 1
        except PtaError as error:
            refused.append(str(error))
    assert len(refused) > loaded
    assert not [message for message in refused if len(message) > 500]


def test_weights_that_are_not_finite_are_refused_by_name_in_the_precision_asked_for(written, state):
    name = f"file:{written({**state, 'ln_final.bias': torch.full_like(state['ln_final.bias'], 1e6)})}#gelu"
    load_encoder(name)
    with pytest.raises(UnavailableModel, match=r"weight ln_final\.bias .* is not finite in torch\.float16"):
        load_encoder(name, dtype="float16")


def test_on_the_command_line_a_bad_model_file_is_one_line_and_exit_code_2(pta, tmp_path):
    (tmp_path / "bad.pt").write_bytes(b"PK\3\4" * 100)
    (tmp_path / "x.png").touch()
    done = pta("predict", "x.png", "--classes", "cat,dog", "--model", "file:bad.pt")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "bad.pt" in done.stderr

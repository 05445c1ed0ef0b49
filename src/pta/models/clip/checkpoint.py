"""A CLIP model from a single file: OpenAI's TorchScript archives, weights of open_clip, weights of transformers.

What weights cannot say about their model is in the JSON file that open_clip or transformers put beside them.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pta.door.files import read_json
from pta.door.images import CLIP_PREPROCESSING, Preprocessing
from pta.door.weights.hub import in_one_line
from pta.door.weights.weights import read_weights
from pta.errors import InvalidParameter, UnavailableModel, UnreadableFile, naming, nearest, shown
from pta.models.clip.encoder import ClipEncoder
from pta.models.clip.state_dict import State, in_openai_layout, is_huggingface, shape_of

ACTIVATIONS = {"quickgelu": True, "gelu": False}
_WIDEST_WITH_USUAL_HEADS = 1024  # up to ViT-L every head has 64 channels; larger models all differ
OPEN_CLIP, TRANSFORMERS = "open_clip_config.json", "config.json"

_WIDEST_HEAD = 4096  # in CLIP models it is 64 to 128

# Settings of open_clip that change no result, beside the weights; any other has to be off.
_READ = {"vision_cfg", "text_cfg", "quick_gelu", "head_width", "heads", "width"}
_IN_SHAPES = {"embed_dim", "layers", "mlp_ratio", "patch_size", "image_size", "context_length", "vocab_size"}
_HARMLESS = {"custom_text", "init_logit_scale", "patch_dropout", "output_tokens", "pad_id", "pos_embed_type"}
_DEFAULTS = {"pool_type": ("tok", "argmax"), "proj_type": ("linear",), "block_type": ("default",)}


@dataclass(frozen=True)
class ClipSettings:
    """How to compute with a state dict; the defaults are those of OpenAI's own models."""

    quick_gelu: bool = True
    image_head_width: int = 64
    text_head_width: int = 64
    preprocess: Preprocessing = CLIP_PREPROCESSING

    def __post_init__(self) -> None:
        if not all(1 <= width <= _WIDEST_HEAD for width in (self.image_head_width, self.text_head_width)):
            raise InvalidParameter(f"an attention head must have 1 to {_WIDEST_HEAD} channels")


def load_checkpoint(path: str) -> ClipEncoder:
    """The CLIP model in a file, in float32.

    `#quickgelu` or `#gelu` behind the path says its activation, whatever the JSON file beside it says.
    """
    file, activation = _split(path)
    if file.is_dir():
        raise UnreadableFile(f"{file} is a folder; name the file in it as file:PATH, or the whole folder as hf:{file}")
    weights, torchscript = read_weights(file)
    with naming(f"cannot load {file} as a CLIP model"):
        state = in_openai_layout(weights)
        settings = ClipSettings() if torchscript else _settings(file, weights, state, activation)
        if activation is not None:
            settings = replace(settings, quick_gelu=ACTIVATIONS[activation])
        return ClipEncoder(state, **vars(settings))


def _split(path: str) -> tuple[Path, str | None]:
    stem, _, activation = path.rpartition("#")
    if activation in ACTIVATIONS and stem:
        return Path(stem).expanduser(), activation
    if stem and Path(stem).expanduser().is_file():
        raise InvalidParameter(f"unknown activation {activation!r} behind {stem}; {nearest(activation, ACTIVATIONS)}")
    return Path(path).expanduser(), None


def _settings(file: Path, weights: State, state: State, activation: str | None) -> ClipSettings:
    found = settings_beside(file, prefer=TRANSFORMERS if is_huggingface(weights) else OPEN_CLIP)
    if found is not None:
        return found
    shape_of(state, "text_projection", 2)  # what is not a CLIP model should be refused, rather than asked for more
    if shape_of(state, "visual.conv1.weight", 4)[0] > _WIDEST_WITH_USUAL_HEADS:
        raise UnavailableModel(f"the width of its attention heads is unknown; put its {OPEN_CLIP} beside it")
    if activation is None:
        raise UnavailableModel(
            f"its activation is unknown; put its {OPEN_CLIP} or {TRANSFORMERS} beside it, or write "
            f"file:{file}#quickgelu (OpenAI's weights) or …#gelu (most others)"
        )
    return ClipSettings()


def settings_beside(weights: Path, *, prefer: str) -> ClipSettings | None:
    """The settings in the JSON file beside some weights; where there are two, in the preferred one."""
    beside = [weights.with_name(name) for name in sorted((OPEN_CLIP, TRANSFORMERS), key=lambda name: name != prefer)]
    path = next(filter(Path.is_file, beside), None)
    if path is None:
        return None
    with in_one_line(lambda said: f"{path} does not describe a CLIP model that file: reads: {said}"):
        return (_of_open_clip if path.name == OPEN_CLIP else _of_transformers)(path)


def _of_open_clip(path: Path) -> ClipSettings:
    config = read_json(path, "configuration")
    model, pixels = _section(config, "model_cfg"), _section(config, "preprocess_cfg")
    image, text = _section(model, "vision_cfg"), _section(model, "text_cfg")
    for name, value in (*model.items(), *image.items(), *text.items()):
        if value and name not in _READ | _IN_SHAPES | _HARMLESS and value not in _DEFAULTS.get(name, ()):
            raise UnavailableModel(f"it asks for {shown(name)}: {shown(value)}; openclip:… might do")
    resize = pixels.get("resize_mode", "shortest")
    return ClipSettings(
        quick_gelu=bool(model.get("quick_gelu", False)),
        image_head_width=int(image.get("head_width", 64)),
        text_head_width=int(text.get("width", 512)) // int(text.get("heads", 8)),
        preprocess=_pixels(
            pixels.get("mean"),
            pixels.get("std"),
            resample=pixels.get("interpolation", "bicubic"),
            resize="square" if resize == "squash" else resize,
        ),
    )


def _of_transformers(path: Path) -> ClipSettings:
    config = read_json(path, "configuration")
    if (kind := config.get("model_type")) != "clip":
        raise UnavailableModel(f"it is of type {shown(kind)}, not 'clip'")
    # What is left out has its default in transformers; old files repeat what counts under …_config_dict.
    image = {"hidden_size": 768, "num_attention_heads": 12} | _tower(config, "vision")
    text = {"hidden_size": 512, "num_attention_heads": 8} | _tower(config, "text")
    if image["hidden_act"] != text["hidden_act"] or image["hidden_act"] not in ("gelu", "quick_gelu"):
        acts = f"{shown(image['hidden_act'])} and {shown(text['hidden_act'])}"
        raise UnavailableModel(f"it asks for {acts}; file: knows gelu or quick_gelu for both")
    if {image["layer_norm_eps"], text["layer_norm_eps"]} != {1e-5}:
        raise UnavailableModel("it asks for another layer_norm_eps than CLIP's 1e-5; give the folder as hf:FOLDER")
    processor = path.with_name("preprocessor_config.json")
    pixels = read_json(processor, "configuration") if processor.is_file() else {}
    return ClipSettings(
        quick_gelu=image["hidden_act"] == "quick_gelu",
        image_head_width=int(image["hidden_size"]) // int(image["num_attention_heads"]),
        text_head_width=int(text["hidden_size"]) // int(text["num_attention_heads"]),
        preprocess=_pixels(pixels.get("image_mean"), pixels.get("image_std")),
    )


def _tower(config: dict[str, Any], name: str) -> dict[str, Any]:
    said = _section(config, f"{name}_config") | _section(config, f"{name}_config_dict")
    return {"hidden_act": "quick_gelu", "layer_norm_eps": 1e-5} | said


def _pixels(mean: list[float] | None, std: list[float] | None, **others: Any) -> Preprocessing:
    usual = CLIP_PREPROCESSING
    return replace(usual, mean=tuple(mean or usual.mean), std=tuple(std or usual.std), **others)


def _section(config: dict[str, Any], name: str) -> dict[str, Any]:
    return config.get(name) or {}

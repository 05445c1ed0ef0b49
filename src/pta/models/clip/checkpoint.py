"""A CLIP model from a single file: OpenAI's TorchScript archives, weights of open_clip, weights of transformers."""

from dataclasses import replace
from pathlib import Path

from pta.door.weights.weights import read_weights
from pta.errors import InvalidParameter, UnavailableModel, UnreadableFile, nearest
from pta.models.clip.encoder import ClipEncoder
from pta.models.clip.layouts import in_openai_layout, is_huggingface
from pta.models.clip.settings import OPEN_CLIP, TRANSFORMERS, ClipSettings, settings_beside
from pta.models.clip.state_dict import State, shape_of

ACTIVATIONS = {"quickgelu": True, "gelu": False}
_WIDEST_WITH_USUAL_HEADS = 1024  # up to ViT-L every head has 64 channels; larger models all differ


def load_checkpoint(path: str) -> ClipEncoder:
    """The CLIP model in a file, in float32.

    `#quickgelu` or `#gelu` behind the path says its activation, whatever the JSON file beside it says.
    """
    file, activation = _split(path)
    if file.is_dir():
        raise UnreadableFile(f"{file} is a folder; name the file in it as file:PATH, or the whole folder as hf:{file}")
    if not file.is_file():
        raise UnreadableFile(f"no such checkpoint: {file}")
    weights, torchscript = read_weights(file)
    try:
        state = in_openai_layout(weights)
        settings = ClipSettings() if torchscript else _settings(file, weights, state, activation)
        if activation is not None:
            settings = replace(settings, quick_gelu=ACTIVATIONS[activation])
        return ClipEncoder(state, **vars(settings))
    except UnavailableModel as error:
        raise UnavailableModel(f"cannot load {file} as a CLIP model: {error}") from None


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
    shape_of(state, "text_projection", 2)  # what is no CLIP model should be told so, rather than asked for more
    if shape_of(state, "visual.conv1.weight", 4)[0] > _WIDEST_WITH_USUAL_HEADS:
        raise UnavailableModel(f"the width of its attention heads is unknown; put its {OPEN_CLIP} beside it")
    if activation is None:
        raise UnavailableModel(
            f"its activation is unknown; put its {OPEN_CLIP} or {TRANSFORMERS} beside it, or write "
            f"file:{file}#quickgelu (OpenAI's weights) or …#gelu (most others)"
        )
    return ClipSettings()

"""A CLIP model from a single file: OpenAI's TorchScript archives, weights of open_clip, weights of transformers."""

import pickle
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from pta.encoders.clip_encoder import ClipEncoder
from pta.encoders.clip_settings import OPEN_CLIP, TRANSFORMERS, ClipSettings, settings_beside
from pta.encoders.clip_state import State, shape_of
from pta.encoders.state_dict_layouts import in_openai_layout, is_huggingface
from pta.errors import InvalidParameter, UnavailableModel, UnreadableFile, nearest

_MOST_CODE = 16 * 2**20  # bytes in a TorchScript archive; a CLIP model's code is far below a million
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
    archive = _is_torchscript(file)
    weights = _torchscript_weights(file) if archive else _plain_weights(file)
    try:
        state = in_openai_layout(weights)
        settings = ClipSettings() if archive else _settings(file, weights, state, activation)
        return ClipEncoder(
            state,
            quick_gelu=settings.quick_gelu if activation is None else ACTIVATIONS[activation],
            image_head_width=settings.image_head_width,
            text_head_width=settings.text_head_width,
            preprocess=settings.preprocess,
        )
    except UnavailableModel as error:
        raise UnavailableModel(f"cannot load {file}: {error}") from None


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
        raise UnavailableModel(f"it does not say how wide its attention heads are; put its {OPEN_CLIP} beside it")
    if activation is None:
        raise UnavailableModel(
            f"it does not say its activation; put its {OPEN_CLIP} or {TRANSFORMERS} beside it, or write "
            f"file:{file}#quickgelu (OpenAI's weights) or …#gelu (most others)"
        )
    return ClipSettings()


def _is_torchscript(file: Path) -> bool:
    if not zipfile.is_zipfile(file):
        return False
    try:
        with zipfile.ZipFile(file) as archive:
            inside = [name.partition("/")[2] for name in archive.namelist()]
    except (zipfile.BadZipFile, OSError) as error:
        raise UnreadableFile(f"{file} cannot be read (truncated or damaged?): {error}") from None
    return "constants.pkl" in inside and any(name.startswith("code/") for name in inside)


def _torchscript_weights(file: Path) -> dict[str, Tensor]:
    """The weights of an archive; its code is never run, so one whose code might be is refused."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of torch.jit, which OpenAI's files need
            weights = None if _might_run(file) else torch.jit.load(file, map_location="cpu").state_dict()  # type: ignore[no-untyped-call]
    except Exception:  # damaged archives fail in many ways
        raise UnreadableFile(f"{file} is no readable TorchScript archive (truncated or damaged?)") from None
    if weights is None:
        raise UnavailableModel(
            f"{file} is a TorchScript archive whose code might run when it is loaded; "
            "save the model's state_dict() as safetensors"
        )
    return dict(weights)


def _might_run(file: Path) -> bool:
    """Whether torch.jit.load might call a function in the archive; the only kind it calls is `__setstate__`."""
    with zipfile.ZipFile(file) as archive:
        if sum(entry.file_size for entry in archive.infolist() if _is_code(entry.filename)) > _MOST_CODE:
            return True
    reader = torch._C.PyTorchFileReader(str(file))  # finds the very entries that torch.jit.load does
    names = reader.get_all_records()
    if "model.json" in names:  # from before torch 1.4: code may lie anywhere in it
        return True
    return any(b"__setstate__" in reader.get_record(name) for name in names if _is_code(name))


def _is_code(name: str) -> bool:
    return name.lower().endswith(".py")


def _plain_weights(file: Path) -> dict[str, Tensor]:
    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        loaded = torch.load(file, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(file))
    except SafetensorError as error:
        raise UnreadableFile(f"{file} is no readable safetensors file (truncated or damaged?): {error}") from None
    except pickle.UnpicklingError:
        raise UnreadableFile(
            f"{file} is damaged or holds Python objects, which could run code when loaded; "
            "save the model's state_dict() as safetensors"
        ) from None
    except Exception:  # damaged files fail in many ways
        raise UnreadableFile(f"{file} is no readable checkpoint (truncated or damaged?)") from None
    state = (
        loaded.get("state_dict", loaded) if isinstance(loaded, Mapping) else loaded
    )  # a training run's has it inside
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise UnreadableFile(f"{file} holds no state dict (names and tensors)")
    return {str(name): weight for name, weight in state.items()}

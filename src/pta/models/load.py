"""Models by name; the prefix of a name is its source.

Names are `embedded`, `embedded-points`, `hf:…`, `openclip:…`, `file:…`, `ulip:…`, or `KIND:…`.

Other installed packages declare a KIND in the entry-point group `pta.encoders`: a function that takes the text after
the colon and returns an `Encoder`.
"""

from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from pkgutil import resolve_name
from typing import Literal, get_args

import torch

from pta.core.modality import CLOUDS, IMAGES, Modality
from pta.core.parameters import require_choice
from pta.core.plugins import load_plugin, plugin_names
from pta.errors import InvalidParameter, UnavailableModel, nearest
from pta.models.encoder import Encoder
from pta.models.onnx.encoder import on_onnx_runtime, require_runnable
from pta.models.packaged.embedded import EmbeddedEncoder, PackagedEncoder
from pta.models.packaged.embedded_points import EmbeddedPointsEncoder

DEFAULT_MODEL = "hf:openai/clip-vit-base-patch16"

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}

Runtime = Literal["torch", "onnx"]

GROUP = "pta.encoders"
_PACKAGED: dict[str, type[PackagedEncoder]] = {"embedded": EmbeddedEncoder, "embedded-points": EmbeddedPointsEncoder}
_LOADERS = {  # imported when they are used; and what their models read
    "hf": ("pta.models.huggingface:HuggingFaceEncoder.load", IMAGES),
    "openclip": ("pta.models.openclip:OpenClipEncoder.load", IMAGES),
    "file": ("pta.models.clip.checkpoint:load_checkpoint", IMAGES),
    "ulip": ("pta.models.clouds.ulip:load_ulip", CLOUDS),
}
_KINDS = (
    "embedded (small, knows clothing only), embedded-points (small, knows point clouds of furniture and the like), "
    "hf:FOLDER or hf:HUB/NAME, openclip:ARCHITECTURE/WEIGHTS, file:PATH, ulip:FOLDER (for point clouds)"
)


def load_encoder(
    name: str,
    *,
    device: str = "cpu",
    dtype: str = "float32",
    runtime: Runtime = "torch",
    on_export: Callable[[], None] = lambda: None,
) -> Encoder:
    """Load a model by name, on a device (`auto`: a GPU if there is one) and in a precision.

    With the runtime `onnx`, ONNX Runtime makes the features of images, on a CPU in float32. Before the image tower is
    exported for it, which happens once per model, `on_export` is called.

    >>> load_encoder("embedded").dim
    128
    """
    check_model(name, device=device, dtype=dtype, runtime=runtime)
    encoder = _load(name).ready(find_device(device), DTYPES[dtype])
    return encoder if runtime == "torch" else on_onnx_runtime(encoder, on_export)


def check_model(
    name: str, *, device: str = "cpu", dtype: str = "float32", runtime: Runtime = "torch"
) -> Modality | None:
    """Refuse what `load_encoder` would refuse, as far as that is known without loading the model.

    Returns what the model reads; None where only the loaded model can tell.

    >>> check_model("hf:/models/clip").name
    'image'
    """
    if dtype not in DTYPES:
        raise InvalidParameter(f"unknown precision {dtype!r}; {nearest(dtype, DTYPES)}")
    require_choice("runtime", runtime, get_args(Runtime))
    place, modality = find_device(device), _modality(name)
    if runtime == "onnx":
        require_runnable(place, dtype, modality)
    return modality


def _modality(name: str) -> Modality | None:
    """What a model of this name reads, which must be the name of one; None where only the loaded model can tell."""
    kind, _, rest = name.partition(":")
    if name in _PACKAGED:
        return _PACKAGED[name].modality
    if kind in _LOADERS and rest:
        return _LOADERS[kind][1]
    if load_plugin(GROUP, kind, UnavailableModel) is None:
        raise UnavailableModel(f"no model is called {name!r}; {_meant(name)}")
    return None


def _load(name: str) -> Encoder:
    """A model whose name was checked."""
    kind, _, rest = name.partition(":")
    if name in _PACKAGED:
        return _PACKAGED[name].load()
    if kind in _LOADERS:
        load: Callable[[str], Encoder] = resolve_name(_LOADERS[kind][0])
        return load(rest)
    declared: Callable[[str], object] = load_plugin(GROUP, kind, UnavailableModel)
    encoder = declared(rest)
    if not isinstance(encoder, Encoder):
        raise UnavailableModel(f"{kind} is declared by a plugin, but does not return a pta.models.Encoder")
    return encoder


def _meant(name: str) -> str:
    """The end of an error message about an unknown model: a suggestion, or the list of models.

    >>> _meant("openai/clip-vit-base-patch16"), _meant("embeded"), _meant("HF:openai/clip")
    ("did you mean 'hf:openai/clip-vit-base-patch16'?", "did you mean 'embedded'?", "did you mean 'hf:openai/clip'?")
    """
    kind, colon, rest = name.partition(":")
    if rest and kind.lower() in _LOADERS:
        return f"did you mean '{kind.lower()}:{rest}'?"
    if not colon and (Path(name).is_dir() or name.count("/") == 1):
        return f"did you mean 'hf:{name}'?"
    if not colon and Path(name).suffix in (".pt", ".safetensors", ".bin"):
        return f"did you mean 'file:{name}'?"
    if get_close_matches(name.lower(), _PACKAGED):
        return nearest(name, _PACKAGED)
    return f"models are {', '.join([_KINDS, *(f'{one}:…' for one in plugin_names(GROUP))])}"


def find_device(name: str) -> torch.device:
    """The device of that name, tried; `auto` is a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InvalidParameter(f"unknown device {name!r}; cpu, cuda, cuda:1, mps or auto") from None
    try:
        torch.zeros(1, device=device).item()
    except Exception as error:  # every kind of device fails in its own way
        raise InvalidParameter(
            f'torch cannot use the device {name!r} here; --device cpu (device="cpu" in Python) works everywhere'
        ) from error
    return device

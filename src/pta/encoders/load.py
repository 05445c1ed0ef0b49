"""A model by name. The name says where it comes from: `embedded`, `hf:…`, `openclip:…` or `file:…`."""

import torch

from pta.encoders.embedded import EmbeddedEncoder
from pta.encoders.encoder import Encoder
from pta.errors import InvalidParameter, UnavailableModel, nearest

DEFAULT_MODEL = "hf:openai/clip-vit-base-patch16"

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}

_KINDS = "embedded (small, knows clothing only), hf:FOLDER or hf:HUB/NAME, openclip:ARCHITECTURE/WEIGHTS, file:PATH"


def load_encoder(name: str, *, device: str = "cpu", dtype: str = "float32") -> Encoder:
    """The model of that name, ready on a device (`auto`: a GPU if there is one) in a precision.

    >>> load_encoder("embedded").dim
    128
    """
    if dtype not in DTYPES:
        raise InvalidParameter(f"unknown precision {dtype!r}; {nearest(dtype, DTYPES)}")
    return _load(name).ready(find_device(device), DTYPES[dtype])


def _load(name: str) -> Encoder:
    kind, _, rest = name.partition(":")
    if name == "embedded":
        return EmbeddedEncoder.load()
    if kind == "hf" and rest:
        from pta.encoders.huggingface import HuggingFaceEncoder

        return HuggingFaceEncoder.load(rest)
    if kind == "openclip" and rest:
        from pta.encoders.openclip import OpenClipEncoder

        return OpenClipEncoder.load(rest)
    if kind == "file" and rest:
        from pta.encoders.checkpoint import load_checkpoint

        return load_checkpoint(rest)
    raise UnavailableModel(f"no model is called {name!r}; models are {_KINDS}")


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
    except Exception:  # every kind of device fails in its own way
        raise InvalidParameter(
            f'torch cannot use the device {name!r} here; --device cpu (device="cpu" in Python) works everywhere'
        ) from None
    return device

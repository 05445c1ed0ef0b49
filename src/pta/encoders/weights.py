"""Weights from a file, by name: no code in it is run, and the tensors have memory of their own."""

import os
from pathlib import Path
from typing import NamedTuple

from safetensors import safe_open
from torch import Tensor

from pta.encoders.torch_archive import read_torch_archive
from pta.errors import UnreadableFile

_ZIP, _PICKLE = b"PK\3\4", b"\x80"  # how files begin


class Weights(NamedTuple):
    """Tensors by name, and whether they come from a TorchScript archive, as OpenAI's do."""

    tensors: dict[str, Tensor]
    torchscript: bool


def read_weights(file: Path) -> Weights:
    """The weights in a safetensors file or in a zip archive of torch.

    The format of `torch.save` before version 1.6 is refused.
    """
    try:
        _require_fitting(file)
        if file.suffix == ".safetensors":
            with safe_open(file, framework="pt") as opened:
                return Weights({name: opened.get_tensor(name).clone() for name in opened.keys()}, False)  # noqa: SIM118
        _require_zip(file)
        return Weights(*read_torch_archive(file))
    except UnreadableFile as error:
        raise UnreadableFile(f"{file} cannot be read: {error}") from None
    except Exception:  # damaged files fail in many ways
        raise UnreadableFile(f"{file} is no readable checkpoint (truncated or damaged?)") from None


def _require_fitting(file: Path) -> None:
    if file.stat().st_size > os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"):
        raise UnreadableFile("it is larger than the memory of this machine")


def _require_zip(file: Path) -> None:
    with file.open("rb") as opened:
        start = opened.read(len(_ZIP))
    if start.startswith(_PICKLE):
        raise UnreadableFile(
            "it is a pickle, as torch.save wrote before version 1.6; save the model's state_dict() as safetensors"
        )
    if start != _ZIP:
        raise UnreadableFile("it is neither a safetensors file nor a zip archive of torch (truncated or damaged?)")

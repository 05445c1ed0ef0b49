"""Weights from a file, by name: no code in it is run, and the tensors have memory of their own."""

from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from pta.encoders.torch_archive import read_torch_archive
from pta.errors import PtaError, UnreadableFile, naming
from pta.files import existing_file, read_tensors
from pta.memory import require_memory

_ZIP, _PICKLE = b"PK\3\4", b"\x80"  # how files begin


class Weights(NamedTuple):
    """Tensors by name, and whether they come from a TorchScript archive, as OpenAI's do."""

    tensors: dict[str, Tensor]
    torchscript: bool


def read_weights(file: Path) -> Weights:
    """The weights in a safetensors file or in a zip archive of torch.

    The format of `torch.save` before version 1.6 is refused.
    """
    if file.suffix == ".safetensors":
        return Weights(read_tensors(file, "checkpoint")[0], torchscript=False)
    existing_file(file, "checkpoint")  # a pipe would be waited for
    try:
        with naming(f"{file} cannot be read"):
            _require_zip(file)
            require_memory(file, file.stat().st_size)
            return Weights(*read_torch_archive(file))
    except PtaError:
        raise
    except Exception:  # damaged files fail in many ways
        raise UnreadableFile(f"{file} is not a readable checkpoint file (truncated or damaged?)") from None


def _require_zip(file: Path) -> None:
    with file.open("rb") as opened:
        start = opened.read(len(_ZIP))
    if start.startswith(_PICKLE):
        raise UnreadableFile(
            "it is a pickle, as torch.save wrote before version 1.6; save the model's state_dict() as safetensors"
        )
    if start != _ZIP:
        raise UnreadableFile("it is neither a safetensors file nor a zip archive of torch (truncated or damaged?)")

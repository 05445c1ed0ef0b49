"""A folder of feature blocks, as `pta extract --cluster` makes it, read as one set."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pta.core.memory import require_memory
from pta.door.files import exists, read_json, read_tensors, understanding
from pta.errors import UnreadableFile

_ABOUT = "about.json"


def is_feature_folder(folder: Path) -> bool:
    """Whether a folder holds feature blocks that are one set."""
    return exists(folder / _ABOUT)


def read_blocks(folder: Path, by_sample: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays of a feature file, of all blocks in order, and what the blocks say about themselves.

    `by_sample` are those with one row per sample. The folder must be finished and its blocks of one run.
    """
    about = read_json(folder / _ABOUT, "description")
    if not isinstance(about, dict) or about.get("kind") != "feature blocks" or about.get("version") != 1:
        raise UnreadableFile(f"{folder / _ABOUT} does not describe feature blocks")
    if not about.get("finished"):
        raise UnreadableFile(f"{folder} is not finished; run its pta extract again")
    with understanding(folder, "folder of feature blocks"):
        files = [folder / f"{start:012d}-{stop:012d}.safetensors" for start, stop in about["blocks"]]
        require_memory(folder, sum(file.stat().st_size for file in files if exists(file)))
        blocks = [_block(file, about["run"]) for file in files]
        filled = [arrays for arrays, _ in blocks if len(arrays["numbers"])]
        joined = {name: torch.cat([one[name] for one in filled]) for name in by_sample if name in filled[0]}
        paths = [path for one in filled for path in json.loads(one["paths"].numpy().tobytes())]
        return {**filled[0], **joined, "paths": np.array(paths)}, blocks[0][1]


def _block(path: Path, run: str) -> tuple[dict[str, Any], dict[str, Any]]:
    tensors, metadata = read_tensors(path, "feature")
    try:
        about, names = json.loads(metadata["about"]), json.loads(metadata["classnames"])
    except (KeyError, ValueError, RecursionError):
        about, names = {}, []
    if not isinstance(about, dict) or about.get("run") != run:
        raise UnreadableFile(f"{path} is of another run; the same pta extract makes it again")
    return {**tensors, "classnames": names}, about

"""ULIP models of random weights under ULIP's names, of full size or tiny, and the two files that hold one."""

from pathlib import Path

import torch
from random_clip import _Weights
from torch import Tensor


def random_ulip(seed: int = 0, small: bool = True) -> dict[str, Tensor]:
    """The weights of PointBERT and of SLIP's text tower: of full size, or tiny with the same structure."""
    weights = _Weights(torch.Generator().manual_seed(seed))
    width, depth, hidden, dim = (128, 2, 192, 32) if small else (384, 12, 1536, 512)
    first, second, third, fourth = (16, 24, 40, 28) if small else (128, 256, 512, 256)
    positions = 12 if small else 128
    _add_layers(weights, "point_encoder.encoder.first_conv.", 3, first, second)
    _add_layers(weights, "point_encoder.encoder.second_conv.", 2 * second, third, fourth)
    weights.add_linear("point_encoder.reduce_dim", fourth, width)
    for name in ("cls_token", "cls_pos"):
        weights.add(f"point_encoder.{name}", 1, 1, width, spread=1.0)
    weights.add_linear("point_encoder.pos_embed.0", 3, positions)
    weights.add_linear("point_encoder.pos_embed.2", positions, width)
    for block in (f"point_encoder.blocks.blocks.{number}." for number in range(depth)):
        weights.add_norm(f"{block}norm1.", width)
        weights.add(f"{block}attn.qkv.weight", 3 * width, width, spread=width**-0.5)
        weights.add_linear(f"{block}attn.proj", width, width)
        weights.add_norm(f"{block}norm2.", width)
        weights.add_linear(f"{block}mlp.fc1", width, hidden)
        weights.add_linear(f"{block}mlp.fc2", hidden, width)
    weights.add_norm("point_encoder.norm.", width)
    weights.add("pc_projection", 2 * width, dim, spread=width**-0.5)
    weights.add_text_tower(*((64, 2) if small else (512, 12)), dim)
    return weights.state


def write_ulip(folder: Path, state: dict[str, Tensor], name: str = "pointbert_ulip1.pt") -> Path:
    """The two files of a model as they are released: a wrapper's names, and more than the weights."""
    is_point = {key: key.startswith(("point_encoder.", "pc_projection")) for key in state}
    for file, wanted in ((name, True), ("slip_base_100ep.pt", False)):
        wrapped = {f"module.{key}": one for key, one in state.items() if is_point[key] is wanted}
        other = {"module.visual.cls_token": torch.zeros(1, 1, 8)}  # the image tower is not read
        torch.save({"epoch": 3, "state_dict": wrapped | other, "args": {"lr": 1e-3}}, folder / file)
    return folder


def _add_layers(weights: _Weights, prefix: str, inputs: int, hidden: int, outputs: int) -> None:
    for number, channels, to in ((0, inputs, hidden), (3, hidden, outputs)):
        weights.add(f"{prefix}{number}.weight", to, channels, 1, spread=(2 / channels) ** 0.5)
        weights.add(f"{prefix}{number}.bias", to, spread=0.1)
    weights.add_batch_norm(f"{prefix}1.", hidden)

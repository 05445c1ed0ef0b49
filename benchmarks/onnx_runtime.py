"""How fast an image tower is on a CPU in ONNX Runtime, and in torch with other linear layers, side by side in one run.

    python benchmarks/onnx_runtime.py            writes benchmarks/results/onnx-runtime-cpu.csv

The tower is a ViT-B/32 with random weights in float32, from bytes of resized pictures to features. The ways take turns,
and ratios are medians over the rounds, with their quartiles: other programs slow all ways.

`torch-onednn` is torch with most linear layers computed by `torch.ops.mkldnn._linear_pointwise`, which is private. It
tells how much of the difference is that of the libraries for matrix products: torch's own linear layers call MKL.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import torch
from encode import random_vit_b32
from result_file import RESULTS, Row, write
from torch import Tensor, nn

from pta.measure.provenance import hardware
from pta.models import Encoder
from pta.models.clip.transformer import ClipAttention, split_heads
from pta.models.onnx.graph import GraphSession, graph_of

_REST = 0.05  # seconds; threads that wait for more work spin for less


class Tower(nn.Module):
    """Bytes of pictures to unit features, as `Encoder.encode`."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, pixels: Tensor) -> Tensor:
        """N×3×size×size bytes to N×dim."""
        return self.encoder.encode_unchecked(pixels)


class OneDnnLinear(nn.Module):
    """A linear layer in float32 with the weights in oneDNN's layout for so many rows."""

    def __init__(self, weight: Tensor, bias: Tensor, rows: int) -> None:
        super().__init__()
        self.weight, self.bias = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), rows), bias

    def forward(self, x: Tensor) -> Tensor:
        """…×inputs to …×outputs."""
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")


def with_onednn(encoder: Encoder, rows: int) -> Encoder:
    """The model with its linear layers computed by oneDNN, except those of the patches and of the last attention."""
    for module in list(encoder.visual.modules()):
        for name, layer in list(module.named_children()):
            if isinstance(layer, nn.Linear):
                setattr(module, name, OneDnnLinear(layer.weight, layer.bias, rows))
        if isinstance(module, ClipAttention):
            joined = OneDnnLinear(module.in_proj_weight, module.in_proj_bias, rows)
            module._queries_keys_values = partial(_queries_keys_values, joined, module.heads)
    return encoder


def _queries_keys_values(joined: OneDnnLinear, heads: int, x: Tensor) -> Any:
    return split_heads(joined(x), 3, heads)


def compare(ways: dict[str, Callable[[Tensor], Tensor]], pixels: Tensor, rounds: int) -> Iterable[Row]:
    """The ways on one batch of pictures, in turns."""
    expected = ways["torch"](pixels)
    distances = {name: float((run(pixels) - expected).abs().max()) for name, run in ways.items()}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, run in ways.items():
            time.sleep(_REST)
            begun = time.perf_counter()
            run(pixels)
            seconds[name].append(time.perf_counter() - begun)
    for name, taken in seconds.items():
        low, middle, high = np.quantile(np.divide(seconds["torch"], taken), (0.25, 0.5, 0.75))
        yield {
            "model": "ViT-B/32, random weights",
            "way": name,
            "threads": torch.get_num_threads(),
            "batch": len(pixels),
            "milliseconds_per_picture": round(1000 * statistics.median(taken) / len(pixels), 1),
            "times_torch": round(middle, 2),
            "first_quartile": round(low, 2),
            "third_quartile": round(high, 2),
            "rounds": rounds,
            "largest_distance": f"{distances[name]:.1e}",
            "hardware": hardware(),
        }


def measured(rounds: int) -> Iterable[Row]:
    """Batches of 1 and 32 with one and two threads."""
    encoder = random_vit_b32()
    for batch in (1, 32):
        random = torch.Generator().manual_seed(0)
        pixels = torch.randint(0, 256, (batch, 3, 224, 224), dtype=torch.uint8, generator=random)
        content = graph_of(Tower(encoder), pixels, "pixels", ["features"]).SerializeToString()
        other = with_onednn(random_vit_b32(), 50 * batch)
        for threads in (1, 2):
            torch.set_num_threads(threads)
            session = GraphSession(content, threads)
            ways = {
                "torch": encoder.encode,
                "onnx-runtime": lambda given, run=session.run: torch.from_numpy(run(given.numpy())["features"]),
                "torch-onednn": other.encode,
            }
            yield from compare(ways, pixels, rounds * (2 if batch == 1 else 1))


def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="of batches of 32; those of 1 have twice as many")
    write(RESULTS / "onnx-runtime-cpu.csv", measured(parser.parse_args().rounds))


if __name__ == "__main__":
    main()

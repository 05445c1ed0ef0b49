"""CLIP models of random weights under OpenAI's names, of full size or tiny."""

import torch
from torch import Tensor

VOCABULARY, CONTEXT = 49_408, 77


def random_state(kind: str, seed: int = 0, small: bool = True) -> dict[str, Tensor]:
    """The weights of a "ViT" (B/16) or an "RN50": of full size, or tiny with the same structure."""
    weights = _Weights(torch.Generator().manual_seed(seed))
    if kind == "ViT":
        width, depth, patch, grid, dim = (128, 2, 8, 4, 32) if small else (768, 12, 16, 14, 512)
        _add_vit(weights, width, depth, patch, grid, dim)
    else:
        width, depths, grid, dim = (16, (1, 2, 1, 1), 2, 256) if small else (64, (3, 4, 6, 3), 7, 1024)
        _add_resnet(weights, width, depths, grid, dim)
    weights.add_text_tower(*((64, 2) if small else (512, 12)), dim)
    return weights.state


class _Weights:
    def __init__(self, generator: torch.Generator) -> None:
        self.generator, self.state = generator, {}

    def add(self, name: str, *shape: int, spread: float, around: float = 0.0) -> None:
        self.state[name] = around + spread * torch.randn(*shape, generator=self.generator)

    def add_linear(self, prefix: str, inputs: int, outputs: int, sign: str = ".") -> None:
        self.add(f"{prefix}{sign}weight", outputs, inputs, spread=inputs**-0.5)
        self.add(f"{prefix}{sign}bias", outputs, spread=0.1)

    def add_norm(self, prefix: str, width: int, gain: float = 1.0) -> None:
        self.add(f"{prefix}weight", width, spread=0.1, around=gain)
        self.add(f"{prefix}bias", width, spread=0.1)

    def add_batch_norm(self, prefix: str, width: int, gain: float = 1.0) -> None:
        self.add_norm(prefix, width, gain)
        self.add(f"{prefix}running_mean", width, spread=0.2)
        self.state[f"{prefix}running_var"] = 0.5 + torch.rand(width, generator=self.generator)
        self.state[f"{prefix}num_batches_tracked"] = torch.tensor(1000)

    def add_convolution(self, name: str, inputs: int, outputs: int, kernel: int) -> None:
        self.add(f"{name}.weight", outputs, inputs, kernel, kernel, spread=(2 / (inputs * kernel**2)) ** 0.5)

    def add_text_tower(self, width: int, depth: int, dim: int) -> None:
        self.add("token_embedding.weight", VOCABULARY, width, spread=0.2)
        self.add("positional_embedding", CONTEXT, width, spread=0.2)
        self.add_transformer("transformer.", width, depth)
        self.add_norm("ln_final.", width)
        self.add("text_projection", width, dim, spread=width**-0.5)
        self.state["logit_scale"] = torch.tensor(4.5)

    def add_transformer(self, prefix: str, width: int, depth: int) -> None:
        for block in (f"{prefix}resblocks.{number}." for number in range(depth)):
            self.add_norm(f"{block}ln_1.", width)
            self.add_linear(f"{block}attn.in_proj", width, 3 * width, sign="_")
            self.add_linear(f"{block}attn.out_proj", width, width)
            self.add_norm(f"{block}ln_2.", width)
            self.add_linear(f"{block}mlp.c_fc", width, 4 * width)
            self.add_linear(f"{block}mlp.c_proj", 4 * width, width)


def _add_vit(weights: _Weights, width: int, depth: int, patch: int, grid: int, dim: int) -> None:
    weights.add_convolution("visual.conv1", 3, width, patch)
    weights.add("visual.class_embedding", width, spread=0.2)
    weights.add("visual.positional_embedding", grid**2 + 1, width, spread=0.2)
    weights.add_norm("visual.ln_pre.", width)
    weights.add_transformer("visual.transformer.", width, depth)
    weights.add_norm("visual.ln_post.", width)
    weights.add("visual.proj", width, dim, spread=width**-0.5)


def _add_resnet(weights: _Weights, width: int, depths: tuple[int, ...], grid: int, dim: int) -> None:
    for number, (inputs, outputs) in enumerate([(3, width // 2), (width // 2, width // 2), (width // 2, width)], 1):
        weights.add_convolution(f"visual.conv{number}", inputs, outputs, 3)
        weights.add_batch_norm(f"visual.bn{number}.", outputs)
    channels = width
    for stage, depth in enumerate(depths):
        planes = width * 2**stage
        for number in range(depth):
            block = f"visual.layer{stage + 1}.{number}."
            shapes = [(channels, planes, 1), (planes, planes, 3), (planes, 4 * planes, 1)]
            for part, (inputs, outputs, kernel) in enumerate(shapes, 1):
                weights.add_convolution(f"{block}conv{part}", inputs, outputs, kernel)
                weights.add_batch_norm(f"{block}bn{part}.", outputs, gain=0.3 if part == 3 else 1.0)
            if number == 0:
                weights.add_convolution(f"{block}downsample.0", channels, 4 * planes, 1)
                weights.add_batch_norm(f"{block}downsample.1.", 4 * planes, gain=0.6)
            channels = 4 * planes
    weights.add("visual.attnpool.positional_embedding", grid**2 + 1, channels, spread=0.2)
    for part in "qkv":
        weights.add_linear(f"visual.attnpool.{part}_proj", channels, channels)
    weights.add_linear("visual.attnpool.c_proj", channels, dim)

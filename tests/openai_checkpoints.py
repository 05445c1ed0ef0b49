"""CLIP models of random weights, and files as OpenAI wrote them."""

import warnings
from pathlib import Path

import torch
from random_clip import CONTEXT, VOCABULARY, _add_vit, _Weights, random_state  # noqa: F401 (for the tests)
from torch import Tensor, nn


def write_openai_archive(path: Path, state: dict[str, Tensor]) -> None:
    """A TorchScript archive like OpenAI's: half precision, and three numbers that are no weights."""
    root = nn.Module()
    extra = {"input_resolution": 224, "context_length": CONTEXT, "vocab_size": VOCABULARY}
    for name, weight in {**state, **{key: torch.tensor(value) for key, value in extra.items()}}.items():
        *parents, leaf = name.split(".")
        module = root
        for parent in parents:
            if parent not in dict(module.named_children()):
                module.add_module(parent, nn.Module())
            module = module.get_submodule(parent)
        module.register_buffer(leaf, weight.half() if weight.ndim > 1 else weight)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.script(root).save(str(path))


def random_transformers_clip(activation: str = "quick_gelu") -> nn.Module:
    """A tiny CLIPModel of transformers whose every parameter is random and none of them tiny."""
    import transformers

    sizes = {"hidden_size": 128, "intermediate_size": 192, "num_hidden_layers": 2, "num_attention_heads": 2}
    tower = {"hidden_act": activation, **sizes}
    image = {"patch_size": 8, "image_size": 32}
    model = transformers.CLIPModel(
        transformers.CLIPConfig(text_config=tower, vision_config=tower | image, projection_dim=48)
    )
    generator = torch.Generator().manual_seed(3)
    for name, weight in model.named_parameters():
        spread = 0.2 if "embedding" in name else weight[0].numel() ** -0.5 if weight.ndim > 1 else 0.1
        around = 1.0 if "norm" in name and name.endswith("weight") else 0.0
        weight.data.normal_(around, spread, generator=generator)
    return model.eval()

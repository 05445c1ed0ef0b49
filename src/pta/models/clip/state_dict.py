"""State dicts of CLIP models: their names as OpenAI writes them, the shape of a model read off them, and filling it.

Whatever does not fit is said in one line.
"""

import re
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from pta.errors import UnavailableModel

State = Mapping[str, Tensor]

_MOST_LAYERS = 1000  # the deepest CLIP model has 48
_NO_WEIGHTS = ("input_resolution", "context_length", "vocab_size", "attn_mask", "position_ids")
_WRAPPERS = re.compile(r"^(module\.)?(text\.)?")  # training on several devices; open_clip's separate text tower

_HUGGINGFACE_NAMES = {  # applied in this order
    "vision_model.embeddings.patch_embedding.": "visual.conv1.",
    "vision_model.embeddings.position_embedding.weight": "visual.positional_embedding",
    "vision_model.embeddings.class_embedding": "visual.class_embedding",
    "vision_model.pre_layrnorm.": "visual.ln_pre.",
    "vision_model.post_layernorm.": "visual.ln_post.",
    "vision_model.encoder.layers.": "visual.transformer.resblocks.",
    "visual_projection.weight": "visual.proj",
    "text_model.embeddings.position_embedding.weight": "positional_embedding",
    "text_model.embeddings.token_embedding.": "token_embedding.",
    "text_model.encoder.layers.": "transformer.resblocks.",
    "text_model.final_layer_norm.": "ln_final.",
    "text_projection.weight": "text_projection",
    ".self_attn.": ".attn.",
    ".layer_norm1.": ".ln_1.",
    ".layer_norm2.": ".ln_2.",
    ".mlp.fc1.": ".mlp.c_fc.",
    ".mlp.fc2.": ".mlp.c_proj.",
}
_TRANSPOSED = ("visual_projection.weight", "text_projection.weight")


def shape_of(state: State, name: str, dimensions: int) -> tuple[int, ...]:
    """The shape of a weight that has to be there, with that many dimensions."""
    if name not in state:
        raise UnavailableModel(f"the weight {name!r} is missing")
    shape = tuple(state[name].shape)
    if len(shape) != dimensions or 0 in shape:
        raise UnavailableModel(f"the weight {name!r} has shape {_times(shape)}")
    return shape


def count_in(state: State, prefix: str) -> int:
    """How many numbered layers there are under a prefix.

    >>> count_in(dict.fromkeys(["layer1.0.a", "layer1.0.b", "layer1.1.a"]), "layer1.")
    2
    """
    count = len({name[len(prefix) :].partition(".")[0] for name in state if name.startswith(prefix)})
    if count > _MOST_LAYERS:
        raise UnavailableModel(f"there are {count:,} layers under {prefix!r}, at most {_MOST_LAYERS:,} are read")
    return count


def heads_of(width: int, head_width: int) -> int:
    """Into how many heads an attention is divided."""
    heads = max(1, width // head_width)
    if width % heads:
        raise UnavailableModel(f"an attention of width {width} cannot be divided into heads of {head_width}")
    return heads


def fill(model: nn.Module, state: State) -> None:
    """Give a model on the meta device its weights; the state must fit exactly."""
    expected = model.state_dict()
    for name, weight in expected.items():
        if shape_of(state, name, weight.ndim) != weight.shape:
            raise UnavailableModel(
                f"the weights do not fit together: {name!r} has shape {_times(state[name].shape)}, "
                f"the others ask for {_times(weight.shape)}"
            )
    for name in state:
        if name not in expected:
            raise UnavailableModel(f"the model has no weight {name!r}")
    model.load_state_dict({name: weight.contiguous() for name, weight in state.items()}, assign=True)


def in_openai_layout(state: State) -> dict[str, Tensor]:
    """The same weights under OpenAI's names, without what is not a weight.

    >>> list(in_openai_layout({"module.text.ln_final.bias": torch.zeros(1), "module.context_length": torch.tensor(77)}))
    ['ln_final.bias']
    """
    if "logit_bias" in state:
        raise UnavailableModel("this is a SigLIP model, not CLIP; give its transformers folder as hf:FOLDER")
    weights = {_WRAPPERS.sub("", name): weight for name, weight in state.items() if not name.endswith(_NO_WEIGHTS)}
    return _from_huggingface(weights) if is_huggingface(weights) else weights


def is_huggingface(state: State) -> bool:
    """Whether the names are those of transformers."""
    return any(name.startswith("vision_model.") for name in state)


def _from_huggingface(state: State) -> dict[str, Tensor]:
    renamed = {
        _openai_name(name): weight.T.contiguous() if name in _TRANSPOSED and weight.ndim == 2 else weight
        for name, weight in state.items()
    }
    joined = {name: weight for name, weight in renamed.items() if not re.search(r"\.attn\.[qkv]_proj\.", name)}
    queries = [name for name in renamed if ".attn.q_proj." in name]
    return joined | {name.replace(".q_proj.", ".in_proj_"): _join(renamed, name) for name in queries}


def _openai_name(name: str) -> str:
    for theirs, ours in _HUGGINGFACE_NAMES.items():
        name = name.replace(theirs, ours)
    return name


def _join(state: State, query: str) -> Tensor:
    """Query, key and value in one matrix, as OpenAI keeps them."""
    names = [query.replace(".q_proj.", f".{part}_proj.") for part in "qkv"]
    if len({shape_of(state, name, state[query].ndim) for name in names}) > 1:
        raise UnavailableModel(f"the weights do not fit together: {query!r} is not as large as its key or value")
    return torch.cat([state[name] for name in names])


def _times(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "of a single number"

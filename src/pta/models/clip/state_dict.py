"""Reading a model's shape off its state dict, and filling it, with a line for whatever does not fit."""

from collections.abc import Mapping

from torch import Tensor, nn

from pta.errors import UnavailableModel

State = Mapping[str, Tensor]

_MOST_LAYERS = 1000  # the deepest CLIP model has 48


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
    model.load_state_dict(dict(state), assign=True)


def _times(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "of a single number"

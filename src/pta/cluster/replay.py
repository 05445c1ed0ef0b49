"""The second pass: the ordinary step from the state at the start of a block."""

from dataclasses import dataclass

from torch import Tensor

from pta.adapters.adapter import Adapter
from pta.cluster.block import Block
from pta.cluster.summary import State, Summary


@dataclass(frozen=True)
class Answers:
    """What is said about the samples of a block that have features, in the order of their numbers."""

    numbers: Tensor  # n, int64
    labels: Tensor  # n, int64, class numbers
    probabilities: Tensor  # n, float64, of the label
    zero_shot: Tensor  # n, int64, the class that the model alone says


def replay_block(
    adapter: Adapter, block: Block, summary: Summary, start: State, rows: int | None = None
) -> tuple[Answers, State]:
    """The answers to the block, or to its first `rows` samples, and the state after them; changes nothing."""
    raise NotImplementedError

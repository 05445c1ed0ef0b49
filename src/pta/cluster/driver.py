"""All passes in one process, or in a few on one machine: what a cluster must equal."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pta.adapters.adapter import Adapter
from pta.cluster.block import Block
from pta.cluster.repair import EPSILON
from pta.cluster.replay import Answers
from pta.cluster.summary import State


@dataclass(frozen=True)
class Run:
    """What all passes gave."""

    answers: list[Answers]  # by block
    end: State  # after the last sample: P of the scan, R of the last block
    rounds: int  # of repair
    repaired: int  # rows whose answers were computed again
    remark: str | None  # that the rule is sequential by nature, if many rounds were needed


def run_blocks(
    adapter: Adapter,
    blocks: Sequence[Block],
    epsilon: float = EPSILON,
    each: Callable[[Callable[..., Any], Iterable[tuple[Any, ...]]], Iterable[Any]] | None = None,
) -> Run:
    """Answer a stream in blocks, in any order of arrival; `each` maps a function over arguments, in parallel or not.

    Numbers that are missing or come twice are refused. The adapter is as at the start of the stream and stays so.
    """
    raise NotImplementedError

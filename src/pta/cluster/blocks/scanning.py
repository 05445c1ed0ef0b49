"""The first pass and the scan: what each block teaches, what was learned before it, and the state it starts from."""

from collections.abc import Sequence
from typing import Any

import torch

from pta.cluster.blocks.block import Block
from pta.cluster.blocks.prototype_blocks import Knowledge, PrototypeBlocks
from pta.cluster.blocks.sum_blocks import SumBlocks, Totals
from pta.cluster.blocks.summary import Group, Part, State, Summary
from pta.errors import InvalidParameter, InvalidSamples
from pta.methods.adapter import Adapter
from pta.methods.pta import PTA
from pta.methods.wpta import WPTA

GROUP = 256  # beyond so many blocks the scan has two levels

Before = Knowledge | Totals
"""What was learned before a block."""


def require_summable(adapter: Adapter) -> None:
    """Refuse a method whose streams can only run in parallel by key."""
    wanted: dict[str, object] = {"prior": "none", "calibration": "fixed"}
    if type(adapter) is WPTA:
        wanted["depth"] = 1
    elif type(adapter) is not PTA:
        raise InvalidParameter(
            f"{adapter.name} has no summary: one stream of it cannot be cut into blocks; "
            "give --by COLUMN for one stream per key, or choose pta, or wpta with prior=none"
        )
    elif adapter.state_dtype not in ("float32", "float64"):
        raise InvalidParameter(
            f"prototypes kept in {adapter.state_dtype} are rounded at every sample, which no summary can follow; "
            "choose state_dtype=float32, or give --by COLUMN for one stream per key"
        )
    for name, value in wanted.items():
        if adapter.parameters[name] != value:
            raise InvalidParameter(
                f"{adapter.name} with {name}={adapter.parameters[name]} depends on every sample before: one stream of "
                f"it cannot be cut into blocks; choose {name}={value}, or give --by COLUMN for one stream per key"
            )


@torch.no_grad()
def summarise_block(adapter: Adapter, block: Block, failed_before: int = 0) -> Summary:
    """What a block teaches; so many samples with smaller numbers have no features (only wpta needs to know)."""
    blocks, dim = _blocks_of(adapter), adapter.classifier.dim
    if len(block) and block.features.shape[1] != dim:
        raise InvalidSamples(
            f"features have {block.features.shape[1]} dimensions but the classifier's anchors have {dim}; both "
            "must come from the same model"
        )
    return blocks.summarise(block, failed_before)


def start_of(adapter: Adapter) -> Before:
    """What the adapter has learned: it is as it is to be at the first sample."""
    return _blocks_of(adapter).start()


def scan(adapter: Adapter, before: Before, parts: Sequence[Part]) -> list[Before]:
    """What was learned before each block (or group) and after the last: one more than there are parts, in order."""
    blocks, learned = _blocks_of(adapter), [before]
    for part in parts:
        learned.append(blocks.after(learned[-1], part))
    return learned


def across(adapter: Adapter, parts: Sequence[Summary]) -> Group:
    """What consecutive blocks teach together."""
    return _blocks_of(adapter).across(parts)


def boundary(adapter: Adapter, before: Before, previous: tuple[Before, Summary] | None) -> State:
    """The state at the start of a block; `previous` is the block before it with what was learned before that."""
    if previous is None:
        return {name: tensor.clone() for name, tensor in adapter.state().items()}
    return _blocks_of(adapter).state_at(before, previous)


def _blocks_of(adapter: Any) -> Any:
    require_summable(adapter)
    return PrototypeBlocks(adapter) if isinstance(adapter, PTA) else SumBlocks(adapter)

"""The first pass and the scan: what each block teaches, what was learned before it, and the state it starts from."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pta.cluster.blocks.block import Block
from pta.cluster.blocks.prototype_blocks import Knowledge, PrototypeBlocks
from pta.cluster.blocks.sum_blocks import SumBlocks, Totals
from pta.cluster.blocks.summary import BlockGroup, BlockSummary, Part, State, without_prefix
from pta.door.files import pack_tensors, unpack_tensors
from pta.errors import InvalidParameter, InvalidSamples
from pta.methods.adapter import Adapter
from pta.methods.pta import PTA
from pta.methods.wpta import WPTA, Sums

GROUP = 256  # with more blocks the scan has two levels
_KIND = "what was learned before a block"

Before = Knowledge | Totals
"""What was learned before a block."""


def require_summable(adapter: Adapter) -> None:
    """Refuse a method whose streams can only run in parallel by key."""
    wanted: dict[str, object] = {"offset": "none", "prior": "none", "calibration": "fixed"}
    if type(adapter) is WPTA:
        wanted["depth"] = 1
    elif type(adapter) is not PTA:
        raise InvalidParameter(
            f"{adapter.name} has no summary: one stream of it cannot be cut into blocks; "
            "give --by COLUMN for one stream per key, or choose pta, or wpta with prior=none, calibration=fixed"
        )
    elif adapter.state_dtype not in ("float32", "float64"):
        raise InvalidParameter(
            f"prototypes kept in {adapter.state_dtype} are rounded at every sample, which no summary can follow; "
            "choose state_dtype=float32, or give --by COLUMN for one stream per key"
        )
    else:
        wanted["gate"] = "none"
    wrong = {name: adapter.parameters[name] for name, value in wanted.items() if adapter.parameters[name] != value}
    if wrong:
        given, needed = (", ".join(f"{name}={one[name]}" for name in wrong) for one in (wrong, wanted))
        raise InvalidParameter(
            f"{adapter.name} with {given} depends on every sample before: one stream of it cannot be cut into blocks; "
            f"choose {needed}, or give --by COLUMN for one stream per key"
        )


@torch.no_grad()
def summarise_block(adapter: Adapter, block: Block, failed_before: int = 0) -> BlockSummary:
    """What a block teaches; `failed_before` samples with smaller numbers have no features, which only wpta uses."""
    blocks, dim = _blocks_of(adapter), adapter.classifier.dim
    if len(block) and block.features.shape[1] != dim:
        raise InvalidSamples(
            f"features have {block.features.shape[1]} dimensions but the classifier's anchors have {dim}; both "
            "must come from the same model"
        )
    learned = block.learned
    if learned.labels is not None:
        adapter.checked_labels(learned.labels, len(learned))
    return blocks.summarise(learned, failed_before)


def start_of(adapter: Adapter) -> Before:
    """What the adapter has learned: it is as it is to be at the first sample."""
    return _blocks_of(adapter).start()


def scan(adapter: Adapter, before: Before, parts: Sequence[Part]) -> list[Before]:
    """What was learned before each block (or group) and after the last: one more than there are parts, in order."""
    blocks, learned = _blocks_of(adapter), [before]
    for part in parts:
        learned.append(blocks.after(learned[-1], part))
    return learned


def across(adapter: Adapter, parts: Sequence[BlockSummary]) -> BlockGroup:
    """What consecutive blocks teach together."""
    return _blocks_of(adapter).across(parts)


def boundary(adapter: Adapter, before: Before, previous: tuple[Before, BlockSummary] | None) -> State:
    """The state at the start of a block; `previous` is the block before it with what was learned before that."""
    if previous is None:
        return {name: tensor.clone() for name, tensor in adapter.state().items()}
    return _blocks_of(adapter).state_at(before, previous)


def _blocks_of(adapter: Any) -> Any:
    require_summable(adapter)
    return PrototypeBlocks(adapter) if isinstance(adapter, PTA) else SumBlocks(adapter)


def pack_before(before: Before) -> bytes:
    """The content of a file."""
    if isinstance(before, Knowledge):
        learned = before.knowledge.any(dim=1)
        held = {name: part for name, part in vars(before).items() if isinstance(part, Tensor)}
        held |= {"knowledge": before.knowledge[learned], "learned": learned}
        return pack_tensors(held, {"kind": _KIND, "position": before.position})
    parts = {name: sums for name, sums in vars(before).items() if sums is not None}
    tensors = {f"{name}.{piece}": part for name, sums in parts.items() for piece, part in sums.tensors.items()}
    counts = {name: sums.count for name, sums in parts.items()}
    own = {"fingerprint": before.sums.fingerprint, "rule": dict(before.sums.rule)}
    return pack_tensors(tensors, {"kind": _KIND, "counts": counts, **own})


def unpack_before(content: bytes) -> Before:
    """What `pack_before` packed."""
    tensors, about = unpack_tensors(content, _KIND)
    if "position" in about:
        rows, learned = tensors["knowledge"], tensors["learned"]
        knowledge = rows.new_zeros(len(learned), rows.shape[1])
        knowledge[learned] = rows
        return Knowledge(about["position"], knowledge, tensors["touched"], tensors.get("unscaled"))

    def sums(name: str) -> Sums:
        return Sums(about["counts"][name], about["fingerprint"], about["rule"], without_prefix(f"{name}.", tensors))

    return Totals(sums("sums"), sums("refreshed") if "refreshed" in about["counts"] else None)

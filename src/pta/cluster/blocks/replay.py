"""The second pass: the ordinary step from the state at the start of a block."""

from dataclasses import dataclass, fields
from typing import TypeVar

import torch
from torch import Tensor

from pta.cluster.blocks.block import AT_ONCE, Block
from pta.cluster.blocks.summary import BlockSummary, State
from pta.core.samples import Samples
from pta.errors import StateMismatch
from pta.methods.adapter import Adapter
from pta.methods.pta import PTA
from pta.methods.state import Snapshot

AnyAdapter = TypeVar("AnyAdapter", bound=Adapter)


@dataclass(frozen=True)
class BlockAnswers:
    """What is said about the samples of a block that have features, in the order of their numbers."""

    numbers: Tensor  # n, int64
    labels: Tensor  # n, int64, class numbers
    probabilities: Tensor  # n, float64, of the label
    zero_shot: Tensor  # n, int64, the class that the model alone says
    zero_shot_probabilities: Tensor  # n, float64, of these
    entropies: Tensor  # n, float64, of the probabilities after adaptation, in nats

    def starting_with(self, again: "BlockAnswers") -> "BlockAnswers":
        """The same with other answers to the first samples."""
        both = ((getattr(one, field.name) for one in (again, self)) for field in fields(BlockAnswers))
        return BlockAnswers(*(torch.cat([new, old[len(new) :]]) for new, old in both))


def at_state(adapter: AnyAdapter, state: State) -> AnyAdapter:
    """A copy of the adapter that is in another state; a state that it cannot have is refused."""
    there = adapter.clone()
    there.restore(Snapshot(adapter.name, adapter.parameters, adapter.classifier, state))
    return there


@torch.no_grad()
def replay_block(
    adapter: Adapter, block: Block, summary: BlockSummary, start: State, rows: int | None = None
) -> tuple[BlockAnswers, State]:
    """The answers to the block, or to its first `rows` samples, and the state after them; changes nothing."""
    block_of_summary = summary.start, summary.count, summary.learned
    if block_of_summary != (block.start, block.count, len(block.learned)):
        raise StateMismatch(
            f"the summary is of another block, of samples {summary.start}…{summary.start + summary.count - 1}"
        )
    there, numbers = at_state(adapter, start), block.numbers[:rows]
    nothing = torch.zeros(0, dtype=torch.float64)
    parts = [(numbers[:0], nothing, numbers[:0], nothing, nothing)]
    for first in range(0, len(numbers), AT_ONCE):
        last = min(first + AT_ONCE, len(numbers))
        samples = Samples.unchecked(block.features[first:last]).to(adapter.classifier.anchors)
        kept = block.logits_of(first, last)
        z = adapter.classifier.logits(samples.features) if kept is None else kept
        zero_shot, alone = _best(z), _largest_probability(z)  # before a step that may write to z
        if block.labels is not None:
            logits = there.step_or_answer(samples, block.labels[first:last])
        elif isinstance(there, PTA) and summary.touches is not None:
            logits = there.step_with_touches(samples, z, summary.touches.between(first, last))
        else:
            logits = there.step_unchecked(samples.features)
        p = there.probabilities_unchecked(logits)
        most = p.amax(dim=1)
        entropies = _entropy(p, most, logits.double() * there.softmax_factor)
        parts.append((_best(logits), most.cpu(), zero_shot, alone.cpu(), entropies.cpu()))
    return BlockAnswers(numbers, *map(torch.cat, zip(*parts, strict=True))), there.state()


def _best(logits: Tensor) -> Tensor:
    """The class with the largest logit, in main memory."""
    if logits.device.type != "cpu":
        return logits.argmax(dim=1).cpu()
    return torch.from_numpy(logits.numpy().argmax(axis=1))  # ten times as fast as torch


def _largest_probability(logits: Tensor) -> Tensor:
    """That of the softmax, within 1e-6."""
    return 1 / (logits - logits.amax(dim=1, keepdim=True)).exp_().sum(dim=1, dtype=torch.float64)


def _entropy(p: Tensor, most: Tensor, logits: Tensor) -> Tensor:
    """−Σ p ln p of p = softmax(logits), whose largest are given, without a logarithm for each."""
    return (logits.amax(dim=1) - most.log() - torch.linalg.vecdot(p, logits)).clamp_min_(0.0)

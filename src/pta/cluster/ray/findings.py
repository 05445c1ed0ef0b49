"""What the passes find about blocks, in files that any machine can read, and the blocks that a process keeps.

Files are in a work folder of the run, under names that say which block they are of. States of a repaired block are in
the folder of the round that repaired it.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from pta.cluster.blocks.block import Block
from pta.cluster.blocks.loop import BEFORE, SUMMARIES, Round
from pta.cluster.blocks.scanning import pack_before, unpack_before
from pta.cluster.blocks.summary import BlockSummary, State, without_prefix
from pta.cluster.ray.block_memory import BlockMemory
from pta.cluster.ray.storage import Folder, block_name
from pta.door.files import pack_tensors, unpack_tensors
from pta.methods.adapter import Adapter
from pta.methods.pta import PTA

_KIND = "states of a block"
_STATES = ("start", "end")
_ROWS = "rows of "


@dataclass(frozen=True)
class FeatureBlock:
    """A block as it is read."""

    block: Block
    keys: list[str]  # of the samples that have features
    failed: list[tuple[int, str, str]]  # number and key of those that have none, and why


@dataclass(frozen=True)
class StoredFindings(ABC):
    """What tasks of a run share to learn from blocks."""

    adapter: Adapter  # as at the first sample
    work: Folder
    blocks: Sequence[range]
    epsilon: float
    memory: BlockMemory  # of each process

    @abstractmethod
    def _from_file(self, k: int) -> FeatureBlock:
        """A block that is not in memory."""

    def block(self, k: int) -> Block:
        """The features of a block, and the labels that are learned."""
        return self._read(k).block

    def scored(self, k: int) -> Block:
        """The same with zero-shot logits, if there is memory to keep them."""
        read = self._read(k)
        size = _bytes_of(read.block.features) + len(read.block) * _bytes_of(self.adapter.classifier.anchors[:, 0])
        if not isinstance(self.adapter, PTA) or size > self.memory.limit:
            return read.block
        read = replace(read, block=read.block.scored(self.adapter.classifier))
        self.memory.keep(k, read, size)
        return read.block

    def _read(self, k: int) -> FeatureBlock:
        read: FeatureBlock | None = self.memory.get(k)
        if read is None:
            read = self._from_file(k)
            self.memory.keep(k, read, _bytes_of(read.block.features))
        return read

    def _file(self, part: str, k: int) -> tuple[Folder, str]:
        return self.work.sub(part), block_name(self.blocks[k])

    def has(self, part: str, k: int) -> bool:
        """Whether a whole file is there."""
        folder, name = self._file(part, k)
        return folder.is_whole(name)

    def get(self, part: str, k: int) -> Any:
        """What a file holds."""
        folder, name = self._file(part, k)
        content = folder.read(name)
        if part == SUMMARIES:
            return BlockSummary.of_bytes(content)
        if part == BEFORE:
            return unpack_before(content)
        tensors, about = unpack_tensors(content, _KIND)
        start, end = (without_prefix(f"{state}.", tensors) for state in _STATES)
        return Round(self._whole(start), self._whole(end), about["rows"], about["path"])

    def put(self, part: str, k: int, found: Any) -> None:
        """Write it."""
        folder, name = self._file(part, k)
        if part == SUMMARIES:
            content = found.to_bytes()
        elif part == BEFORE:
            content = pack_before(found)
        else:
            states = zip(_STATES, (found.start, found.end), strict=True)
            tensors = {f"{state}.{own}": one for state, held in states for own, one in self._changed(held).items()}
            content = pack_tensors(tensors, {"kind": _KIND, "rows": found.rows, "path": found.path})
        folder.write(name, content)

    def _changed(self, state: State) -> dict[str, Tensor]:
        """A state without the rows of the classes that have learned nothing since the first sample."""
        packed = dict(state)
        for name, first in self.adapter.state().items():
            if first.ndim == 2:
                rows = (state[name] != first).any(dim=1).nonzero()[:, 0]
                packed |= {name: state[name][rows], _ROWS + name: rows}
        return packed

    def _whole(self, packed: dict[str, Tensor]) -> State:
        """The state that `_changed` packed."""
        first, rows = self.adapter.state(), without_prefix(_ROWS, packed)
        own = {name: tensor for name, tensor in packed.items() if not name.startswith(_ROWS)}
        return own | {name: first[name].index_copy(0, place, own[name]) for name, place in rows.items()}


def _bytes_of(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()

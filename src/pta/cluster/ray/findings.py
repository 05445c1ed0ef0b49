"""What the passes find about blocks, in files that any machine can read, and the blocks that a process keeps.

Files are in a work folder of the run, under names that say which block they are of. States of a repaired block are in
the folder of the round that repaired it.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from pta.cluster.blocks.block import Block
from pta.cluster.blocks.loop import BEFORE, SUMMARIES, Round
from pta.cluster.blocks.replay import BlockAnswers
from pta.cluster.blocks.scanning import pack_before, unpack_before
from pta.cluster.blocks.summary import BlockSummary, State, without_prefix
from pta.cluster.ray.extraction import FeatureBlock, read_block
from pta.cluster.ray.label_block import DoneBlock, labelled, read_answers, write_answers
from pta.cluster.ray.storage import Folder, block_name
from pta.data.label_file import label_texts
from pta.door.files import pack_tensors, unpack_tensors
from pta.methods.adapter import Adapter
from pta.methods.pta import PTA
from pta.run.predict import labels_of

USUAL_MEMORY = 2**30  # bytes
_KIND = "states of a block"
_STATES = ("start", "end")
_ROWS = "rows of "


class BlockMemory:
    """What was kept last, of together at most `limit` bytes. It stays in its process: sent elsewhere, it is empty."""

    def __init__(self, limit: int = USUAL_MEMORY) -> None:
        self.limit, self._kept = limit, OrderedDict[int, tuple[Any, int]]()

    def __reduce__(self) -> tuple[Any, ...]:
        return BlockMemory, (self.limit,)

    def get(self, k: int) -> Any:
        """What is kept of a block, or None."""
        if k not in self._kept:
            return None
        self._kept.move_to_end(k)
        return self._kept[k][0]

    def keep(self, k: int, block: Any, size: int) -> None:
        """Keep a block of so many bytes, and no longer what was not used for longest, if it is too much."""
        self._kept.pop(k, None)
        self._kept[k] = block, size
        while self._kept and sum(size for _, size in self._kept.values()) > self.limit:
            self._kept.popitem(last=False)


@dataclass(frozen=True)
class StoredBlocks:
    """The blocks of one stream in files, what is learned from them, and the labels they get: what all tasks share."""

    adapter: Adapter  # as at the first sample
    work: Folder
    blocks: Sequence[range]
    epsilon: float
    memory: BlockMemory  # of each process
    run: str
    features: Folder
    features_run: str
    out: Folder
    labels: Mapping[str, int] | None = None  # that are learned, by the samples' keys

    def _from_file(self, k: int) -> FeatureBlock:
        """A block that is not in memory."""
        read = read_block(self.features, self.blocks[k], self.features_run)
        if self.labels is None:
            return read
        told = labels_of(self.labels, read.keys).tolist()
        return replace(read, block=read.block.with_labels(dict(zip(read.block.numbers.tolist(), told, strict=True))))

    def block(self, k: int) -> Block:
        """The features of a block, and the labels that are learned."""
        return self._read(k).block

    def scored(self, k: int) -> Block:
        """The same with zero-shot logits, if there is memory to keep them."""
        read = self._read(k)
        size = read.block.features.nbytes + len(read.block) * self.adapter.classifier.anchors[:, 0].nbytes
        if not isinstance(self.adapter, PTA) or size > self.memory.limit:
            return read.block
        read = replace(read, block=read.block.scored(self.adapter.classifier))
        self.memory.keep(k, read, size)
        return read.block

    def _read(self, k: int) -> FeatureBlock:
        read: FeatureBlock | None = self.memory.get(k)
        if read is None:
            read = self._from_file(k)
            self.memory.keep(k, read, read.block.features.nbytes)
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

    def unlearned(self, k: int) -> int:
        """How many samples of a block are answered and not learned."""
        block = self.block(k)
        return len(block) - len(block.learned)

    def answered(self, k: int, version: int | None = None) -> DoneBlock | None:
        """What is known about the labels of a block, if they are there (from its states after this round)."""
        return labelled(self.out, block_name(self.blocks[k], "parquet"), self.run, version)

    def answer(self, k: int, answers: BlockAnswers, version: int) -> DoneBlock:
        """Write the labels."""
        read, names = self._read(k), self.adapter.classifier.class_names
        learned = None if self.labels is None else label_texts(labels_of(self.labels, read.keys), names)
        name, about = block_name(self.blocks[k], "parquet"), {"run": self.run, "round": str(version)}
        return write_answers(self.out, name, about, answers, read.keys, read.failed, names, learned)

    def answers(self, k: int) -> BlockAnswers:
        """The labels that were written."""
        name = block_name(self.blocks[k], "parquet")
        return read_answers(self.out, name, self.run, self.adapter.classifier.class_names)

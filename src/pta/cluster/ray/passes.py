"""Blocks of one stream in files, and what the passes find about them, for tasks on any machine.

Files are in a work folder of the run, under names that say which block they are of. States of a repaired block are in
the folder of the round that repaired it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from torch import Tensor

from pta.cluster.blocks.block import Block
from pta.cluster.blocks.loop import BEFORE, SUMMARIES, Round
from pta.cluster.blocks.replay import BlockAnswers
from pta.cluster.blocks.scanning import pack_before, unpack_before
from pta.cluster.blocks.summary import BlockSummary
from pta.cluster.ray.extraction import FeatureBlock, block_name, read_block
from pta.cluster.ray.label_block import Labelled, labelled, write_labels
from pta.cluster.ray.storage import Folder
from pta.data.label_file import label_texts
from pta.door.files import pack_tensors, unpack_tensors
from pta.methods.adapter import Adapter
from pta.run.predict import labels_of

_KIND = "states of a block"
_STATES = ("start", "end", "answers")


@dataclass(frozen=True)
class StoredBlocks:
    """What all tasks of a run share."""

    run: str
    adapter: Adapter  # as at the first sample
    features: Folder
    features_run: str
    work: Folder
    out: Folder
    blocks: Sequence[range]
    epsilon: float
    labels: Mapping[str, int] | None = None  # that are learned, by the samples' keys

    def _file(self, part: str, k: int) -> tuple[Folder, str]:
        return self.work.sub(part), block_name(self.blocks[k])

    def block(self, k: int) -> Block:
        """The features of a block, and the labels that are learned."""
        read = self._read(k)
        if self.labels is None:
            return read.block
        return read.block.with_labels(dict(zip(read.keys, labels_of(self.labels, read.keys.values()), strict=True)))

    def unlearned(self, k: int) -> int:
        """How many samples of a block are answered and not learned."""
        block = self.block(k)
        return len(block) - len(block.learned)

    def _read(self, k: int) -> FeatureBlock:
        return read_block(self.features, self.blocks[k], self.features_run)

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
        states: dict[str, dict[str, Tensor]] = {state: {} for state in _STATES}
        tensors, about = unpack_tensors(content, _KIND)
        for place, tensor in tensors.items():
            state, _, own = place.partition(".")
            states[state][own] = tensor
        answers = BlockAnswers(**states["answers"]) if states["answers"] else None
        return Round(states["start"], states["end"], about["rows"], about["path"], answers)

    def put(self, part: str, k: int, found: Any) -> None:
        """Write it."""
        folder, name = self._file(part, k)
        if part == SUMMARIES:
            content = found.to_bytes()
        elif part == BEFORE:
            content = pack_before(found)
        else:
            answers = vars(found.answers) if found.answers else {}
            states = zip(_STATES, (found.start, found.end, answers), strict=True)
            tensors = {f"{state}.{own}": one for state, held in states for own, one in held.items()}
            content = pack_tensors(tensors, {"kind": _KIND, "rows": found.rows, "path": found.path})
        folder.write(name, content)

    def answered(self, k: int) -> Labelled | None:
        """What is known about the labels of a block, if they are there."""
        return labelled(self.out, block_name(self.blocks[k], "parquet"), self.run)

    def answer(self, k: int, answers: BlockAnswers) -> Labelled:
        """Write the labels."""
        block, names = self._read(k), self.adapter.classifier.class_names
        columns = [getattr(answers, one.name).tolist() for one in fields(BlockAnswers)]
        said = {number: (names[a], p, names[b], q, e) for number, a, p, b, q, e in zip(*columns, strict=True)}
        keys = dict(sorted(block.keys.items()))
        learned = None if self.labels is None else label_texts(labels_of(self.labels, keys.values()), names)
        name = block_name(self.blocks[k], "parquet")
        return write_labels(self.out, name, self.run, keys, said, block.failed, learned=learned)

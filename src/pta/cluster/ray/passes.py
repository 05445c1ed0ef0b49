"""The blocks of one stream in files, and the labels they get, for tasks on any machine."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pta.cluster.blocks.replay import BlockAnswers
from pta.cluster.ray.extraction import read_block
from pta.cluster.ray.findings import FeatureBlock, StoredFindings
from pta.cluster.ray.label_block import DoneBlock, labelled, read_answers, write_answers
from pta.cluster.ray.storage import Folder, block_name
from pta.data.label_file import label_texts
from pta.run.predict import labels_of


@dataclass(frozen=True)
class StoredBlocks(StoredFindings):
    """What all tasks of a run share."""

    run: str
    features: Folder
    features_run: str
    out: Folder
    labels: Mapping[str, int] | None = None  # that are learned, by the samples' keys

    def _from_file(self, k: int) -> FeatureBlock:
        read = read_block(self.features, self.blocks[k], self.features_run)
        if self.labels is None:
            return read
        told = labels_of(self.labels, read.keys).tolist()
        return replace(read, block=read.block.with_labels(dict(zip(read.block.numbers.tolist(), told, strict=True))))

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

"""One stream per key: whole streams in parallel, each by the ordinary step, which is exact for every method."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from pta.cluster.ray.feature_block import Model, block_name
from pta.cluster.ray.label_block import Failed, Labelled, Said, labelled, write_labels
from pta.cluster.ray.listing import Rows, read_rows
from pta.cluster.ray.storage import Folder
from pta.core.classifier import ZeroShotClassifier
from pta.methods import create_adapter, needs_model
from pta.run.classifier import answers_from
from pta.run.encoding import OnError, encode_files, samples_of
from pta.run.reading import Reading


@dataclass(frozen=True)
class Streams:
    """What all tasks of a run share."""

    run: str
    model: Model
    reading: Reading  # with everything that the method needs
    on_error: OnError
    out: Folder  # where the listing is, too
    classifier: ZeroShotClassifier
    method: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class AnswerStreams:
    """The task: answer the streams of one block, one after another, unless that was done."""

    number: int  # of the block
    rows: range

    def __call__(self, own: Streams) -> Labelled:
        """Read, encode, learn, answer and write."""
        name = block_name(self.rows, "parquet")
        there = labelled(own.out, name, own.run)
        if there is not None:
            return there
        rows = read_rows(own.out, self.number)
        said, failed = dict[int, Said](), list[Failed]()
        for _, members in groupby(range(len(rows.samples)), key=rows.streams.__getitem__):
            self._answer(own, rows, list(members), said, failed)
        keys = {int(number): sample.key for number, sample in zip(rows.numbers, rows.samples, strict=True)}
        write_labels(own.out, name, own.run, keys, said, failed, rows.streams)
        changed = sum(label != alone for label, _, alone in said.values())
        return Labelled(len(said), changed, failed)

    def _answer(
        self, own: Streams, rows: Rows, members: list[int], said: dict[int, Said], failed: list[Failed]
    ) -> None:
        """Answer one stream as `pta predict` does."""
        program = own.model.program(own.reading.encoded_at_once, own.reading.compiled)
        model = program.encoder if needs_model(own.method, own.parameters) else None
        adapter = create_adapter(own.method, own.classifier, model=model, source=len(members), **own.parameters)
        samples = ((place, rows.samples[row]) for place, row in enumerate(members))
        for part in encode_files(program, samples, own.reading, on_error=own.on_error, quick_start=True):
            for place, error in part.failures:
                row = members[place]
                failed.append((int(rows.numbers[row]), rows.samples[row].key, str(error)))
            if not part.samples:
                continue
            known = samples_of(part.tensors)
            zero_shot = adapter.classifier.logits(known.features.to(adapter.classifier.anchors))
            logits = adapter.step(known)
            answers = answers_from(
                logits, adapter.probabilities_unchecked(logits), zero_shot, own.classifier.class_names
            )
            columns = (answers.columns.labels[0], answers.columns.probabilities[0], answers.columns.zero_shot_labels)
            numbers = [int(rows.numbers[members[place]]) for place, _ in part.samples]
            said |= dict(zip(numbers, zip(*columns, strict=True), strict=True))

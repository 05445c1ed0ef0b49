"""One stream per key: whole streams in parallel, each by the ordinary step, which is exact for every method."""

from itertools import groupby

from pta.cluster.ray.feature_block import BlockJob, block_name
from pta.cluster.ray.label_block import Failed, Labelled, LabelRow, labelled, write_labels
from pta.cluster.ray.listing import BlockRows, read_rows
from pta.methods import create_adapter, needs_model
from pta.run.answers import answers_from
from pta.run.encoding import encode_files, samples_of


def answer_streams(job: BlockJob, number: int, rows: range) -> Labelled:
    """Answer the streams of one block, one after another, and write the labels, unless that was done."""
    name = block_name(rows, "parquet")
    there = labelled(job.out, name, job.run)
    if there is not None:
        return there
    listed = read_rows(job.out, number)
    said, failed = dict[int, LabelRow](), list[Failed]()
    for _, members in groupby(range(len(listed.samples)), key=listed.streams.__getitem__):
        _answer(job, listed, list(members), said, failed)
    keys = {int(number): sample.key for number, sample in zip(listed.numbers, listed.samples, strict=True)}
    return write_labels(job.out, name, job.run, keys, said, failed, listed.streams)


def _answer(
    job: BlockJob, rows: BlockRows, members: list[int], said: dict[int, LabelRow], failed: list[Failed]
) -> None:
    """Answer one stream as `pta predict` does."""
    program = job.program()
    model = program.encoder if needs_model(job.method, job.parameters) else None
    adapter = create_adapter(job.method, job.classifier, model=model, source=len(members), **job.parameters)
    samples = ((place, rows.samples[row]) for place, row in enumerate(members))
    numbers = [int(rows.numbers[row]) for row in members]
    for part in encode_files(program, samples, job.reading, on_error=job.on_error, quick_start=True):
        failed += [(numbers[place], rows.samples[members[place]].key, str(error)) for place, error in part.failures]
        if not part.samples:
            continue
        known = samples_of(part.tensors)
        zero_shot = adapter.classifier.logits(known.features.to(adapter.classifier.anchors))
        logits = adapter.step(known)
        answers = answers_from(logits, adapter.probabilities_unchecked(logits), zero_shot, job.classifier.class_names)
        columns = (answers.labels[0], answers.probabilities[0], answers.zero_shot_labels)
        said |= dict(zip((numbers[place] for place, _ in part.samples), zip(*columns, strict=True), strict=True))

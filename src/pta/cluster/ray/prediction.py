"""One stream to a folder of labels; or one stream per key.

Streams by key run whole and in parallel, each by the ordinary step, which is exact for every method.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, ClassVar

from pta.cluster.blocks.loop import run_passes
from pta.cluster.blocks.replay import at_state
from pta.cluster.blocks.tasks import OnPhase, Pool, Task, no_progress
from pta.cluster.ray.extraction import KIND as FEATURE_BLOCKS
from pta.cluster.ray.extraction import BlockExtraction, BlockJob, Features
from pta.cluster.ray.feature_source import FeatureRows
from pta.cluster.ray.findings import USUAL_MEMORY, BlockMemory, StoredBlocks
from pta.cluster.ray.label_block import DoneBlock, Failed, labelled, write_labels
from pta.cluster.ray.listing import BlockRows
from pta.cluster.ray.storage import ABOUT, Folder, RunFolder, block_name, read_run, run_id
from pta.core.classifier import ZeroShotClassifier
from pta.core.labels import NONE
from pta.data.label_file import label_texts
from pta.door.files import unpack_tensors
from pta.door.patience import Unread
from pta.errors import StateMismatch, UnreadableFile, UnreadSample, naming
from pta.methods import create_adapter, needs_model
from pta.methods.adapter import Adapter
from pta.models import Encoder
from pta.run.classifier import AnswerBatch, answer_numbers
from pta.run.encoding import encode_files, samples_of
from pta.run.predict import labels_of

KIND = "labels"
STATE = "state.safetensors"


@dataclass(frozen=True)
class PredictedBlocks:
    """What was done for a folder of labels."""

    samples: int  # with a label
    changed: int  # with another label than zero-shot's
    failed: tuple[Failed, ...]
    rounds: int = 0  # of repair
    repaired: int = 0  # rows that were answered again
    remark: str | None = None
    taught: int = 0  # samples whose label was learned, or that were not learned because of it

    def sentence(self, method: str) -> str:
        """The counts, in words."""
        share = 100 * self.changed / max(self.samples, 1)
        skipped = f", {len(self.failed):,} skipped" if self.failed else ""
        taught = f"; {self.taught:,} given labels learned" if self.taught else ""
        changed = f"{method} changed the answer for {self.changed:,} ({share:.1f} %)"
        return f"{self.samples:,} labels{skipped}; {changed}{taught}"

    @classmethod
    def of(
        cls, labels: Sequence[DoneBlock], rounds: int = 0, repaired: int = 0, remark: str | None = None
    ) -> "PredictedBlocks":
        """The sums over all blocks."""
        failed = tuple(one for block in labels for one in block.failed)
        sums = (sum(block.samples for block in labels), sum(block.changed for block in labels))
        return cls(*sums, failed, rounds, repaired, remark, sum(block.taught for block in labels))


@dataclass(frozen=True)
class FeatureFolder:
    """A finished folder of feature blocks, as a source."""

    folder: Folder
    about: Mapping[str, Any]

    @classmethod
    def find(cls, address: str) -> "FeatureFolder | None":
        """The folder at an address, if it is one."""
        folder = Folder.at(address)
        if not folder.has(ABOUT):
            return None
        about = read_run(folder, FEATURE_BLOCKS)
        if not about["finished"]:
            raise UnreadableFile(f"{address} is not finished; run its pta extract again")
        return cls(folder, about)

    @property
    def blocks(self) -> list[range]:
        """The rows of each block."""
        return [range(*ends) for ends in self.about["blocks"]]

    @property
    def inputs(self) -> str:
        """What decides the features."""
        given_up = self.about.get("given_up")
        return run_id({"run": self.run, "given_up": given_up}) if given_up else self.run

    gives_up: ClassVar[bool] = True  # which samples were given up was decided when the folder was made

    @property
    def run(self) -> str:
        """What the blocks carry."""
        return str(self.about["run"])

    def features(self, pool: Pool, work: Folder, told: OnPhase) -> Features:
        """Those that are there."""
        failed = [sum(number in rows for number, _, _ in self.about["failed"]) for rows in self.blocks]
        return self.folder, self.run, failed, []

    def classifier(self) -> ZeroShotClassifier:
        """The classifier that the features were made with."""
        name = block_name(self.blocks[0])
        with naming(f"{self.folder.path(name)}, which the same pta extract makes again if it is damaged"):
            tensors, about = unpack_tensors(self.folder.read(name), "features")
        scale, bias = (float(tensors[one]) for one in ("scale", "bias"))
        return ZeroShotClassifier(tensors["text_features"], about["class_names"], scale=scale, bias=bias)

    def require_from(self, encoder: Encoder, classifier: ZeroShotClassifier) -> None:
        """Refuse features of another model or for another classifier."""
        for what, own in (("model", encoder.fingerprint), ("classifier", classifier.fingerprint)):
            if self.about["inputs"][what] != own:
                raise StateMismatch(
                    f"{self.folder.address} holds features of another {what} (weights, classes or templates); "
                    "give what it was made with, or extract again"
                )


Source = BlockExtraction | FeatureFolder | FeatureRows
"""What one stream comes from."""


def predict_blocks(
    source: Source,
    adapter: Adapter,
    pool: Pool,
    out: Folder,
    epsilon: float,
    told: OnPhase = no_progress,
    labels: Mapping[str, int] | None = None,
    memory: int = USUAL_MEMORY,
) -> PredictedBlocks:
    """Answer one stream from the state that the adapter has, as one process would; the end state is in the folder.

    Labels that are learned are class numbers (or NONE) by the samples' keys. A worker keeps blocks of `memory` bytes.
    """
    inputs: dict[str, Any] = {
        "source": source.inputs,
        "epsilon": epsilon,
        "method": adapter.name,
        "parameters": dict(adapter.parameters),
        "classifier": adapter.classifier.fingerprint,
        "state": digest_of(adapter),
        **_inputs_of(labels),
    }
    has_learned = _is_end_of_run(out, inputs["state"])
    folder, work = RunFolder(KIND, out, inputs | has_learned), out.sub("work")
    if work.exists() and not out.has(ABOUT):
        raise UnreadableFile(f"{work.address} is not of a run, and would be removed; choose another folder")
    known = folder.begin()
    blocks = source.blocks
    is_final = known.get("finished") and (source.gives_up or not known.get("given_up"))
    if is_final and (done := _finished(out, blocks, known.get("labels", folder.id))):
        if isinstance(source, BlockExtraction):
            source.require_decodable(known["failed"], known.get("given_up", ()))
        return PredictedBlocks.of(done, known["rounds"], known["repaired"], known["remark"])
    if has_learned:
        raise StateMismatch(
            f"{out.address} lacks blocks or samples, and the state has gone on since; start again from the state before"
        )
    if known.get("finished"):
        folder.reopen()  # so that answers before their repair do not count
    features, run, failed, given_up = source.features(pool, work, told)
    own = run_id({"run": folder.id, "given_up": given_up}) if given_up else folder.id  # of what is learned
    found = adapter, work.sub(own), blocks, epsilon, BlockMemory(memory)
    stored = StoredBlocks(*found, own, features, run, out, labels)
    if labels is not None and NONE in labels.values():
        more = pool.each([Task(StoredBlocks.unlearned, (k,)) for k in range(len(blocks))], stored)
        failed = [one + other for one, other in zip(failed, more, strict=True)]
    passed = run_passes(stored, pool, failed, told)
    end = at_state(adapter, passed.end)
    out.write(STATE, end.to_bytes())
    result = PredictedBlocks.of(passed.answers, passed.rounds, sum(passed.repaired), passed.remark)
    record = {**vars(result), "state_after": digest_of(end)}
    if isinstance(source, BlockExtraction):
        source.listing.write(out)  # for the next start, as the work is removed
    folder.finish(record | ({"labels": own, "given_up": given_up} if given_up else {}), blocks)
    work.remove()
    return result


def predict_streams(
    source: BlockExtraction,
    method: str,
    parameters: Mapping[str, Any],
    pool: Pool,
    out: Folder,
    told: OnPhase = no_progress,
    labels: Mapping[str, int] | None = None,
) -> PredictedBlocks:
    """Answer one stream per key, each from a fresh state; labels that are learned as for one stream."""
    inputs = {"source": source.inputs, "method": method, "parameters": dict(parameters), **_inputs_of(labels)}
    folder = RunFolder(KIND, out, inputs)
    folder.begin()
    folder.reopen()
    blocks = source.blocks
    job = source.job(folder.id, out, method=method, parameters=parameters, labels=labels)
    done = source.each_block(answer_streams, job, pool, told("streams", len(blocks)))
    result = PredictedBlocks.of(done)
    folder.finish(vars(result), blocks)
    return result


def answer_streams(job: BlockJob, number: int, rows: range, to_give_up: int = 0) -> DoneBlock:
    """Answer the streams of one block, one after another, and write the labels, unless that was done.

    A stream ends at a sample that cannot be read now, and the block is not written; its other streams go on, so that
    all such samples are known. With more of them than are given up, it is not written either.
    """
    name, gives_up = block_name(rows, "parquet"), job.reading.give_up_unread
    there = labelled(job.out, name, job.run)
    if there is not None and (gives_up or not there.given_up):
        return there
    said, failed, unread, given_up = [list[Any]() for _ in range(6)], list[Failed](), list[str](), set[int]()
    try:
        listed = job.listed.read(number, rows)
        for _, members in groupby(range(len(listed.samples)), key=listed.streams.__getitem__):
            try:
                given_up |= _answer(job, listed, list(members), said, failed)
            except UnreadSample as error:
                unread.append(str(error.__cause__))  # the complaint without advice
        listed.require_unchanged()
    except UnreadSample as error:
        return DoneBlock(0, unread=Unread(len(rows), (str(error),)))
    unread += [complaint for number, _, complaint in failed if number in given_up]
    if len(unread) > to_give_up:
        return DoneBlock(0, unread=Unread.of(unread))
    keys, names = [sample.key for sample in listed.samples], job.classifier.class_names
    learned = None if job.labels is None else label_texts(labels_of(job.labels, keys), names)
    about = {"run": job.run} | ({"given_up": json.dumps(sorted(given_up))} if given_up else {})
    return write_labels(job.out, name, about, listed.numbers, keys, said, failed, listed.streams, learned)


def _answer(
    job: BlockJob, rows: BlockRows, members: list[int], said: list[list[Any]], failed: list[Failed]
) -> set[int]:
    """Answer one stream as `pta predict` does; the numbers of samples of it that were given up."""
    given_up = set[int]()
    program = job.program()
    model = program.encoder if needs_model(job.method, job.parameters) else None
    adapter = create_adapter(job.method, job.classifier, model=model, source=len(members), **job.parameters)
    samples = ((place, rows.samples[row]) for place, row in enumerate(members))
    numbers = [int(rows.numbers[row]) for row in members]
    quick = adapter.scope == "sample"  # as in `predict_stream`
    for part in encode_files(program, samples, job.reading, on_error=job.on_error, quick_start=quick):
        failed += [(numbers[place], rows.samples[members[place]].key, str(error)) for place, error in part.failures]
        given_up |= {numbers[place] for place, error in part.failures if isinstance(error, UnreadSample)}
        if not part.samples:
            continue
        known = samples_of(part.tensors)
        zero_shot = adapter.classifier.logits(known.features.to(adapter.classifier.anchors))
        if job.labels is None:
            logits = adapter.step(known)
        else:
            logits = adapter.step_or_answer(known, labels_of(job.labels, [one.key for _, one in part.samples]))
        told = answer_numbers(logits, adapter.probabilities_unchecked(logits), zero_shot)
        held = AnswerBatch(told, job.classifier.class_names).columns
        alone = (held.zero_shot_labels, held.zero_shot_probabilities)
        own = [numbers[place] for place, _ in part.samples]
        more: list[Sequence[Any]] = [own, held.labels[0], held.probabilities[0], *alone, held.entropies]
        for column, values in zip(said, more, strict=True):
            column += values
    return given_up


def _inputs_of(labels: Mapping[str, int] | None) -> dict[str, str]:
    """What identifies labels in a run; a run without any is known as before there were labels."""
    if labels is None:
        return {}
    return {"labels": hashlib.sha256(json.dumps(sorted(labels.items())).encode()).hexdigest()}


def digest_of(adapter: Adapter) -> str:
    """The sha256 of what an adapter has learned."""
    digest = hashlib.sha256()
    for name, tensor in sorted(adapter.state().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).numpy().tobytes())
    return digest.hexdigest()


def _finished(out: Folder, blocks: Sequence[range], run: str) -> list[DoneBlock] | None:
    """What all blocks of a finished run hold, if none was damaged since."""
    found = [labelled(out, block_name(rows, "parquet"), run) for rows in blocks]
    whole = [one for one in found if one is not None]
    return whole if len(whole) == len(found) and out.is_whole(STATE) else None


def _is_end_of_run(out: Folder, state: str) -> dict[str, str]:
    """Where a finished run in the folder ended in this state, the state that it began with."""
    if not out.has(ABOUT):
        return {}
    known = read_run(out, KIND)
    return {"state": known["inputs"]["state"]} if known.get("state_after") == state else {}

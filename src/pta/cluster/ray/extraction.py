"""Samples to a folder of feature blocks, by any number of workers.

A block is a feature file of its own, with the numbers of its samples.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from safetensors.torch import load
from torch import Tensor

from pta.cluster.blocks.block import Block
from pta.cluster.blocks.tasks import OnPhase, OnProgress, Pool, Task
from pta.cluster.ray.label_block import DoneBlock, Failed
from pta.cluster.ray.listing import BlockReader, Listing
from pta.cluster.ray.storage import Folder, RunFolder, block_name, run_id
from pta.core.classifier import ZeroShotClassifier
from pta.data.features import STORED_AS
from pta.door.files import packed_in_order
from pta.door.patience import ADVICE, MOST_UNREAD, NO_UNREAD, Unread
from pta.errors import StateMismatch, UnreadableFile, UnreadableSample, UnreadSample, naming
from pta.models import Encoder, load_encoder
from pta.run.encoding import OnError, encode_files, unless_skipped
from pta.run.extract import stored
from pta.run.gpu.encoder_program import COMPILED_FROM, EncoderProgram
from pta.run.reading import Reading

KIND = "feature blocks"


@lru_cache(1)
def _program(model: str, device: str, dtype: str, batch: int, compiled: bool) -> EncoderProgram:
    encoder = load_encoder(model, device=device, dtype=dtype)
    return EncoderProgram(encoder, batch, COMPILED_FROM, whole=True, optimise=compiled)


@dataclass(frozen=True)
class BlockJob:
    """What all tasks of a run share that read samples."""

    run: str
    model: str  # which workers load, each from its own disk or from a shared one; never from the hub
    device: str
    dtype: str
    fingerprint: str  # of the model
    reading: Reading  # with everything that the method needs
    on_error: OnError
    out: Folder
    listed: BlockReader
    classifier: ZeroShotClassifier
    record: Mapping[str, Any]  # of features: where they come from, as in the files of `pta extract`
    method: str = ""  # of streams
    parameters: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, int] | None = None  # that streams learn, by the samples' keys

    def program(self) -> EncoderProgram:
        """The model for batches of one size, loaded once per process; it must be the one that the driver has."""
        reading = self.reading
        program = _program(self.model, self.device, self.dtype, reading.encoded_at_once, reading.compiled)
        if program.encoder.fingerprint != self.fingerprint:
            raise StateMismatch(f"a worker has other weights for {self.model} than the driver; give a shared path")
        return program


def encode_block(job: BlockJob, number: int, rows: range, to_give_up: int = 0) -> DoneBlock:
    """Write the features of a block, unless they are there, or more samples than are given up could not be read now."""
    there = job.out.about(block_name(rows))
    given_up = there.get("given_up", [])
    if there.get("run") == job.run and (job.reading.give_up_unread or not given_up):
        return DoneBlock(there["count"], [tuple(one) for one in there["failed"]], given_up=given_up)
    try:
        tensors, failed, unread = _encode(job, number, rows)
    except UnreadSample as error:  # which samples there are
        return DoneBlock(0, unread=Unread(len(rows), (str(error),)))
    if len(unread) > to_give_up:
        return DoneBlock(0, unread=Unread.of(complaint for _, _, complaint in unread))
    given_up = [number for number, _, _ in unread]
    failed = sorted([*failed, *unread])
    names, count = job.classifier.class_names, len(tensors["numbers"])
    about = {
        **job.record,
        **{"kind": "features", "version": 1, "run": job.run, "failed": failed, "count": count},
        **{"start": rows.start, "stop": rows.stop, "class_names": list(names)},
        **{"skipped": [complaint for _, _, complaint in failed], "classifier": job.classifier.fingerprint},
    }
    about |= {"given_up": given_up} if given_up else {}
    metadata = {"classnames": json.dumps(names, ensure_ascii=False), "about": json.dumps(about, sort_keys=True)}
    job.out.write(block_name(rows), packed_in_order(tensors, metadata))
    return DoneBlock(count, failed, len(rows), given_up=given_up)


def _encode(job: BlockJob, block: int, listed: range) -> tuple[dict[str, Tensor], list[Failed], list[Failed]]:
    rows, program, first = job.listed.read(block, listed), job.program(), listed.start
    parts: list[dict[str, Tensor]] = []
    kept, failed, unread = list[int](), list[Failed](), list[Failed]()
    numbered = enumerate(rows.samples, first)  # views are drawn from the number
    for part in encode_files(program, numbered, job.reading, on_error=job.on_error, pass_unread=True):
        if part.samples:
            parts.append(stored(part.tensors))
        kept += [number - first for number, _ in part.samples]
        for row, error in ((number - first, error) for number, error in part.failures):
            kind = unread if isinstance(error, UnreadSample) else failed
            kind.append((int(rows.numbers[row]), rows.samples[row].key, str(error)))
        if len(unread) >= MOST_UNREAD and not job.reading.give_up_unread:
            break
    rows.require_unchanged()
    features = {name: torch.cat([part[name] for part in parts]) for name in (parts[0] if parts else ())}
    keys = json.dumps([rows.samples[row].key for row in kept]).encode()
    described = {
        "image_features": torch.empty(0, program.encoder.dim),
        "text_features": job.classifier.anchors.float().cpu(),
        "scale": torch.tensor(job.classifier.scale, dtype=torch.float64),
        "bias": torch.tensor(job.classifier.bias, dtype=torch.float64),
        "numbers": torch.from_numpy(rows.numbers[kept].astype(np.int64)),
        "paths": torch.frombuffer(bytearray(keys), dtype=torch.uint8),
    }
    if rows.labels is not None:
        described["labels"] = torch.from_numpy(rows.labels[kept].astype(np.int64))
    return described | {name: tensor.contiguous() for name, tensor in features.items()}, failed, unread


Features = tuple[Folder, str, list[int], list[int]]
"""A folder of feature blocks, their run, how many samples of each block have no features, and who was given up now."""


@dataclass(frozen=True)
class FeatureBlock:
    """A block as it is read."""

    block: Block
    keys: list[str]  # of the samples that have features
    failed: list[Failed]  # those that have none


def read_block(folder: Folder, rows: range, run: str) -> FeatureBlock:
    """The features of a finished block, if it is of this run."""
    name = block_name(rows)
    about = folder.about(name)
    if about.get("run") != run:
        raise UnreadableFile(f"{folder.path(name)} is cut short or of another run; run the command that makes it again")
    tensors = load(folder.read(name))
    with naming(folder.path(name)):
        failed: list[Failed] = [tuple(one) for one in about["failed"]]
        numbers, features = tensors["numbers"], tensors[STORED_AS["features"]]
        keys = dict(zip(numbers.tolist(), json.loads(tensors["paths"].numpy().tobytes()), strict=True))
        block = Block.of(rows.start, len(rows), numbers.clone(), features, [number for number, _, _ in failed])
        return FeatureBlock(block, [keys[number] for number in block.numbers.tolist()], failed)


def require_no_unread(done: Iterable[DoneBlock], advice: str = ADVICE) -> None:
    """Refuse to go on without blocks that could not be read."""
    if unread := sum((block.unread for block in done), NO_UNREAD):
        raise unread.error(advice)


@dataclass(frozen=True)
class BlockExtraction:
    """Everything that decides what the feature blocks of a listing are."""

    listing: Listing
    encoder: Encoder  # the driver's, which reads texts; workers load their own
    model: str
    device: str  # the workers'
    reading: Reading
    on_error: OnError
    classifier: ZeroShotClassifier
    dataset: str
    block: int

    @property
    def inputs(self) -> dict[str, Any]:
        """All of it that is not the same for every run."""
        views = self.reading.views
        return {
            "listing": self.listing.digest,
            "count": len(self.listing),
            "block": self.block,
            "model": self.encoder.fingerprint,
            "architecture": self.encoder.architecture,
            "dtype": str(self.encoder.dtype).removeprefix("torch."),
            "preprocessing": self.encoder.preparation,
            "device": self.device,
            "decode": self.reading.decode,
            "compiled": self.reading.compiled,
            "fast_decode": self.reading.fast_decode,
            "limits": asdict(self.reading.limits),
            "batch": self.reading.batch,
            "views": None if views is None else asdict(views),
            "pixels": self.reading.raw,
            "patches": self.reading.patches,
            "classifier": self.classifier.fingerprint,
        }

    @property
    def blocks(self) -> Sequence[range]:
        """The rows of each block."""
        return self.listing.blocks

    @property
    def gives_up(self) -> bool:
        """Whether samples that cannot be read are given up."""
        return self.reading.give_up_unread

    def features(self, pool: Pool, work: Folder, told: OnPhase) -> Features:
        """Encode everything in a work folder."""
        folder, run = work.sub("features"), run_id(self.inputs)
        encoded = self.encode(pool, folder, run, told("features", len(self.blocks)))
        given_up = [number for block in encoded for number in block.given_up]
        return folder, run, [len(block.failed) for block in encoded], given_up

    def job(self, run: str, out: Folder, **more: Any) -> BlockJob:
        """What workers are told."""
        inputs = self.inputs
        model = self.model, self.device, inputs["dtype"], inputs["model"]
        images = {name: value for name, value in inputs.items() if name not in ("listing", "count", "classifier")}
        record = {"dataset": self.dataset, "images": images, "model": self.model}
        listed = self.listing.reader(out)
        return BlockJob(run, *model, self.reading, self.on_error, out, listed, self.classifier, record, **more)

    def each_block(
        self, function: Callable[..., DoneBlock], job: BlockJob, pool: Pool, told: OnProgress
    ) -> list[DoneBlock]:
        """Write the listing, and do the same for each block; afterwards refuse what could not be read.

        Samples are given up if no worker could read them: at most as many of a block as the best of them left.
        """
        self.listing.write(job.out)
        done = pool.each([Task(function, given) for given in enumerate(self.blocks)], job, told)
        if left := {k: block.unread.count for k, block in enumerate(done) if block.unread and self.gives_up}:
            again = pool.each([Task(function, (k, self.blocks[k], count)) for k, count in left.items()], job)
            for k, block in zip(left, again, strict=True):
                done[k] = block
        require_no_unread(done)
        for block in done:
            self.require_decodable(block.failed, block.given_up)
        failed = [one for block in done for one in block.failed]
        if len(failed) == len(self.listing):
            kind = UnreadSample if any(block.given_up for block in done) else UnreadableSample
            raise kind(f"none of the {len(failed)} samples of {self.dataset} could be read: {failed[0][2]}")
        return done

    def require_decodable(self, failed: Iterable[Failed], given_up: Sequence[int]) -> None:
        """Refuse samples that were skipped, unless they still are."""
        unread = set(given_up)
        for number, _, complaint in failed if self.on_error == "stop" else ():
            if number not in unread:
                raise unless_skipped(complaint)

    def encode(self, pool: Pool, out: Folder, run: str, told: OnProgress) -> list[DoneBlock]:
        """Write all blocks and the listing; blocks of this run that are there are left as they are."""
        return self.each_block(encode_block, self.job(run, out), pool, told)


@dataclass(frozen=True)
class Extracted:
    """What was done for a folder of feature blocks."""

    samples: int  # with features
    encoded: int  # now; 0 when all of them were there
    failed: tuple[Failed, ...]


def extract_blocks(
    extraction: BlockExtraction,
    pool: Pool,
    out: Folder,
    *,
    prompts: Sequence[str] = (),
    replace: bool = False,
    told: OnProgress = lambda done: None,
) -> Extracted:
    """Make a folder that `pta eval --features` and `pta predict --cluster` read as one set."""
    folder = RunFolder(KIND, out, extraction.inputs)
    if folder.begin(replace=replace).get("given_up") and not extraction.gives_up:
        folder.reopen()
    done = extraction.encode(pool, out, folder.id, told)
    failed = tuple(one for block in done for one in block.failed)
    given_up = [number for block in done for number in block.given_up]
    samples = sum(block.samples for block in done)
    record = {"dataset": extraction.dataset, "samples": samples, "failed": failed}
    record |= {"given_up": given_up} if given_up else {}
    folder.finish({**record, "model": extraction.model, "prompts": list(prompts)}, extraction.blocks)
    return Extracted(samples, sum(block.encoded for block in done), failed)

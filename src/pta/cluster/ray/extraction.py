"""Samples to a folder of feature blocks, by any number of workers.

A block is a feature file of its own, with the numbers of its samples.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from safetensors.torch import load
from torch import Tensor

from pta.cluster.blocks.block import Block
from pta.cluster.blocks.loop import OnPhase, OnProgress, Pool, Result, Task
from pta.cluster.ray.label_block import Failed
from pta.cluster.ray.listing import BlockReader, Listing
from pta.cluster.ray.storage import Folder, RunFolder, run_id
from pta.core.classifier import ZeroShotClassifier
from pta.data.features import STORED_AS
from pta.door.files import packed_in_order
from pta.errors import StateMismatch, UnreadableFile, UnreadableSample, naming
from pta.models import Encoder, load_encoder
from pta.run.encoding import OnError, encode_files, unless_skipped
from pta.run.extract import stored
from pta.run.gpu.encoder_program import COMPILED_FROM, EncoderProgram
from pta.run.reading import Reading

KIND = "feature blocks"


def block_name(rows: range, ending: str = "safetensors") -> str:
    """The file of a block, by its first row and the row after its last.

    >>> block_name(range(0, 65_536))
    '000000000000-000000065536.safetensors'
    """
    return f"{rows.start:012d}-{rows.stop:012d}.{ending}"


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


@dataclass(frozen=True)
class EncodedBlock:
    """What is known about a finished block."""

    learned: int  # samples with features
    failed: list[Failed]
    encoded: int  # now; 0 if it was there


def encode_block(job: BlockJob, number: int, rows: range) -> EncodedBlock:
    """Write the features of a block, unless they are there."""
    there = job.out.about(block_name(rows))
    if there.get("run") == job.run:
        return EncodedBlock(there["count"], [tuple(one) for one in there["failed"]], 0)
    tensors, failed = _encode(job, number, rows)
    names, count = job.classifier.class_names, len(tensors["numbers"])
    about = {
        **job.record,
        **{"kind": "features", "version": 1, "run": job.run, "failed": failed, "count": count},
        **{"start": rows.start, "stop": rows.stop, "class_names": list(names)},
        **{"skipped": [complaint for _, _, complaint in failed], "classifier": job.classifier.fingerprint},
    }
    metadata = {"classnames": json.dumps(names, ensure_ascii=False), "about": json.dumps(about, sort_keys=True)}
    job.out.write(block_name(rows), packed_in_order(tensors, metadata))
    return EncodedBlock(count, failed, len(rows))


def _encode(job: BlockJob, block: int, listed: range) -> tuple[dict[str, Tensor], list[Failed]]:
    rows, program, first = job.listed.read(block, listed), job.program(), listed.start
    parts: list[dict[str, Tensor]] = []
    kept, failed = list[int](), list[Failed]()
    numbered = enumerate(rows.samples, first)  # views are drawn from the number
    for part in encode_files(program, numbered, job.reading, on_error=job.on_error):
        if part.samples:
            parts.append(stored(part.tensors))
        kept += [number - first for number, _ in part.samples]
        for row, error in ((number - first, error) for number, error in part.failures):
            failed.append((int(rows.numbers[row]), rows.samples[row].key, str(error)))
    features = {name: torch.cat([part[name] for part in parts]) for name in (parts[0] if parts else ())}
    keys = json.dumps([rows.samples[row].key for row in kept]).encode()
    described = {
        "image_features": torch.empty(0, program.encoder.dim),
        "text_features": job.classifier.anchors.float().cpu().contiguous(),
        "scale": torch.tensor(job.classifier.scale, dtype=torch.float64),
        "bias": torch.tensor(job.classifier.bias, dtype=torch.float64),
        "numbers": torch.from_numpy(rows.numbers[kept].astype(np.int64)),
        "paths": torch.frombuffer(bytearray(keys), dtype=torch.uint8),
    }
    if rows.labels is not None:
        described["labels"] = torch.from_numpy(rows.labels[kept].astype(np.int64))
    return described | {name: tensor.contiguous() for name, tensor in features.items()}, failed


Features = tuple[Folder, str, list[int]]
"""A folder of feature blocks, their run, and how many samples of each block have no features."""


@dataclass(frozen=True)
class FeatureBlock:
    """A block as the second pass reads it."""

    block: Block
    keys: dict[int, str]  # by number, also of samples that could not be read
    failed: list[Failed]


def read_block(folder: Folder, rows: range, run: str) -> FeatureBlock:
    """The features of a finished block, if it is of this run."""
    name = block_name(rows)
    about = folder.about(name)
    if about.get("run") != run:
        raise UnreadableFile(f"{folder.path(name)} is cut short or of another run; run the command that makes it again")
    tensors = {key: tensor.clone() for key, tensor in load(folder.read(name)).items()}  # aligned like any tensor
    with naming(folder.path(name)):
        numbers = tensors["numbers"]
        keys = dict(zip(numbers.tolist(), json.loads(bytes(tensors["paths"].tolist())), strict=True))
        failed: list[Failed] = [tuple(one) for one in about["failed"]]
        keys |= {number: key for number, key, _ in failed}
        features = tensors[STORED_AS["features"]]
        block = Block.of(rows.start, len(rows), numbers, features, [number for number, _, _ in failed])
        return FeatureBlock(block, keys, failed)


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
            "on_error": self.on_error,
            "classifier": self.classifier.fingerprint,
        }

    @property
    def blocks(self) -> Sequence[range]:
        """The rows of each block."""
        return self.listing.blocks

    def features(self, pool: Pool, work: Folder, told: OnPhase) -> Features:
        """Encode everything in a work folder."""
        folder, run = work.sub("features"), run_id(self.inputs)
        encoded = self.encode(pool, folder, run, told("features", len(self.blocks)))
        return folder, run, [len(block.failed) for block in encoded]

    def job(self, run: str, out: Folder, **more: Any) -> BlockJob:
        """What workers are told."""
        inputs = self.inputs
        model = self.model, self.device, inputs["dtype"], inputs["model"]
        images = {name: value for name, value in inputs.items() if name not in ("listing", "count", "classifier")}
        record = {"dataset": self.dataset, "images": images, "model": self.model}
        listed = self.listing.reader(out)
        return BlockJob(run, *model, self.reading, self.on_error, out, listed, self.classifier, record, **more)

    def each_block(self, function: Callable[..., Result], job: BlockJob, pool: Pool, told: OnProgress) -> list[Result]:
        """Write the listing, and do the same for each block."""
        self.listing.write(job.out)
        return pool.each([Task(function, given) for given in enumerate(self.blocks)], job, told)

    def encode(self, pool: Pool, out: Folder, run: str, told: OnProgress) -> list[EncodedBlock]:
        """Write all blocks and the listing; blocks of this run that are there are left as they are."""
        done = self.each_block(encode_block, self.job(run, out), pool, told)
        self.require_read([one for block in done for one in block.failed])
        return done

    def require_read(self, failed: Sequence[Failed]) -> None:
        """Refuse samples that could not be read, unless they are to be skipped and there are others."""
        if failed and self.on_error == "stop":
            raise unless_skipped(failed[0][2])
        if len(failed) == len(self.listing):
            raise UnreadableSample(f"none of the {len(failed)} samples of {self.dataset} could be read: {failed[0][2]}")


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
    folder.begin(replace=replace)
    done = extraction.encode(pool, out, folder.id, told)
    failed = tuple(one for block in done for one in block.failed)
    samples = sum(block.learned for block in done)
    blocks = [[rows.start, rows.stop] for rows in extraction.blocks]
    record = {"dataset": extraction.dataset, "samples": samples, "failed": failed, "blocks": blocks}
    folder.finish({**record, "model": extraction.model, "prompts": list(prompts)})
    return Extracted(samples, sum(block.encoded for block in done), failed)

"""A stream, or one stream per key, to a folder of labels."""

import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from pta.cluster.blocks.loop import OnPhase, Pool, no_progress, run_passes
from pta.cluster.blocks.replay import at_state
from pta.cluster.blocks.scanning import require_summable
from pta.cluster.ray.extraction import KIND as FEATURE_BLOCKS
from pta.cluster.ray.extraction import BlockExtraction
from pta.cluster.ray.feature_block import block_name
from pta.cluster.ray.label_block import Failed, Labelled, labelled
from pta.cluster.ray.passes import StoredBlocks
from pta.cluster.ray.run_folder import ABOUT, RunFolder, read_run, run_id
from pta.cluster.ray.storage import Folder
from pta.cluster.ray.streams import answer_streams
from pta.core.classifier import ZeroShotClassifier
from pta.core.parameters import require_number
from pta.door.files import unpack_tensors
from pta.errors import StateMismatch, UnreadableFile, naming
from pta.methods.adapter import Adapter
from pta.models import Encoder

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

    def sentence(self, method: str) -> str:
        """The counts, in words."""
        share = 100 * self.changed / max(self.samples, 1)
        skipped = f", {len(self.failed):,} skipped" if self.failed else ""
        return f"{self.samples:,} labels{skipped}; {method} changed the answer for {self.changed:,} ({share:.1f} %)"

    @classmethod
    def of(
        cls, labels: Sequence[Labelled], rounds: int = 0, repaired: int = 0, remark: str | None = None
    ) -> "PredictedBlocks":
        """The sums over all blocks."""
        failed = tuple(one for block in labels for one in block.failed)
        sums = (sum(block.samples for block in labels), sum(block.changed for block in labels))
        return cls(*sums, failed, rounds, repaired, remark)


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

    def failed_in(self, rows: range) -> int:
        """How many samples of a block have no features."""
        return sum(number in rows for number, _, _ in self.about["failed"])

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


def predict_blocks(
    source: BlockExtraction | FeatureFolder,
    adapter: Adapter,
    pool: Pool,
    out: Folder,
    epsilon: float,
    told: OnPhase = no_progress,
) -> PredictedBlocks:
    """Answer one stream from the state that the adapter has, as one process would; the end state is in the folder."""
    require_summable(adapter)
    epsilon = require_number("epsilon", epsilon, 0.0, inf)
    inputs = {
        "source": source.inputs if isinstance(source, BlockExtraction) else source.about["run"],
        "epsilon": epsilon,
        **_learned(adapter),
    }
    has_learned = _is_end_of_run(out, inputs["state"])
    folder, work = RunFolder(KIND, out, inputs | has_learned), out.sub("work")
    if work.exists() and not out.has(ABOUT):
        raise UnreadableFile(f"{work.address} is not of a run, and would be removed; choose another folder")
    known = folder.begin()
    blocks = source.listing.blocks if isinstance(source, BlockExtraction) else source.blocks
    if known.get("finished") and (done := _finished(folder, blocks)):
        return PredictedBlocks.of(done, known["rounds"], known["repaired"], known["remark"])
    if has_learned:
        raise StateMismatch(
            f"{out.address} has lost blocks, and the state has gone on since; start again from the state before"
        )
    if isinstance(source, BlockExtraction):
        features, run = work.sub("features"), run_id(source.inputs)
        encoded = source.run(pool, features, run, told("features", len(blocks)))
        failed = [len(block.failed) for block in encoded]
    else:
        features, run, failed = source.folder, source.about["run"], [source.failed_in(rows) for rows in blocks]
    stored = StoredBlocks(folder.id, adapter, features, run, work.sub(folder.id), out, blocks, epsilon)
    passed = run_passes(stored, pool, failed, told)
    end = at_state(adapter, passed.end)
    out.write(STATE, _saved(end))
    result = PredictedBlocks.of(passed.answers, passed.rounds, sum(passed.repaired), passed.remark)
    ends = [[rows.start, rows.stop] for rows in blocks]
    folder.finish({**vars(result), "blocks": ends, "state_after": digest_of(end)})
    work.remove()
    return result


def predict_streams(
    source: BlockExtraction,
    method: str,
    parameters: Mapping[str, Any],
    pool: Pool,
    out: Folder,
    told: OnPhase = no_progress,
) -> PredictedBlocks:
    """Answer one stream per key, each from a fresh state."""
    folder = RunFolder(KIND, out, {"source": source.inputs, "method": method, "parameters": dict(parameters)})
    folder.begin()
    blocks = source.listing.blocks
    job = source.job(folder.id, out, method=method, parameters=parameters)
    result = PredictedBlocks.of(source.each_block(answer_streams, job, pool, told("streams", len(blocks))))
    source.require_read(result.failed)
    folder.finish({**vars(result), "blocks": [[rows.start, rows.stop] for rows in blocks]})
    return result


def digest_of(adapter: Adapter) -> str:
    """The sha256 of what an adapter has learned."""
    digest = hashlib.sha256()
    for name, tensor in sorted(adapter.state().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).numpy().tobytes())
    return digest.hexdigest()


def _learned(adapter: Adapter) -> dict[str, Any]:
    """What decides answers beside the features."""
    return {
        "method": adapter.name,
        "parameters": dict(adapter.parameters),
        "classifier": adapter.classifier.fingerprint,
        "state": digest_of(adapter),
    }


def _finished(folder: RunFolder, blocks: Sequence[range]) -> list[Labelled] | None:
    """What all blocks of a finished run hold, if none was damaged since."""
    found = [labelled(folder.out, block_name(rows, "parquet"), folder.id) for rows in blocks]
    whole = [one for one in found if one is not None]
    return whole if len(whole) == len(found) and folder.out.is_whole(STATE) else None


def _is_end_of_run(out: Folder, state: str) -> dict[str, str]:
    """Where a finished run in the folder ended in this state, the state that it began with."""
    if not out.has(ABOUT):
        return {}
    known = read_run(out, KIND)
    return {"state": known["inputs"]["state"]} if known.get("state_after") == state else {}


def _saved(adapter: Adapter) -> bytes:
    """The state file of an adapter."""
    with tempfile.TemporaryDirectory() as folder:
        adapter.save(Path(folder) / STATE)
        return (Path(folder) / STATE).read_bytes()

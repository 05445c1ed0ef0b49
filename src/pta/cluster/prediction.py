"""A stream, or one stream per key, to a folder of labels."""

import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pta.adapters.adapter import Adapter
from pta.adapters.state_file import Snapshot
from pta.classifier import ZeroShotClassifier
from pta.cluster.extraction import KIND as FEATURE_BLOCKS
from pta.cluster.extraction import Extraction
from pta.cluster.feature_block import block_name
from pta.cluster.label_block import Failed, Labelled, labelled
from pta.cluster.passes import Passes, run_passes
from pta.cluster.pool import Phases, Pool
from pta.cluster.run_folder import ABOUT, RunFolder, read_run, run_id
from pta.cluster.storage import Folder
from pta.cluster.streams import AnswerStreams, Streams
from pta.cluster.summary import State, require_summable
from pta.errors import StateMismatch, UnreadableFile
from pta.inference.encoding import unless_skipped

KIND = "labels"
STATE = "state.safetensors"


@dataclass(frozen=True)
class Predicted:
    """What was done for a folder of labels."""

    samples: int  # with a label
    changed: int  # with another label than zero-shot's
    failed: tuple[Failed, ...]
    rounds: int = 0  # of repair
    repaired: int = 0  # rows that were answered again

    @classmethod
    def of(cls, labels: Sequence[Labelled], rounds: int = 0, repaired: int = 0) -> "Predicted":
        """The sums over all blocks."""
        failed = tuple(one for block in labels for one in block.failed)
        sums = (sum(block.samples for block in labels), sum(block.changed for block in labels))
        return cls(*sums, failed, rounds, repaired)


@dataclass(frozen=True)
class FeatureFolder:
    """A finished folder of feature blocks, as a source."""

    folder: Folder
    about: Mapping[str, Any]

    @classmethod
    def find(cls, address: str) -> "FeatureFolder | None":
        """The folder at an address, if it is one."""
        folder = Folder(address)
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

    def require_from(self, model: str, classifier: ZeroShotClassifier) -> None:
        """Refuse features of another model or for another classifier."""
        for what, own in (("model", model), ("classifier", classifier.fingerprint)):
            if self.about["inputs"][what] != own:
                raise StateMismatch(
                    f"{self.folder.address} holds features of another {what} (weights, classes or templates); "
                    "give what it was made with, or extract again"
                )


def predict_blocks(
    source: Extraction | FeatureFolder,
    adapter: Adapter,
    pool: Pool,
    out: Folder,
    epsilon: float,
    told: Phases = lambda what, count: lambda done: None,
) -> Predicted:
    """Answer one stream from the state that the adapter has, as one process would; the end state is in the folder."""
    require_summable(adapter)
    inputs = {
        "source": source.inputs if isinstance(source, Extraction) else source.about["run"],
        "epsilon": epsilon,
        **_learned(adapter),
    }
    folder = RunFolder(KIND, out, inputs)
    known = folder.begin()
    blocks = source.listing.blocks if isinstance(source, Extraction) else source.blocks
    if known.get("finished") and (done := _finished(folder, blocks)):
        return Predicted.of(done, known["rounds"], known["repaired"])
    work = out.sub("work")
    if isinstance(source, Extraction):
        features, run = work.sub("features"), run_id(source.inputs)
        encoded = source.run(pool, features, run, told("features", len(blocks)))
        failed = [len(block.failed) for block in encoded]
    else:
        features, run, failed = source.folder, source.about["run"], [source.failed_in(rows) for rows in blocks]
    passes = Passes(folder.id, adapter, features, run, work.sub(folder.id), out, blocks, epsilon)
    passed = run_passes(passes, pool, failed, told)
    out.write(STATE, _saved(adapter, passed.end))
    result = Predicted.of(passed.labels, passed.rounds, passed.repaired)
    folder.finish({**vars(result), "blocks": [[rows.start, rows.stop] for rows in blocks]})
    work.remove()
    return result


def predict_streams(
    source: Extraction,
    method: str,
    parameters: Mapping[str, Any],
    pool: Pool,
    out: Folder,
    told: Phases = lambda what, count: lambda done: None,
) -> Predicted:
    """Answer one stream per key, each from a fresh state."""
    folder = RunFolder(KIND, out, {"source": source.inputs, "method": method, "parameters": dict(parameters)})
    folder.begin()
    source.listing.write(out)
    shared = Streams(
        *(folder.id, source.model_of_workers(), source.reading, source.on_error),
        *(out, out, source.classifier, method, parameters),
    )
    blocks = source.listing.blocks
    tasks = [AnswerStreams(number, rows) for number, rows in enumerate(blocks)]
    result = Predicted.of(pool.each(tasks, shared, told("streams", len(tasks))))
    if result.failed and source.on_error == "stop":
        raise unless_skipped(result.failed[0][2])
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


def _saved(adapter: Adapter, end: State) -> bytes:
    """The state file of an adapter that has come to the end of the stream."""
    twin = adapter.clone()
    twin.restore(Snapshot(adapter.name, adapter.parameters, adapter.classifier, end))
    with tempfile.TemporaryDirectory() as folder:
        twin.save(Path(folder) / STATE)
        return (Path(folder) / STATE).read_bytes()

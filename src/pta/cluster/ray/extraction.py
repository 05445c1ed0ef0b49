"""Pictures to a folder of feature blocks, by any number of workers."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pta.cluster.ray.feature_block import EncodeBlock, EncodedBlock, Encoding, Model
from pta.cluster.ray.label_block import Failed
from pta.cluster.ray.listing import Listing
from pta.cluster.ray.pool import OnProgress, Pool
from pta.cluster.ray.run_folder import RunFolder
from pta.cluster.ray.storage import Folder
from pta.core.classifier import ZeroShotClassifier
from pta.errors import UnreadableSample
from pta.models import Encoder
from pta.run.encoding import OnError, unless_skipped
from pta.run.reading import Reading

KIND = "feature blocks"


@dataclass(frozen=True)
class Extraction:
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

    def model_of_workers(self) -> Model:
        """What workers load."""
        dtype = str(self.encoder.dtype).removeprefix("torch.")
        return Model(self.model, self.device, dtype, self.encoder.fingerprint)

    def run(self, pool: Pool, out: Folder, run: str, told: OnProgress = lambda done: None) -> list[EncodedBlock]:
        """Write all blocks and the listing; blocks of this run that are there are left as they are."""
        self.listing.write(out)
        images = {name: value for name, value in self.inputs.items() if name not in ("listing", "count", "classifier")}
        record = {"dataset": self.dataset, "images": images, "model": self.model}
        encoding = Encoding(*(run, self.model_of_workers(), self.reading, self.on_error, out, self.classifier, record))
        tasks = [EncodeBlock(number, rows) for number, rows in enumerate(self.listing.blocks)]
        done = pool.each(tasks, encoding, told)
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
    extraction: Extraction,
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
    done = extraction.run(pool, out, folder.id, told)
    failed = tuple(one for block in done for one in block.failed)
    samples = sum(block.learned for block in done)
    blocks = [[rows.start, rows.stop] for rows in extraction.listing.blocks]
    record = {"dataset": extraction.dataset, "samples": samples, "failed": failed, "blocks": blocks}
    folder.finish({**record, "model": extraction.model, "prompts": list(prompts)})
    return Extracted(samples, sum(block.encoded for block in done), failed)

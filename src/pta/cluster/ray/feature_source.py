"""Features that files hold, as a source: they are copied into feature blocks, which the passes read.

A `.npz` or `.safetensors` file is read and cut by the driver; a column of parquet files by workers.
"""

import json
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from pta.cluster.blocks.block import in_blocks
from pta.cluster.blocks.tasks import OnPhase, Pool, Task, ThisProcess
from pta.cluster.ray.extraction import Features, require_no_unread
from pta.cluster.ray.label_block import DoneBlock
from pta.cluster.ray.listing import BlockReader, Listing
from pta.cluster.ray.storage import Folder, block_name, run_id
from pta.core.samples import Samples
from pta.data.features import STORED_AS, FeatureFile
from pta.door.files import packed_in_order
from pta.door.patience import AGAIN, Unread
from pta.errors import InvalidSamples, UnreadSample, naming


@dataclass(frozen=True)
class FeatureRows:
    """The features of a file, or of a listing of parquet files, in blocks of a size."""

    held: FeatureFile | Listing
    block: int
    dim: int  # of the classifier
    gives_up: ClassVar[bool] = True  # there is nothing to give up

    @property
    def blocks(self) -> list[range]:
        """The rows of each block."""
        return in_blocks(len(self.held if isinstance(self.held, Listing) else self.held.samples), self.block)

    @property
    def inputs(self) -> dict[str, Any]:
        """What decides the features."""
        held = self.held.digest if isinstance(self.held, Listing) else self.held.fingerprint
        return {"features": held, "count": self.blocks[-1].stop, "block": self.block}

    def features(self, pool: Pool, work: Folder, told: OnPhase) -> Features:
        """Copy everything into a work folder."""
        folder, run, blocks = work.sub("features"), run_id(self.inputs), self.blocks
        begun = told("features", len(blocks))
        if isinstance(self.held, Listing):
            listing = self.held.cut(self.block)
            listing.write(folder)
            reader = listing.reader(folder)
            tasks = [Task(_copy_column, (folder, run, self.dim, *one)) for one in enumerate(blocks)]
            require_no_unread(pool.each(tasks, reader, begun), AGAIN)
        else:
            ThisProcess().each([Task(_copy_rows, (folder, run, rows)) for rows in blocks], self.held, begun)
        return folder, run, [0] * len(blocks), []


def _copy_rows(file: FeatureFile, folder: Folder, run: str, rows: range) -> None:
    keys = list(map(str, rows)) if file.paths is None else list(file.paths[rows.start : rows.stop])
    _write(folder, run, rows, torch.arange(rows.start, rows.stop), keys, file.samples.features[rows.start : rows.stop])


def _copy_column(reader: BlockReader, folder: Folder, run: str, dim: int, block: int, rows: range) -> DoneBlock:
    done = DoneBlock(len(rows))
    if folder.about(block_name(rows)).get("run") == run:
        return done
    try:
        numbers, keys, values = reader.values(block, rows)
    except UnreadSample as error:
        return DoneBlock(0, unread=Unread(len(rows), (str(error),)))
    with naming("the column of features"):
        if values.ndim != 2 or values.shape[1] != dim:
            raise InvalidSamples(f"every row must hold {dim} numbers, as many as the model has dimensions")
        features = Samples.of(values).features
    _write(folder, run, rows, torch.from_numpy(numbers), keys, features)
    return done


def _write(folder: Folder, run: str, rows: range, numbers: Tensor, keys: list[str], features: Tensor) -> None:
    paths = torch.frombuffer(bytearray(json.dumps(keys).encode()), dtype=torch.uint8)
    tensors = {STORED_AS["features"]: features.contiguous(), "numbers": numbers, "paths": paths}
    about = {"kind": "features", "version": 1, "run": run, "failed": [], "count": len(rows)}
    folder.write(block_name(rows), packed_in_order(tensors, {"about": json.dumps(about)}))

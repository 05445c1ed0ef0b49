"""`--cluster` of `pta extract` and `pta predict`: the same work on Ray, to a folder of blocks."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from pta.adapters import Adapter, create_adapter, load_adapter
from pta.claims import sole_writer, sole_writers
from pta.classifier import ZeroShotClassifier
from pta.cli.messages import say
from pta.cli.output import progress
from pta.cluster.extraction import Extracted, Extraction, extract_blocks
from pta.cluster.label_block import Failed
from pta.cluster.listing import Listing, number_samples
from pta.cluster.pool import Phases, Told
from pta.cluster.prediction import STATE, FeatureFolder, Predicted, digest_of, predict_blocks, predict_streams
from pta.cluster.ray_pool import RayPool, connected
from pta.cluster.run_folder import ABOUT
from pta.cluster.sources import list_samples
from pta.cluster.storage import Folder, is_remote
from pta.encoders import Encoder
from pta.errors import InvalidParameter, UnreadableFile
from pta.files import make_folder, write_atomically
from pta.inference.encoding import OnError
from pta.inference.live_classifier import Classifier
from pta.inference.reading import Reading

_SHOWN = 20  # samples that could not be read


@dataclass(frozen=True)
class OnCluster:
    """What the options of a cluster say."""

    cluster: str
    out: str
    block: int
    parallel: int | None
    trust_network: bool

    @property
    def folder(self) -> Folder:
        """Where blocks go."""
        return Folder(self.out if is_remote(self.out) else str(Path(self.out).absolute()))

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Be the only writer of the folder, if it is on a disk; an object store has no locks."""
        if is_remote(self.out):
            yield
            return
        make_folder(Path(self.out))
        with sole_writer(Path(self.out) / ABOUT):
            yield

    @contextmanager
    def workers(self, device: str, threads: int | None) -> Iterator[tuple[str, RayPool]]:
        """The device of the workers, and the workers; with a GPU each, if they use GPUs."""
        with connected(self.cluster, trust_network=self.trust_network) as ray:
            if device == "auto":
                device = "cuda" if ray.cluster_resources().get("GPU") else "cpu"
            gpus = int(device.startswith("cuda"))
            with RayPool(ray, self.parallel, cpus=threads or 1, gpus=gpus, say=say) as pool:
                yield device, pool


@dataclass(frozen=True)
class Pictures:
    """What the options of reading and encoding say."""

    source: str
    model: str
    encoder: Encoder  # the driver's, on its processor: it reads the class names
    device: str
    reading: Reading
    on_error: OnError

    def listing(self, names: Sequence[str] | None, block: int, by: str | None, *, labelled: bool) -> Listing:
        """The numbered samples of the source, and a line about them."""
        table = list_samples(self.source, self.encoder.modality, by)
        listing = number_samples(table, block, names, labelled=labelled)
        said = f"{len(listing):,} {self.encoder.modality.name}s in {len(listing.blocks):,} blocks"
        say(f"{self.source}: {said}")
        return listing

    def extraction(self, listing: Listing, device: str, classifier: ZeroShotClassifier, block: int) -> Extraction:
        """What the workers are told: they decode in one thread, unless more were asked for."""
        name = self.source.rstrip("/").rpartition("/")[2].partition(".")[0]
        reading = replace(self.reading, workers=self.reading.workers or 1, processes=False)
        return Extraction(
            *(listing, self.encoder, self.model, device, reading, self.on_error, classifier, name, block)
        )


def refuse(given: Mapping[str, bool]) -> None:
    """Refuse options that have no meaning on a cluster."""
    for option, is_given in given.items():
        if is_given:
            raise InvalidParameter(f"{option} cannot be used with --cluster")


def extract_on_cluster(
    on: OnCluster, pictures: Pictures, listing: Listing, classifier: ZeroShotClassifier, about: Mapping[str, Any]
) -> Extracted:
    """Make a folder of feature blocks."""
    with on.alone(), on.workers(pictures.device, pictures.reading.workers) as (device, pool), _phases() as told:
        extraction = pictures.extraction(listing, device, classifier, on.block)
        done = extract_blocks(extraction, pool, on.folder, about=about, told=told("features", len(listing.blocks)))
    _report_failed(done.failed)
    return done


def predict_on_cluster(
    on: OnCluster, pictures: Pictures, classifier: Classifier, state: Path | None, epsilon: float, by: str | None
) -> Predicted:
    """Make a folder of labels of pictures."""
    names = classifier.classifier.class_names
    listing = pictures.listing(names, on.block, by, labelled=False)
    pictures = replace(pictures, reading=classifier.reading(pictures.reading))
    with on.alone(), sole_writers(state), on.workers(pictures.device, pictures.reading.workers) as (device, pool):
        extraction = pictures.extraction(listing, device, classifier.classifier, on.block)
        with _phases() as told:
            if by is None:
                return _predict(on, extraction, classifier.adapter, pool, state, epsilon, told)
            adapter = classifier.adapter
            return predict_streams(extraction, adapter.name, adapter.parameters, pool, on.folder, told)

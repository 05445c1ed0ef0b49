"""`--cluster` of `pta extract` and `pta predict`: the same work on Ray, to a folder of blocks."""

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from pta.cli.messages import say, warn
from pta.cli.options import ClassTexts, ClusterOptions, NamedModel, TextOptions
from pta.cli.output import progress, require_folder_place, write_json
from pta.cli.predict_options import PredictOptions
from pta.cluster.blocks.scanning import require_summable
from pta.cluster.blocks.tasks import OnPhase, OnProgress
from pta.cluster.ray.extraction import BlockExtraction, extract_blocks
from pta.cluster.ray.feature_source import FeatureRows
from pta.cluster.ray.label_block import Failed
from pta.cluster.ray.listing import Listing, number_samples, usual_block
from pta.cluster.ray.prediction import STATE, FeatureFolder, PredictedBlocks, Source, predict_blocks, predict_streams
from pta.cluster.ray.ray_pool import RayPool, connected
from pta.cluster.ray.storage import ABOUT, Folder, kept_block
from pta.core.classifier import ZeroShotClassifier
from pta.data.features import FeatureFile, load_features
from pta.data.sources.addresses import is_remote
from pta.data.sources.table import list_samples
from pta.door.claims import sole_writer, sole_writers
from pta.door.files import write_atomically
from pta.door.plain_files import make_folder
from pta.errors import InvalidParameter
from pta.methods import Adapter, create_adapter, load_adapter, needs_model
from pta.run.encoding import OnError
from pta.run.reading import Reading

_SHOWN = 20  # samples that could not be read
_FILE_ENDINGS = (".csv", ".json", ".jsonl", ".npz", ".parquet", ".safetensors", ".tsv", ".txt")


@dataclass(frozen=True)
class OnCluster:
    """A folder of blocks, and the workers that write it."""

    how: ClusterOptions
    out: str
    json: Path | None = None  # where what was done is written

    def __post_init__(self) -> None:
        if is_remote(self.out):
            return
        if Path(self.out).suffix.lower() in _FILE_ENDINGS:
            folder = shlex.quote(str(Path(self.out).with_suffix("")))
            raise InvalidParameter(f"--out {self.out}: with --cluster it is a folder of blocks; use --out {folder}")
        require_folder_place(Path(self.out))

    @property
    def folder(self) -> Folder:
        """Where blocks go."""
        return Folder.at(self.out)

    def block(self, count: int, usual: int) -> int:
        """The size of blocks: what was given, that of the run in the folder, or the usual one."""
        return self.how.block or kept_block(self.folder, count) or usual

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
        assert self.how.cluster is not None
        with connected(self.how.cluster, trust_network=self.how.trust_network) as ray:
            if device == "auto":
                device = "cuda" if ray.cluster_resources().get("GPU") else "cpu"
            gpus = int(device.startswith("cuda"))
            with RayPool(ray, self.how.parallel, cpus=threads or 1, gpus=gpus, say=say) as pool:
                yield device, pool

    def report(self, sentence: str, record: Mapping[str, Any]) -> None:
        """Say what was done, and which samples could not be read."""
        failed: Sequence[Failed] = record["failed"]
        for number, _, complaint in failed[:_SHOWN]:
            say(f"skipped: number {number}: {complaint}")
        if len(failed) > _SHOWN:
            say(f"skipped: {len(failed) - _SHOWN:,} more, which {self.folder.path(ABOUT)} lists")
        if write_json(self.json, {"folder": self.out, **record}):
            print(f"{self.out}: {sentence}")


def say_busy(source: str, blocks: Sequence[range], pool: RayPool) -> None:
    """Say what there is, and how many workers have something to do."""
    busy = f"{min(len(blocks), pool.workers):,} of {pool.workers:,} workers can be busy"
    say(f"{source}: {blocks[-1].stop:,} samples in {len(blocks):,} blocks; {busy}")


@dataclass(frozen=True)
class Pictures:
    """What the options of reading and encoding say."""

    source: str
    model: NamedModel  # the driver's is on its processor: it reads the class names
    device: str
    reading: Reading
    on_error: OnError

    def listing(
        self, names: Sequence[str] | None, by: str | None, *, labelled: bool, features: bool = False
    ) -> Listing:
        """The numbered samples of the source, or if they may be its features."""
        give_up = self.reading.give_up_unread
        table = list_samples(self.source, self.model.modality, by, give_up_unread=give_up)
        listing = number_samples(table, names, labelled=labelled)
        if listing.holds_features and not features:
            raise InvalidParameter(f"{self.source} holds features; pta predict without --by reads them as they are")
        return listing

    def extraction(
        self, listing: Listing, on: OnCluster, pool: RayPool, device: str, classifier: ZeroShotClassifier
    ) -> BlockExtraction:
        """What the workers are told: they decode in one thread, unless more were asked for."""
        listing = listing.known_to(on.folder).known_to(on.folder.sub("work").sub("features"))
        block = on.block(len(listing), listing.block_size(pool.workers))
        name = self.source.rstrip("/").rpartition("/")[2].partition(".")[0]
        reading = self.reading.changed(workers=self.reading.workers or 1, processes=False)
        model = (self.model.encoder, self.model.name)
        return BlockExtraction(*(listing.cut(block), *model, device, reading, self.on_error, classifier, name, block))


def extract_on_cluster(
    on: OnCluster, pictures: Pictures, names: Sequence[str] | None, given: TextOptions, replace_other: bool
) -> None:
    """Make a folder of feature blocks."""
    listing = pictures.listing(names, None, labelled=True)
    if not listing.class_names:
        said = f"nothing says which classes there are in {pictures.source}"
        raise InvalidParameter(f"{said}; --classes FILE (one name per line)")
    texts = given.of(listing.class_names, pictures.model.modality.prompts)
    encoder = pictures.model.encoder
    if pictures.reading.patches:
        encoder.patch_count()  # raises if the model has none
    classifier = texts.classifier(encoder)
    with on.alone(), on.workers(pictures.device, pictures.reading.workers) as (device, pool), _phases() as told:
        extraction = pictures.extraction(listing, on, pool, device, classifier)
        say_busy(pictures.source, extraction.blocks, pool)
        begun = told("features", len(extraction.blocks))
        done = extract_blocks(extraction, pool, on.folder, prompts=texts.templates, replace=replace_other, told=begun)
    what = f"{done.encoded:,} encoded now" if done.encoded else "all were there already"
    on.report(f"{done.samples:,} {pictures.model.modality.name}s, {what}", vars(done))


@contextmanager
def _adapter(given: PredictOptions, model: NamedModel, classifier: ZeroShotClassifier) -> Iterator[Adapter]:
    """The method at the first sample of a stream that can be cut; nobody else writes its state meanwhile."""
    state, method = given.state, given.method.for_blocks()
    with sole_writers(state.state):
        if state.loaded is None:
            encoder = model.encoder if needs_model(method.name, method.parameters) else None
            adapter = create_adapter(method.name, classifier, model=encoder, **method.parameters)
        else:
            adapter = load_adapter(state.loaded, classifier)
        require_summable(adapter)
        if state.loaded is None and method != given.method:
            chosen = ", ".join(f"{name}={adapter.parameters[name]}" for name in ("prior", "calibration"))
            say(f"{adapter.name} runs with {chosen}, so that blocks give exactly what one stream would")
        yield adapter


def predict_on_cluster(given: PredictOptions, model: NamedModel, reading: Reading) -> None:
    """Make a folder of labels: of one stream, or of one per key."""
    on, source = OnCluster(given.cluster, given.rows.out_), given.images[0]
    pictures = Pictures(source, model, given.model.device, reading, given.samples.on_error)
    is_file = Path(source).suffix.lower() in (".npz", ".safetensors")
    features = load_features(source) if is_file else FeatureFolder.find(source)
    if given.by is not None:
        if features is not None or given.state.state is not None:
            raise InvalidParameter("--by makes streams of pictures, each with a state of its own; leave --state out")
        _predict_streams(on, given, pictures)
    elif features is None:
        _predict_pictures(on, given, pictures)
    else:
        _predict_features(on, given, model, features)


def _texts(given: PredictOptions, model: NamedModel) -> ClassTexts:
    return given.texts.of(given.texts.names(), model.modality.prompts)


def _predict_features(
    on: OnCluster, given: PredictOptions, model: NamedModel, features: FeatureFolder | FeatureFile
) -> None:
    classifier = features.classifier if isinstance(features, FeatureFile) else features.classifier()
    given.state.require(given.method, classifier.class_names)
    if given.texts.classes is not None:
        if isinstance(features, FeatureFile):
            raise InvalidParameter(f"{given.images[0]} has classes of its own; leave --classes out")
        encoder = model.encoder
        features.require_from(encoder, _texts(given, model).classifier(encoder))
    with _adapter(given, model, classifier) as adapter, on.alone(), on.workers("cpu", None) as (_, pool):
        source = _rows(on, features, classifier, pool) if isinstance(features, FeatureFile) else features
        _predict(on, source, adapter, pool, given)


def _rows(on: OnCluster, held: Listing | FeatureFile, classifier: ZeroShotClassifier, pool: RayPool) -> FeatureRows:
    count = len(held if isinstance(held, Listing) else held.samples)
    return FeatureRows(held, on.block(count, usual_block(count, pool.workers)), classifier.dim)


def _predict_pictures(on: OnCluster, given: PredictOptions, pictures: Pictures) -> None:
    texts = _texts(given, pictures.model)
    given.state.require(given.method, texts.names)
    listing = pictures.listing(None, None, labelled=False, features=True)
    classifier = texts.classifier(pictures.model.encoder)
    with (
        _adapter(given, pictures.model, classifier) as adapter,
        on.alone(),
        on.workers(pictures.device, pictures.reading.workers) as (device, pool),
    ):
        rows = _rows(on, listing, classifier, pool) if listing.holds_features else None
        source = rows or pictures.extraction(listing, on, pool, device, classifier)
        _predict(on, source, adapter, pool, given)


def _predict(on: OnCluster, source: Source, adapter: Adapter, pool: RayPool, given: PredictOptions) -> None:
    say_busy(given.images[0], source.blocks, pool)
    with _phases() as phases:
        labels = given.labels(adapter.classifier.class_names)
        done = predict_blocks(
            source, adapter, pool, on.folder, given.epsilon, phases, labels, int(on.how.block_memory * 2**30)
        )
    _warn_of_labels_without_samples(given, done)
    if given.state.state is not None:
        write_atomically(given.state.state, on.folder.read(STATE))
    if done.remark:
        say(done.remark)
    repairs = f"{done.rounds} rounds of repair, {done.repaired:,} samples answered again"
    on.report(f"{done.sentence(adapter.name)}; {repairs}", vars(done))


def _predict_streams(on: OnCluster, given: PredictOptions, pictures: Pictures) -> None:
    texts = _texts(given, pictures.model)
    listing = pictures.listing(None, given.by, labelled=False)
    anchors = texts.classifier(pictures.model.encoder)
    method, parameters = given.method.name, given.method.parameters
    model = pictures.model.encoder if needs_model(method, parameters) else None
    adapter = create_adapter(method, anchors, model=model, source=len(listing), **parameters)
    if adapter.wants_preview:
        raise InvalidParameter(f"{adapter.name} with these parameters sees the whole stream before it answers")
    reading = pictures.reading
    with on.alone(), on.workers(pictures.device, reading.workers) as (device, pool), _phases() as phases:
        extraction = pictures.extraction(listing, on, pool, device, anchors)
        say_busy(pictures.source, extraction.blocks, pool)
        labels = given.labels(anchors.class_names)
        done = predict_streams(extraction, method, parameters, pool, on.folder, phases, labels)
    _warn_of_labels_without_samples(given, done)
    on.report(done.sentence(method), vars(done))


def _warn_of_labels_without_samples(given: PredictOptions, done: PredictedBlocks) -> None:
    if given.rows.learn_labels is not None and not done.taught:
        warn(f"warning: {given.rows.learn_labels} has no label for any of these samples; its paths are not their keys")


@contextmanager
def _phases() -> Iterator[OnPhase]:
    """Progress by blocks, with the time that is left."""
    with progress() as bar:

        def begin(what: str, count: int) -> OnProgress:
            task, began = bar.add_task(what, total=count), time.monotonic()

            def told(done: int) -> None:
                seconds = (time.monotonic() - began) / done * (count - done) if done else 0.0
                left = f" ({timedelta(seconds=round(seconds))} left)" if done else ""
                bar.update(task, completed=done, description=f"{what}{left}, blocks", visible=done < count)

            return told

        yield begin

"""`pta extract`: encode images or point clouds into a feature file."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from rich.filesize import decimal
from typer import Argument, Option

from pta.cli import options
from pta.cli.messages import say, warn
from pta.cli.options import NamedModel
from pta.cli.output import progress_of, require_place, write_json
from pta.cli.video_options import VideoOptions
from pta.data.generated import USUAL_COUNT, find_generated
from pta.data.open import open_samples
from pta.data.sample_set import SampleSet
from pta.data.views import Mode
from pta.errors import InvalidParameter
from pta.models import find_device
from pta.run.encoding import OnError
from pta.run.extract import ExtractedFile, require_feature_file, require_modality
from pta.run.extract import extract as extract_features
from pta.run.reading import Reading, Views, require_decoder, start_early


@dataclass(frozen=True)
class StoredOptions:
    """What is stored beside the features."""

    views: Annotated[int | None, "Also store this many augmented views per image."] = None
    view_mode: Annotated[Mode, "How views are made."] = "augmix"
    seed: Annotated[int, "Random seed of the views.", Option(min=0)] = 1
    pixels: Annotated[bool, "Also store the pixels, for methods that need them: 150 kB per image at 224."] = False
    patches: Annotated[bool, "Also store features of each image's patches: 200 kB per image for ViT-B/16."] = False
    views_from: Annotated[
        Path | None, "Also store features of pictures in this folder, generated from each image: STEM_0.jpg, …"
    ] = None
    prompts: Annotated[bool, "Also store the feature of every prompt of each class, as etta needs."] = False
    generated: Annotated[
        int | None, "Pictures of --views-from per image.", Option(min=1, show_default=str(USUAL_COUNT))
    ] = None

    def __post_init__(self) -> None:
        if self.generated is not None and self.views_from is None:
            raise InvalidParameter("--generated needs --views-from, the folder of the generated pictures")

    def reading(self, how: options.SampleOptions) -> Reading:
        """How samples are read for that; what is generated is found when the samples are known."""
        views = None if self.views is None else Views(self.views, self.view_mode, self.seed)
        return how.reading(how.processes, views=views, raw=self.pixels, patches=self.patches)


def extract(
    source: Annotated[
        str,
        "A name from pta datasets, a folder with a sub-folder per class, a .csv of path,label, .tar shards, "
        "an .h5 file of clouds, a video, or the packaged images: fashion/clean, fashion/blur/3.",
        Argument(metavar="DATASET|FOLDER|CSV|TAR|H5|VIDEO"),
    ],
    out: Annotated[str, "The feature file to write, .safetensors; with --cluster a folder."],
    texts: options.TextOptions,
    model: options.ModelOptions,
    stored: StoredOptions,
    samples: options.SampleOptions,
    video: VideoOptions,
    cluster: options.ClusterOptions,
    data: Annotated[Path | None, "The folder that holds the datasets, for a dataset's name."] = None,
    shard: Annotated[int, "Images per saved part; an interrupted run repeats at most one part.", Option(min=1)] = 1024,
    replace: Annotated[bool, "Overwrite an existing file with other content."] = False,
    json: Annotated[Path | None, "Write a summary as JSON; - for stdout."] = None,
) -> None:
    """Encode images or point clouds into a feature file for pta eval. Resumes; finished parts are kept."""
    require_place(json)
    if cluster.cluster is None:
        require_feature_file(out, replace=replace)
    named, reading = cluster.model(model), stored.reading(samples)
    names = None if texts.classes is None else texts.names()
    if cluster.cluster is not None:
        cluster.refuse(
            {
                "--views-from": stored.views_from is not None,
                "--prompts": stored.prompts,
                "--data": data is not None,
                **video.given(),
            }
        )
        from pta.cli.on_cluster import OnCluster, Pictures, extract_on_cluster

        pictures = Pictures(source, named, model.device, reading, samples.on_error)
        extract_on_cluster(OnCluster(cluster, out, json), pictures, names, texts, replace)
        return
    device = find_device(model.device)
    require_decoder(reading.decode, named.modality, device)
    if video.reading.takes(source):
        reading = dataclasses.replace(reading, processes=False)  # one decoder serves all frames
    else:
        video.require_none()
    how: dict[str, Any] = {"modality": named.modality, "video": video.reading, "limits": reading.limits}
    images = open_samples(source, root=data, class_names=names, **how)
    require_modality(images, named.modality, named.name)
    if not images.class_names:
        raise InvalidParameter(f"{source} names no classes; give --classes FILE (one name per line)")
    for note in images.notes:
        say(note)
    if stored.views_from is not None:
        generated = find_generated(images, stored.views_from, stored.generated or USUAL_COUNT)
        reading = dataclasses.replace(reading, generated=generated)
    start_early(reading, named.modality, device, len(images))
    done = extract_to(
        *(Path(out), images, named, texts, reading, samples.on_error),
        keep_prompts=stored.prompts,
        shard=shard,
        replace=replace,
        on_size=lambda size: say(f"{out} will take {decimal(size)}, and twice that while it is written"),
    )
    _report(done, f"{named.modality.name}s", json)


def extract_to(
    out: Path,
    images: SampleSet,
    model: NamedModel,
    texts: options.TextOptions,
    reading: Reading,
    on_error: OnError,
    *,
    keep_prompts: bool = False,
    **how: Any,
) -> ExtractedFile:
    """Load the model, and encode the texts and the images with a progress bar; for `how` see `pta.run.extract`."""
    own = texts.of(images.class_names, images.prompts or model.modality.prompts)
    encoder = model.encoder  # from here on, nothing is left that could be checked without it
    if reading.patches:
        encoder.patch_count()  # raises if the model has none
    described = texts.descriptions and str(texts.descriptions)
    about = {"model": model.name, "prompts": list(own.templates), "descriptions": described}
    with progress_of("texts") as move:
        classifier = own.classifier(encoder, move, keep_prompts=keep_prompts)
        move(0, len(images), images.name)
        given = (images, encoder, classifier, out, reading)
        return extract_features(*given, about=about, on_error=on_error, on_progress=move, **how)


def warn_of_left_out(done: ExtractedFile) -> None:
    """Warn of each sample without features."""
    for line in done.skipped:
        warn(f"skipped: {line}")
    for line in done.given_up:
        warn(f"given up: {line}")


def _report(done: ExtractedFile, samples: str, json: Path | None) -> None:
    warn_of_left_out(done)
    if done.decoded:
        say(done.decoded)
    record = {"file": str(done.path), "images": done.samples, "encoded": done.encoded}
    record |= {"skipped": done.skipped, "given_up": done.given_up}
    if write_json(json, record):
        there = "all encoded before" + (", text features renewed" if done.texts_renewed else "")
        what = f"{done.encoded:,} encoded now" if done.encoded else there
        print(f"{done.path}: {done.samples:,} {samples}, {what}")

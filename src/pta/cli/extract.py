"""`pta extract`: encode images or point clouds into a feature file."""

import dataclasses
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal
from rich.progress import Progress, TaskID

from pta.cli import options
from pta.cli.before_loading import NamedModel, Texts
from pta.cli.class_list import read_classes
from pta.cli.messages import say, warn
from pta.cli.output import progress, require_place, write_json
from pta.data.generated import USUAL_COUNT, find_generated
from pta.data.open import open_samples
from pta.data.sample_set import SampleSet
from pta.data.views import Mode
from pta.door.limits import USUAL_LIMITS, Limits
from pta.errors import InvalidParameter
from pta.models import DEFAULT_MODEL, find_device
from pta.run.decoding import require_decoder
from pta.run.extract import Extraction, require_feature_file, require_modality
from pta.run.extract import extract as extract_features
from pta.run.reading import Reading, Views


def extract(
    source: Annotated[
        str,
        typer.Argument(
            metavar="DATASET|FOLDER|CSV|TAR|H5",
            help="A name from pta datasets, a folder with a sub-folder per class, a .csv of path,label, .tar shards, "
            "an .h5 file of clouds, or the packaged images: fashion/clean, fashion/blur/3.",
        ),
    ],
    out: Annotated[str, typer.Option(help="The feature file to write, .safetensors; with --cluster a folder.")],
    data: Annotated[Path | None, typer.Option(help="The folder that holds the datasets, for a dataset's name.")] = None,
    classes: options.Classes = None,
    model: options.Model = DEFAULT_MODEL,
    templates: options.Templates = "clip",
    descriptions: options.Descriptions = None,
    views: Annotated[int | None, typer.Option(help="Also store this many augmented views per image.")] = None,
    view_mode: Annotated[Mode, typer.Option(help="How views are made.")] = "augmix",
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the views.")] = 1,
    pixels: Annotated[
        bool,
        typer.Option("--pixels", help="Also store the pixels, for methods that need them: 150 kB per image at 224."),
    ] = False,
    patches: Annotated[
        bool,
        typer.Option("--patches", help="Also store features of each image's patches: 200 kB per image for ViT-B/16."),
    ] = False,
    views_from: Annotated[
        Path | None,
        typer.Option(help="Also store features of pictures in this folder, generated from each image: STEM_0.jpg, …"),
    ] = None,
    generated: Annotated[
        int | None, typer.Option(min=1, help="Pictures of --views-from per image.", show_default=str(USUAL_COUNT))
    ] = None,
    shard: Annotated[
        int, typer.Option(min=1, help="Images per saved part; an interrupted run repeats at most one part.")
    ] = 1024,
    replace: Annotated[bool, typer.Option("--replace", help="Overwrite an existing file with other content.")] = False,
    on_error: options.OnError = "stop",
    fast_decode: options.FastDecode = False,
    decode: options.Decode = "auto",
    decode_memory: options.DecodeMemory = options.USUAL_DECODE_MEMORY,
    no_compile: options.NoCompile = False,
    device: options.Device = "auto",
    dtype: options.Dtype = "float32",
    batch: options.Batch = 64,
    workers: options.Workers = None,
    processes: options.Processes = None,
    max_pixels: options.MaxPixels = USUAL_LIMITS.max_pixels,
    max_bytes: options.MaxBytes = USUAL_LIMITS.max_bytes,
    json: Annotated[Path | None, typer.Option(help="Write a summary as JSON; - for stdout.")] = None,
    cluster: options.Cluster = None,
    block: options.Block = options.USUAL_BLOCK,
    parallel: options.Parallel = None,
    trust_network: options.TrustNetwork = False,
) -> None:
    """Encode images or point clouds into a feature file for pta eval. Resumes; finished parts are kept."""
    require_place(json)
    if cluster is None:
        require_feature_file(out, replace=replace)
    if generated is not None and views_from is None:
        raise InvalidParameter("--generated needs --views-from, the folder of the generated pictures")
    drawn = None if views is None else Views(views, view_mode, seed)
    how = options.decoding(decode, decode_memory, no_compile)
    reading = Reading(batch, workers, fast_decode, drawn, pixels, Limits(max_bytes, max_pixels), patches, **how)
    named = NamedModel(model, device if cluster is None else "cpu", dtype)  # --device is the workers' on a cluster
    names = None if classes is None else read_classes(classes)
    if cluster is not None:
        options.refuse_on_cluster({"--views-from": views_from is not None, "--data": data is not None})
        from pta.cli.on_cluster import OnCluster, Pictures, extract_on_cluster

        on = OnCluster(cluster, out, block, parallel, trust_network, json)
        pictures = Pictures(source, named, device, reading, on_error)
        extract_on_cluster(on, pictures, names, templates, descriptions, replace)
        return
    require_decoder(decode, named.modality, find_device(device))
    images = _open(source, data, names, named)
    if views_from is not None:
        reading = dataclasses.replace(reading, generated=find_generated(images, views_from, generated or USUAL_COUNT))
    texts = Texts.read(images.class_names, templates, descriptions, images.prompts or named.modality.prompts)
    encoder = named.encoder  # from here on, nothing is left that could be checked without it
    if patches:
        encoder.patch_count()  # raises if the model has none
    reading = reading.changed(processes=options.in_processes(processes, encoder, len(images)))
    about = {"model": model, "prompts": list(texts.templates), "descriptions": descriptions and str(descriptions)}
    with progress() as bar:
        task = bar.add_task("texts")
        move = partial(_move, bar, task)
        classifier = texts.classifier(encoder, move)
        bar.update(task, description=images.name, completed=0, total=len(images))
        done = extract_features(
            *(images, encoder, classifier, Path(out), reading),
            about=about,
            shard=shard,
            replace=replace,
            on_error=on_error,
            on_progress=move,
            on_size=lambda size: say(f"{out} will take {decimal(size)}, and twice that while it is written"),
        )
    _report(done, f"{encoder.modality.name}s", json)


def _open(source: str, data: Path | None, names: Sequence[str] | None, model: NamedModel) -> SampleSet:
    images = open_samples(source, root=data, class_names=names, modality=model.modality)
    require_modality(images, model.modality, model.name)
    if not images.class_names:
        raise InvalidParameter(f"{source} names no classes; give --classes FILE (one name per line)")
    for note in images.notes:
        say(note)
    return images


def _move(bar: Progress, task: TaskID, done: int, total: int | None = None) -> None:
    bar.update(task, completed=done, total=total)  # a total of None changes nothing


def _report(done: Extraction, samples: str, json: Path | None) -> None:
    for line in done.skipped:
        warn(f"skipped: {line}")
    if done.decoded:
        say(done.decoded)
    record = {"file": str(done.path), "images": done.samples, "encoded": done.encoded, "skipped": done.skipped}
    if write_json(json, record):
        there = "all encoded before" + (", text features renewed" if done.texts_renewed else "")
        what = f"{done.encoded:,} encoded now" if done.encoded else there
        print(f"{done.path}: {done.samples:,} {samples}, {what}")

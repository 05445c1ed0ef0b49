"""Options that several commands share, each written once."""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from pta.cli.messages import detail, say
from pta.datasets.feature_blocks import is_feature_folder
from pta.datasets.features import FeatureFile, load_features
from pta.encoders import Encoder, find_device, load_encoder
from pta.errors import InvalidParameter, MissingPackage, UnreadableFile, how_to_install, shown
from pta.evaluation.stream import KINDS
from pta.files import exists, read_text
from pta.images.batch_decoder import DECODE_MEMORY
from pta.inference import encoding
from pta.inference import reading as reading_samples
from pta.inference.encoder_program import COMPILED_FROM
from pta.prompts import load_descriptions

MODEL_VARIABLE = "PTA_MODEL"  # names the model where --model does not
Model = Annotated[
    str,
    typer.Option(
        envvar=MODEL_VARIABLE,
        help="hf:FOLDER or hf:HUB/NAME, openclip:ARCHITECTURE/WEIGHTS, file:PATH, or embedded (clothing only).",
    ),
]
Templates = Annotated[
    str, typer.Option(help="vanilla, clip, coop, dpe, clip7, clip80, ulip64, a file, or one template with {}.")
]
Descriptions = Annotated[
    Path | None, typer.Option(help="JSON file of sentences for each class, used beside the templates.")
]
Classes = Annotated[
    str | None, typer.Option(metavar="FILE|A,B,C", help="Class names: a file with one a line, or a list with commas.")
]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, mps, or auto for a GPU if there is one.")]
Dtype = Annotated[str, typer.Option(help="Precision of the model: float32, float16 or bfloat16.")]
Batch = Annotated[int, typer.Option(min=1, help="Samples encoded at once; changes speed, and at most the last bits.")]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Threads that decode samples.", show_default="one per processor, at most 8")
]
Processes = Annotated[
    bool | None,
    typer.Option(
        "--processes/--threads",
        help="What the workers are that decode with Pillow: processes start slowly and run faster.",
        show_default="processes for 2,000 images or more and a model on a GPU",
    ),
]
FastDecode = Annotated[
    bool,
    typer.Option("--fast-decode", help="Decode large JPEG files at a fraction of their size: nearly the same pixels."),
]
Decode = Annotated[
    reading_samples.Decode, typer.Option(help="What decodes JPEG files: pillow, gpu, or auto for a GPU with a decoder.")
]
DecodeMemory = Annotated[float, typer.Option(min=0.001, max=1024, help="GiB of decoded pixels on the GPU at once.")]
NoCompile = Annotated[
    bool, typer.Option("--no-compile", help="Run the model as it is on a GPU; else 2,000 samples or more compile it.")
]
MaxPixels = Annotated[int, typer.Option(min=1, help="Images of more pixels are not decoded.")]
MaxBytes = Annotated[int, typer.Option(min=1, help="Files and frames of more bytes are not read.")]
Features = Annotated[
    list[Path],
    typer.Option(help="Feature file (.npz or .safetensors), a folder of them, or of blocks; may be repeated."),
]
Seeds = Annotated[list[int] | None, typer.Option(min=0, help="Stream order; may be repeated.", show_default="1")]
StreamKind = Annotated[str, typer.Option(help=f"Order of the samples: {', '.join(KINDS)}.")]
Gamma = Annotated[
    float | None, typer.Option(help="For dirichlet: the smaller, the fewer classes at a time.", show_default="0.1")
]
Prefix = Annotated[
    int | None, typer.Option(min=0, help="For poisoned: how many confident mistakes come first.", show_default="all")
]
Prior = Annotated[
    str | None, typer.Option(help="local: expect the classes of the samples just before, if the stream has an order.")
]
Calibration = Annotated[
    str | None, typer.Option(help="matched: probabilities whose temperature is found without labels, as samples come.")
]
DropLast = Annotated[bool, typer.Option("--drop-last", help="Leave out an incomplete last batch.")]
Lookahead = Annotated[bool, typer.Option("--lookahead", help="Learn a whole batch, then predict it.")]
StreamBatch = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Samples per step; changes results only with dirichlet, --drop-last, --lookahead and stata.",
        show_default="128 with one of the first three, else 256",
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        metavar="local|auto|ADDRESS",
        help="Work on Ray: one started here, that of this job or machine, or that at an address; --out is a folder.",
    ),
]
Block = Annotated[int, typer.Option(min=1, max=2**24, help="With --cluster: samples in each block, which is one file.")]
Parallel = Annotated[
    int | None,
    typer.Option(min=1, help="With --cluster: workers.", show_default="one per GPU or, without, per processor"),
]
TrustNetwork = Annotated[
    bool, typer.Option("--trust-network", help="With --cluster: go on without Ray's token authentication.")
]
Replace = Annotated[bool, typer.Option("--replace", help="Overwrite files of results that exist.")]
OnError = Annotated[
    encoding.OnError, typer.Option(help="At a sample that cannot be read: stop, or skip it and report.")
]


CLASSES_REQUIRED = "--classes is required: a file with one name per line, or a list, e.g. --classes cat,dog,bird"
USUAL_BLOCK = 65_536
USUAL_DECODE_MEMORY = DECODE_MEMORY / 2**30

_SUFFIXES = (".npz", ".safetensors")
_LARGEST = 16 * 2**20  # bytes of class names


def open_features(places: Sequence[Path], device: str) -> list[FeatureFile]:
    """The feature files, and those in the folders, ready on a device; no two of one name."""
    on = find_device(device)
    files = [replace(data, classifier=data.classifier.to(device=on)) for data in map(load_features, _files(places))]
    for name, count in Counter(data.name for data in files).items():
        if count > 1:
            raise InvalidParameter(f"two feature files are called {name}")
    return files


def _files(places: Sequence[Path]) -> Iterator[Path]:
    for place in places:
        if is_feature_folder(place):
            yield place
            continue
        inside = sorted(path for path in place.iterdir() if path.suffix in _SUFFIXES) if place.is_dir() else [place]
        if not inside:
            raise UnreadableFile(f"no feature files ({', '.join(_SUFFIXES)}) in {place}")
        yield from inside


def read_classes(given: str) -> list[str]:
    """Class names from a file with one per line, or from a list with commas; each name once."""
    place = Path(given)
    if exists(place) and place.is_dir():
        listed = f"ls {shlex.quote(given)} > classes.txt"
        raise UnreadableFile(f"--classes {given} is a folder; it takes a file with one name per line: {listed}")
    if exists(place):
        names = read_text(place, "class name", _LARGEST).splitlines()
        _require_bare_names(given, names)
    elif "," in given:
        names = given.split(",")
    else:
        raise UnreadableFile(f"no such file of class names: {given} (or give a list with commas: --classes cat,dog)")
    names = [name.strip() for name in names if name.strip()]
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise InvalidParameter(f"--classes names {shown(', '.join(twice))} more than once; each class is named once")
    return names


def _require_bare_names(file: str, lines: Sequence[str]) -> None:
    """Refuse a table where there should be one name per line."""
    if len(lines) == 1 and "," in lines[0]:
        raise UnreadableFile(f"{file} has one line with commas; class names stand one per line")
    for number, line in enumerate(lines, 1):
        if "\t" in line.strip():
            cut = f"cut -f2 {shlex.quote(file)} > classes.txt"
            raise UnreadableFile(f"{file}, line {number} has a tab; it takes names alone, one per line, e.g. {cut}")


def decoding(decode: reading_samples.Decode, decode_memory: float, no_compile: bool) -> dict[str, Any]:
    """What the options about decoding and compiling say, for `Reading`."""
    return {"decode": decode, "decode_memory": int(decode_memory * 2**30), "compiled": not no_compile}


def in_processes(chosen: bool | None, encoder: Encoder, samples: int | None) -> bool:
    """Whether workers are processes: where it was not chosen, if they have enough to do."""
    return (encoder.device.type == "cuda" and (samples or 0) >= COMPILED_FROM) if chosen is None else chosen


def open_model(model: str, device: str, dtype: str) -> Encoder:
    """The model of that name, ready; says once what half precision would gain."""
    encoder = load_encoder(model, device=device, dtype=dtype)
    on = f"{encoder.device}, {dtype}, {encoder.dim} dimensions"
    detail(f"model {model}: {encoder.architecture}, {on}, fingerprint {encoder.fingerprint[:12]}")
    if encoder.device.type == "cuda" and encoder.dtype == torch.float32:
        say("--dtype float16 encodes several times as fast on a GPU; features differ in the fourth digit")
    return encoder


def refuse_on_cluster(given: Mapping[str, bool]) -> None:
    """Refuse options that have no meaning with `--cluster`, and that itself where Ray is not installed."""
    if any(find_spec(package) is None for package in ("ray", "pyarrow")):
        raise MissingPackage(f"--cluster needs Ray and pyarrow; {how_to_install('ray')}")
    for option, is_given in given.items():
        if is_given:
            raise InvalidParameter(f"{option} cannot be used with --cluster")


def require_folder(option: str, folder: Path | None) -> None:
    """Refuse a folder that is given and does not exist."""
    if folder is not None and not folder.is_dir():
        raise InvalidParameter(f"{option} {folder}: no such folder")


def read_descriptions(path: Path | None) -> dict[str, list[str]] | None:
    """The sentences of a file, if there is one."""
    return None if path is None else load_descriptions(path)

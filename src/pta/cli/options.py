"""Options that several commands share, each written once."""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from pta.data.features import FeatureFile, is_feature_folder, load_features
from pta.door.images.batch_decoder import DECODE_MEMORY
from pta.errors import InvalidParameter, MissingPackage, UnreadableFile, how_to_install
from pta.measure.stream import KINDS
from pta.models import Encoder, find_device
from pta.run import encoding
from pta.run import reading as reading_samples
from pta.run.gpu.encoder_program import COMPILED_FROM

MODEL_VARIABLE = "PTA_MODEL"  # the default of --model
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
    Path | None, typer.Option(help="JSON file with sentences for each class, used in addition to the templates.")
]
Classes = Annotated[
    str | None, typer.Option(metavar="FILE|A,B,C", help="Class names: a file with one per line, or a list with commas.")
]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, mps, or auto (a GPU if there is one).")]
Dtype = Annotated[str, typer.Option(help="Precision of the model: float32, float16 or bfloat16.")]
Batch = Annotated[int, typer.Option(min=1, help="Samples encoded at once; affects speed, and rounding.")]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Decoding workers.", show_default="one per processor, at most 8")
]
Processes = Annotated[
    bool | None,
    typer.Option(
        "--processes/--threads",
        help="Kind of workers for decoding with Pillow: processes start slower and run faster.",
        show_default="processes for 2,000 images or more and a model on a GPU",
    ),
]
FastDecode = Annotated[
    bool,
    typer.Option("--fast-decode", help="Decode large JPEG files at reduced size; pixels differ slightly."),
]
Decode = Annotated[
    reading_samples.Decode, typer.Option(help="JPEG decoder: pillow, gpu, or auto (gpu if the GPU has one).")
]
DecodeMemory = Annotated[float, typer.Option(min=0.001, max=1024, help="GiB of GPU memory for decoded pixels.")]
NoCompile = Annotated[
    bool, typer.Option("--no-compile", help="Do not compile the model on a GPU for 2,000 samples or more.")
]
MaxPixels = Annotated[int, typer.Option(min=1, help="Refuse images with more pixels.")]
MaxBytes = Annotated[int, typer.Option(min=1, help="Refuse files and frames with more bytes.")]
Features = Annotated[
    list[Path],
    typer.Option(help="Feature file (.npz or .safetensors), a folder of them, or of blocks; may be repeated."),
]
Seeds = Annotated[list[int] | None, typer.Option(min=0, help="Seed of the order; may be repeated.", show_default="1")]
StreamKind = Annotated[str, typer.Option(help=f"Order of the samples: {', '.join(KINDS)}.")]
Gamma = Annotated[
    float | None, typer.Option(help="For dirichlet: smaller values give fewer classes at a time.", show_default="0.1")
]
Prefix = Annotated[
    int | None, typer.Option(min=0, help="For poisoned: how many confident errors come first.", show_default="all")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="METHOD.NAME=VALUE", help="A parameter of a method, e.g. pta.h=50; may be repeated."),
]
Prior = Annotated[
    str | None, typer.Option(help="local: add a prior from the preceding samples, for streams that are not i.i.d.")
]
Calibration = Annotated[
    str | None, typer.Option(help="matched: estimate the temperature of the probabilities online, without labels.")
]
DropLast = Annotated[bool, typer.Option("--drop-last", help="Leave out an incomplete last batch.")]
Lookahead = Annotated[bool, typer.Option("--lookahead", help="Learn from a whole batch before predicting it.")]
StreamBatch = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Samples per step; affects results only with dirichlet, --drop-last, --lookahead and stata.",
        show_default="128 with one of the first three, else 256",
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        metavar="local|auto|ADDRESS",
        help="Run on Ray: start it here, use this job's or machine's, or the one at an address; --out is a folder.",
    ),
]
Block = Annotated[
    int, typer.Option(min=1, max=2**24, help="With --cluster: samples per block; each block is one file.")
]
Parallel = Annotated[
    int | None,
    typer.Option(min=1, help="With --cluster: workers.", show_default="one per GPU or, without, per processor"),
]
TrustNetwork = Annotated[
    bool, typer.Option("--trust-network", help="With --cluster: run without Ray's token authentication.")
]
Replace = Annotated[bool, typer.Option("--replace", help="Overwrite existing result files.")]
OnError = Annotated[
    encoding.OnError, typer.Option(help="For a sample that cannot be read: stop, or skip it and report it.")
]


USUAL_BLOCK = 65_536
USUAL_DECODE_MEMORY = DECODE_MEMORY / 2**30

_SUFFIXES = (".npz", ".safetensors")


def open_features(places: Sequence[Path], device: str) -> list[FeatureFile]:
    """Load feature files, also those in folders, onto a device; names must be unique."""
    on = find_device(device)
    files = [replace(data, classifier=data.classifier.to(device=on)) for data in map(load_features, _files(places))]
    for name, count in Counter(data.name for data in files).items():
        if count > 1:
            raise InvalidParameter(f"two feature files are called {name}; names must be unique")
    return files


def _files(places: Sequence[Path]) -> Iterator[Path]:
    for place in places:
        if is_feature_folder(place):
            yield place
            continue
        inside = sorted(path for path in place.iterdir() if path.suffix in _SUFFIXES) if place.is_dir() else [place]
        if not inside:
            todo = f"make one with pta extract {shlex.quote(str(place))} --out FILE.safetensors"
            raise UnreadableFile(f"no feature files ({', '.join(_SUFFIXES)}) in {place}; {todo}")
        yield from inside


def decoding(decode: reading_samples.Decode, decode_memory: float, no_compile: bool) -> dict[str, Any]:
    """The arguments of `Reading` for decoding and compiling."""
    return {"decode": decode, "decode_memory": int(decode_memory * 2**30), "compiled": not no_compile}


def in_processes(chosen: bool | None, encoder: Encoder, samples: int | None) -> bool:
    """Whether workers are processes; by default, for many samples and a model on a GPU."""
    return (encoder.device.type == "cuda" and (samples or 0) >= COMPILED_FROM) if chosen is None else chosen


def refuse_on_cluster(given: Mapping[str, bool]) -> None:
    """Refuse options that `--cluster` does not support, and `--cluster` itself if Ray is not installed."""
    if any(find_spec(package) is None for package in ("ray", "pyarrow")):
        raise MissingPackage(f"--cluster needs Ray and pyarrow; {how_to_install('ray')}")
    for option, is_given in given.items():
        if is_given:
            raise InvalidParameter(f"{option} cannot be used with --cluster")


def require_folder(option: str, folder: Path | None) -> None:
    """Refuse a folder that does not exist; None is allowed."""
    if folder is not None and not folder.is_dir():
        raise InvalidParameter(f"{option} {folder}: no such folder")

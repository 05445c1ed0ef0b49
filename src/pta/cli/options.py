"""Options that several commands share, each written once."""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from pta.cli.before_loading import ClassTexts, NamedModel, read_classes
from pta.cli.method_choice import parameters_of
from pta.core.limits import USUAL_LIMITS, Limits
from pta.data.features import FeatureFile, is_feature_folder, load_features
from pta.door.images.batch_decoder import DECODE_MEMORY
from pta.errors import InvalidParameter, MissingPackage, UnreadableFile, how_to_install
from pta.measure.stream import KINDS
from pta.models import DEFAULT_MODEL, find_device
from pta.run import encoding
from pta.run import reading as reading_samples
from pta.run.reading import Reading

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
Decode = Annotated[
    reading_samples.Decode, typer.Option(help="JPEG decoder: pillow, gpu, or auto (gpu if the GPU has one).")
]
NoCompile = Annotated[
    bool, typer.Option("--no-compile", help="Do not compile the model on a GPU for 2,000 samples or more.")
]
MaxPixels = Annotated[int, typer.Option(min=1, help="Refuse images with more pixels.")]
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
Replace = Annotated[bool, typer.Option("--replace", help="Overwrite existing result files.")]
OnError = Annotated[
    encoding.OnError, typer.Option(help="For a sample that cannot be read: stop, or skip it and report it.")
]


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


def require_folder(option: str, folder: Path | None) -> None:
    """Refuse a folder that does not exist; None is allowed."""
    if folder is not None and not folder.is_dir():
        raise InvalidParameter(f"{option} {folder}: no such folder")


# -- groups of options: a command that takes one has all of its options (`pta.cli.expanded`) ------------------


@dataclass(frozen=True)
class TextOptions:
    """The classes, and the texts that describe them."""

    classes: Classes = None
    templates: Templates = "clip"
    descriptions: Descriptions = None

    def names(self) -> list[str]:
        """The names of the classes, which are required."""
        return read_classes(self.classes)

    def of(self, names: Sequence[str], dataset: str | None) -> ClassTexts:
        """The texts of classes; `dataset` is the one whose templates are used by default."""
        return ClassTexts.read(names, self.templates, self.descriptions, dataset)


@dataclass(frozen=True)
class ModelOptions:
    """A model, and where and how it runs."""

    model: Model = DEFAULT_MODEL
    device: Device = "auto"
    dtype: Dtype = "float32"


@dataclass(frozen=True)
class ReadingOptions:
    """How samples are read and encoded."""

    fast_decode: Annotated[
        bool, typer.Option("--fast-decode", help="Decode large JPEG files at reduced size; pixels differ slightly.")
    ] = False
    decode: Decode = "auto"
    decode_memory: Annotated[float, typer.Option(min=0.001, max=1024, help="GiB of GPU memory for decoded pixels.")] = (
        DECODE_MEMORY / 2**30
    )
    no_compile: NoCompile = False
    batch: Batch = 64
    workers: Workers = None
    max_pixels: MaxPixels = USUAL_LIMITS.max_pixels
    max_bytes: Annotated[int, typer.Option(min=1, help="Refuse files and frames with more bytes.")] = (
        USUAL_LIMITS.max_bytes
    )

    def reading(self, processes: bool | None = False, **stored: Any) -> Reading:
        """The same for the library; `stored` is what is given out beside features."""
        return Reading(
            batch=self.batch,
            workers=self.workers,
            fast_decode=self.fast_decode,
            limits=Limits(self.max_bytes, self.max_pixels),
            decode=self.decode,
            decode_memory=int(self.decode_memory * 2**30),
            processes=processes,
            compiled=not self.no_compile,
            **stored,
        )


@dataclass(frozen=True)
class SampleOptions(ReadingOptions):
    """The same with what to do about a sample that cannot be read, and the kind of workers."""

    on_error: OnError = "stop"
    processes: Annotated[
        bool | None,
        typer.Option(
            "--processes/--threads",
            help="Kind of workers for decoding with Pillow: processes start slower and run faster.",
            show_default="processes for 2,000 images or more and a model on a GPU",
        ),
    ] = None


@dataclass(frozen=True)
class MethodOptions:
    """The only method of a command, and its parameters."""

    method: Annotated[str | None, typer.Option(help="Adaptation method; see pta methods.", show_default="pta")] = None
    set_: Set = None
    prior: Prior = None
    calibration: Calibration = None

    @property
    def name(self) -> str:
        """The name of the method."""
        return self.method or "pta"

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """The parameters that were given, checked."""
        return parameters_of(self.name, self.set_ or [], self.prior, self.calibration)


@dataclass(frozen=True)
class ClusterOptions:
    """Whether to run on a cluster, and how."""

    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="local|auto|ADDRESS",
            help="Run on Ray: start it here, use this job's or machine's, or the one at an address; --out is a folder.",
        ),
    ] = None
    block: Annotated[
        int, typer.Option(min=1, max=2**24, help="With --cluster: samples per block; each block is one file.")
    ] = 65_536
    parallel: Annotated[
        int | None,
        typer.Option(min=1, help="With --cluster: workers.", show_default="one per GPU or, without, per processor"),
    ] = None
    trust_network: Annotated[
        bool, typer.Option("--trust-network", help="With --cluster: run without Ray's token authentication.")
    ] = False

    def model(self, given: ModelOptions) -> NamedModel:
        """The model of this process. On a cluster `--device` is the workers', and this one reads the class names."""
        return NamedModel(given.model, given.device if self.cluster is None else "cpu", given.dtype)

    def refuse(self, given: Mapping[str, bool]) -> None:
        """Refuse options that `--cluster` does not support, and `--cluster` itself if Ray is not installed."""
        if any(find_spec(package) is None for package in ("ray", "pyarrow")):
            raise MissingPackage(f"--cluster needs Ray and pyarrow; {how_to_install('ray')}")
        for option, is_given in given.items():
            if is_given:
                raise InvalidParameter(f"{option} cannot be used with --cluster")

"""Options that several commands share, each written once."""

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from pta.classifier import ZeroShotClassifier
from pta.cli.messages import detail, say
from pta.datasets.feature_blocks import is_feature_folder
from pta.datasets.features import FeatureFile, load_features
from pta.encoders import Encoder, check_model, find_device, load_encoder
from pta.errors import InvalidParameter, MissingPackage, UnreadableFile, how_to_install, shown
from pta.evaluation.stream import KINDS
from pta.files import exists, read_text
from pta.images.batch_decoder import DECODE_MEMORY
from pta.inference import encoding
from pta.inference import reading as reading_samples
from pta.inference.encoder_program import COMPILED_FROM
from pta.modality import Modality
from pta.prompts import build_classifier, class_texts, default_cache, load_descriptions, load_templates

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


CLASSES_REQUIRED = "--classes is required: a file with one name per line, or a list, e.g. --classes cat,dog,bird"
USUAL_BLOCK = 65_536
USUAL_DECODE_MEMORY = DECODE_MEMORY / 2**30

_SUFFIXES = (".npz", ".safetensors")
_OTHER_FORMATS = (".json", ".yaml", ".yml", ".toml", ".xml")
_MARKED = re.compile(r"""[-*•]\s|["'].*["'],?$|.*[,;]$""")  # of a list with bullets, quotes, or commas at the ends
_LARGEST = 16 * 2**20  # bytes of class names


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


def read_classes(given: str) -> list[str]:
    """The names of two or more classes, which are unique: from a file with one per line, or from a list with commas.

    In a file, lines that begin with # are comments.
    """
    place = Path(given)
    if exists(place) and place.is_dir():
        listed = f"ls {shlex.quote(given)} > classes.txt"
        raise UnreadableFile(f"--classes {given} is a folder; it takes a file with one name per line: {listed}")
    if exists(place):
        lines = read_text(place, "class name", _LARGEST).splitlines()
        _require_bare_names(given, lines)
        names = [line for line in lines if not _is_comment(line)]
        if comments := len(lines) - len(names):
            say(f"{given}: {comments:,} lines that begin with # are comments, not classes")
    elif "," in given:
        if '"' in given:
            raise InvalidParameter(f"--classes {given}: quotes do not join a name; put names with commas into a file")
        names = given.split(",")
    else:
        more = "a list has two or more classes with commas between them: --classes cat,dog"
        raise UnreadableFile(f"no such file of class names: {given}; {more}")
    names = [name.strip() for name in names if name.strip()]
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise InvalidParameter(f"--classes names {shown(', '.join(twice))} more than once; class names must be unique")
    if len(names) < 2:
        raise InvalidParameter(f"--classes {given} names {len(names)}, but two or more classes are needed")
    return names


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith("#")


def _require_bare_names(file: str, lines: Sequence[str]) -> None:
    """Refuse a table, a list with marks or another format where there should be one name per line."""
    if Path(file).suffix.lower() in _OTHER_FORMATS:
        raise UnreadableFile(f"--classes {file}: write one class name per line into a text file")
    bare = {number: line.strip() for number, line in enumerate(lines, 1) if line.strip() and not _is_comment(line)}
    if len(bare) == 1 and "," in next(iter(bare.values())):
        raise UnreadableFile(f"{file} has one line with commas; write one class name per line")
    for number, line in bare.items():
        if "\t" in line:
            raise UnreadableFile(f"{file}, line {number} has a tab; {_only_names(file, 'cut -f2')}")
    if len(bare) > 1 and all(re.match(r"\d+\s*,", line) for line in [*bare.values()][1:]):  # the first may be a heading
        raise UnreadableFile(f"{file} has numbers before its names; {_only_names(file, 'cut -d, -f2')}")
    if bare and (all(map(_MARKED.match, bare.values())) or _is_counted([*bare.values()])):
        number, line = next(iter(bare.items()))
        raise UnreadableFile(
            f"{file}, line {number}: {shown(line)} is more than a name; write only names, one per line"
        )


def _is_counted(lines: Sequence[str]) -> bool:
    """Whether every line begins with its number, counted from 0 or 1.

    >>> _is_counted(["0 cat", "1 dog"]), _is_counted(["1 cent", "10 cent"])
    (True, False)
    """
    numbers = [int(found[1]) for line in lines if (found := re.match(r"(\d{1,9})[.:)]?\s", line))]
    return numbers in ([*range(len(lines))], [*range(1, len(lines) + 1)])


def _only_names(file: str, cut: str) -> str:
    return f"write only names, one per line, e.g. {cut} {shlex.quote(file)} > classes.txt"


def decoding(decode: reading_samples.Decode, decode_memory: float, no_compile: bool) -> dict[str, Any]:
    """The arguments of `Reading` for decoding and compiling."""
    return {"decode": decode, "decode_memory": int(decode_memory * 2**30), "compiled": not no_compile}


def in_processes(chosen: bool | None, encoder: Encoder, samples: int | None) -> bool:
    """Whether workers are processes; by default, for many samples and a model on a GPU."""
    return (encoder.device.type == "cuda" and (samples or 0) >= COMPILED_FROM) if chosen is None else chosen


@dataclass(frozen=True)
class NamedModel:
    """A model that is loaded when it is first used. A wrong name, device or precision is refused at once."""

    name: str
    device: str = "cpu"
    dtype: str = "float32"

    def __post_init__(self) -> None:
        _ = self._declared

    @cached_property
    def encoder(self) -> Encoder:
        """The model, loaded; suggests half precision on a GPU."""
        encoder = load_encoder(self.name, device=self.device, dtype=self.dtype)
        on = f"{encoder.device}, {self.dtype}, {encoder.dim} dimensions"
        detail(f"model {self.name}: {encoder.architecture}, {on}, fingerprint {encoder.fingerprint[:12]}")
        if encoder.device.type == "cuda" and encoder.dtype == torch.float32:
            say("--dtype float16 is several times as fast on a GPU; features differ in the fourth digit")
        return encoder

    @property
    def modality(self) -> Modality:
        """What the model reads; that of a plugin is loaded for it."""
        return self._declared or self.encoder.modality

    @cached_property
    def _declared(self) -> Modality | None:
        return check_model(self.name, device=self.device, dtype=self.dtype)


@dataclass(frozen=True)
class Texts:
    """The classes of a command with the templates and sentences that describe them."""

    names: Sequence[str]
    templates: Sequence[str]
    descriptions: Mapping[str, Sequence[str]] | None

    @classmethod
    def read(cls, names: Sequence[str], templates: str, descriptions: Path | None, dataset: str | None) -> "Texts":
        """Read and check them, which needs no model; `dataset` is the one whose templates are used by default."""
        own = cls(names, load_templates(templates, dataset), read_descriptions(descriptions))
        class_texts(own.names, own.templates, own.descriptions)
        return own

    def classifier(self, encoder: Encoder, on_progress: Callable[[int, int], None] | None = None) -> ZeroShotClassifier:
        """The zero-shot classifier of a model for these classes."""
        how: dict[str, Any] = {"descriptions": self.descriptions, "cache": default_cache(), "on_progress": on_progress}
        return build_classifier(encoder, self.names, self.templates, **how)


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


def read_descriptions(path: Path | None) -> dict[str, list[str]] | None:
    """The sentences of a file, or None without a file."""
    return None if path is None else load_descriptions(path)

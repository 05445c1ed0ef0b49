"""Options that several commands share, each written once, and checked before the model is loaded."""

import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import torch
from typer import Option

from pta.cli.messages import detail, say
from pta.core.classifier import ZeroShotClassifier
from pta.core.limits import USUAL_LIMITS, Limits
from pta.core.modality import Modality
from pta.data.prompts import build_classifier, class_texts, load_descriptions, load_templates
from pta.door.files import exists, read_text
from pta.door.images.batch_decoder import DECODE_MEMORY
from pta.door.private_cache import default_cache
from pta.errors import InvalidParameter, MissingPackage, UnreadableFile, how_to_install, shown
from pta.methods import DEFAULT_METHOD, adapter_class
from pta.models import DEFAULT_MODEL, Encoder, check_model, load_encoder
from pta.models import Runtime as RuntimeName
from pta.run import encoding
from pta.run import reading as reading_samples
from pta.run.reading import Reading

MODEL_VARIABLE = "PTA_MODEL"  # the default of --model
Templates = Annotated[str, "vanilla, clip, coop, dpe, clip7, clip80, ulip64, a file, or one template with {}."]
Descriptions = Annotated[Path | None, "JSON file with sentences for each class, used in addition to the templates."]
Device = Annotated[str, "cpu, cuda, cuda:1, mps, or auto (a GPU if there is one)."]
Dtype = Annotated[str, "Precision of the model: float32, float16 or bfloat16."]
Runtime = Annotated[
    RuntimeName, "What makes the features: torch, or onnx (ONNX Runtime, for images on a CPU in float32)."
]
Batch = Annotated[int, "Samples encoded at once; affects speed, and rounding.", Option(min=1)]
Workers = Annotated[int | None, "Decoding workers.", Option(min=1, show_default="one per processor, at most 8")]
Decode = Annotated[reading_samples.Decode, "JPEG decoder: pillow, gpu, or auto (gpu if the GPU has one)."]
NoCompile = Annotated[bool, "Do not compile the model on a GPU for 2,000 samples or more."]
MaxPixels = Annotated[int, "Refuse images with more pixels.", Option(min=1)]
Features = Annotated[
    list[Path], "Feature file (.npz or .safetensors), a folder of them, or of blocks; may be repeated."
]
Set = Annotated[
    list[str] | None,
    "A parameter of a method, e.g. pta.h=50; may be repeated.",
    Option("--set", metavar="METHOD.NAME=VALUE"),
]
RejectBelow = Annotated[
    float | None,
    "Mark answers with a lower probability as rejected (none of the classes).",
    Option(metavar="P", min=0, max=1),
]
RejectHolds = Annotated[
    float | None, "Do not learn samples with a lower zero-shot probability.", Option(metavar="P", min=0, max=1)
]
Replace = Annotated[bool, "Overwrite existing result files."]
OnError = Annotated[encoding.OnError, "For a sample that cannot be decoded: stop, or skip it and report it."]
GiveUpUnread = Annotated[bool, "Go on without samples that cannot be read; without, the run ends there."]


def require_folder(option: str, folder: Path | None) -> None:
    """Refuse a folder that does not exist; None is allowed."""
    if folder is not None and not folder.is_dir():
        raise InvalidParameter(f"{option} {folder}: no such folder")


@dataclass(frozen=True)
class NamedModel:
    """A model that is loaded when it is first used. A wrong name, device or precision is refused at once."""

    name: str
    device: str = "cpu"
    dtype: str = "float32"
    runtime: RuntimeName = "torch"

    def __post_init__(self) -> None:
        _ = self._declared

    @cached_property
    def encoder(self) -> Encoder:
        """The model, loaded; suggests half precision on a GPU."""
        once = partial(say, f"exporting the image tower of {self.name} for ONNX Runtime, once for this model")
        encoder = load_encoder(self.name, **self._how, on_export=once)
        device = encoder.device
        on = f"{device}, {self.dtype}, {self.runtime}, {encoder.dim} dimensions"
        detail(f"model {self.name}: {encoder.architecture}, {on}, fingerprint {encoder.fingerprint[:12]}")
        if device.type == "cuda" and encoder.dtype == torch.float32:
            say("--dtype float16 is several times as fast on a GPU; features differ in the fourth digit")
        return encoder

    @property
    def modality(self) -> Modality:
        """What the model reads; that of a plugin is loaded for it."""
        return self._declared or self.encoder.modality

    @cached_property
    def _declared(self) -> Modality | None:
        return check_model(self.name, **self._how)

    @property
    def _how(self) -> dict[str, Any]:
        return {"device": self.device, "dtype": self.dtype, "runtime": self.runtime}


@dataclass(frozen=True)
class ClassTexts:
    """The classes of a command with the templates and sentences that describe them."""

    names: Sequence[str]
    templates: Sequence[str]
    descriptions: Mapping[str, Sequence[str]] | None

    @classmethod
    def read(cls, names: Sequence[str], templates: str, descriptions: Path | None, dataset: str | None) -> "ClassTexts":
        """Read and check them, which needs no model; `dataset` is the one whose templates are used by default."""
        sentences = None if descriptions is None else load_descriptions(descriptions)
        own = cls(names, load_templates(templates, dataset), sentences)
        class_texts(own.names, own.templates, own.descriptions)
        return own

    def classifier(
        self, encoder: Encoder, on_progress: Callable[[int, int], None] | None = None, *, keep_prompts: bool = False
    ) -> ZeroShotClassifier:
        """The zero-shot classifier of a model for these classes."""
        how: dict[str, Any] = {"descriptions": self.descriptions, "cache": default_cache(), "on_progress": on_progress}
        return build_classifier(encoder, self.names, self.templates, **how, keep_prompts=keep_prompts)


# -- groups of options: a command that takes one has all of its options (`pta.cli.expanded`) ------------------


@dataclass(frozen=True)
class TextOptions:
    """The classes, and the texts that describe them."""

    classes: Annotated[
        str | None, "Class names: a file with one per line, or a list with commas.", Option(metavar="FILE|A,B,C")
    ] = None
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

    model: Annotated[
        str,
        "hf:FOLDER or hf:HUB/NAME, openclip:ARCHITECTURE/WEIGHTS, file:PATH, or embedded (clothing only).",
        Option(envvar=MODEL_VARIABLE),
    ] = DEFAULT_MODEL
    device: Device = "auto"
    dtype: Dtype = "float32"
    runtime: Runtime = "torch"

    @property
    def named(self) -> NamedModel:
        """The model of these options."""
        return NamedModel(self.model, self.device, self.dtype, self.runtime)


@dataclass(frozen=True)
class ReadingOptions:
    """How samples are read and encoded."""

    fast_decode: Annotated[bool, "Decode large JPEG files at reduced size; pixels differ slightly."] = False
    decode: Decode = "auto"
    decode_memory: Annotated[float, "GiB of GPU memory for decoded pixels.", Option(min=0.001, max=1024)] = (
        DECODE_MEMORY / 2**30
    )
    no_compile: NoCompile = False
    batch: Batch = 64
    workers: Workers = None
    max_pixels: MaxPixels = USUAL_LIMITS.max_pixels
    max_bytes: Annotated[int, "Refuse files and frames with more bytes.", Option(min=1)] = USUAL_LIMITS.max_bytes

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
    """The same with what to do about a sample that cannot be decoded or read, and the kind of workers."""

    on_error: OnError = "stop"
    give_up_unread: GiveUpUnread = False
    processes: Annotated[
        bool | None,
        "Kind of workers for decoding with Pillow: processes start slower and run faster.",
        Option("--processes/--threads", show_default="processes for 2,000 images or more and a model on a GPU"),
    ] = None

    def reading(self, processes: bool | None = False, **stored: Any) -> Reading:
        """The same with what is given up."""
        return super().reading(processes, give_up_unread=self.give_up_unread, **stored)


@dataclass(frozen=True)
class StageOptions:
    """Parameters of the stages around a method, which every method has."""

    offset: Annotated[
        str | None,
        "Subtract from features: centre, panda or panda-batch (see the docs on offsets).",
        Option(show_default="none"),
    ] = None
    prior: Annotated[
        str | None,
        "local: add a prior from the preceding samples, for streams that are not i.i.d.",
        Option(show_default="none, wpta: local"),
    ] = None
    gate: Annotated[
        str | None,
        "balance: answer as zero-shot while few classes have most of the samples.",
        Option(show_default="none, wpta: balance"),
    ] = None
    calibration: Annotated[
        str | None,
        "matched: estimate the temperature of the probabilities online, without labels.",
        Option(show_default="fixed, wpta: matched"),
    ] = None

    @property
    def given(self) -> dict[str, Any]:
        """Those that were given."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class MethodOptions:
    """The only method of a command, and its parameters."""

    method: Annotated[str | None, "Adaptation method; see pta methods.", Option(show_default=DEFAULT_METHOD)] = None
    set_: Set = None
    stages: StageOptions

    @cached_property
    def name(self) -> str:
        """The name of the method."""
        return self.method or DEFAULT_METHOD

    def for_blocks(self) -> "MethodOptions":
        """The same; a method that was not named has, unless they are given, stages that do not depend on the order."""
        stages = StageOptions(**{"prior": "none", "calibration": "fixed"} | self.stages.given)
        return self if self.method else replace(self, stages=stages)

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """The parameters that were given, checked."""
        parameters = self.stages.given
        for owner, name, value in map(parse_setting, self.set_ or []):
            if owner != self.name:
                advice = "" if self.method else f"; give --method {owner}"
                raise InvalidParameter(f"--set {owner}.{name}: the method is {self.name}{advice}")
            parameters[name] = value
        adapter_class(self.name).require_parameters(parameters)
        return parameters


@dataclass(frozen=True)
class ClusterOptions:
    """Whether to run on a cluster, and how."""

    cluster: Annotated[
        str | None,
        "Run on Ray: start it here, use this job's or machine's, or the one at an address; --out is a folder.",
        Option(metavar="local|auto|ADDRESS"),
    ] = None
    block: Annotated[
        int | None,
        "With --cluster: samples per block; each block is one file. With --by: of streams that share a file.",
        Option(min=1, max=2**24, show_default="what keeps all workers busy; later the same"),
    ] = None
    parallel: Annotated[
        int | None, "With --cluster: workers.", Option(min=1, show_default="one per GPU or, without, per processor")
    ] = None
    block_memory: Annotated[
        float, "With --cluster: GiB of blocks that each worker keeps in memory.", Option(min=0, max=1024)
    ] = 1.0
    trust_network: Annotated[bool, "With --cluster: run without Ray's token authentication."] = False

    def model(self, given: ModelOptions) -> NamedModel:
        """The model of this process. On a cluster `--device` is the workers', and this one reads the class names."""
        if self.cluster is None:
            return given.named
        if given.runtime != "torch":
            raise InvalidParameter(f"--runtime {given.runtime} cannot be used with --cluster")
        return NamedModel(given.model, "cpu", given.dtype)

    def refuse(self, given: Mapping[str, bool]) -> None:
        """Refuse options that `--cluster` does not support, and `--cluster` itself if Ray is not installed."""
        if any(find_spec(package) is None for package in ("ray", "pyarrow")):
            raise MissingPackage(f"--cluster needs Ray and pyarrow; {how_to_install('ray')}")
        for option, is_given in given.items():
            if is_given:
                raise InvalidParameter(f"{option} cannot be used with --cluster")


def parse_setting(setting: str) -> tuple[str, str, Any]:
    """METHOD.NAME=VALUE in its parts; values are JSON or Python's words, or strings where they are not.

    >>> parse_setting("pta.h=50"), parse_setting("ecalp.max_rows=None"), parse_setting("dmn.version=tta-vlm")
    (('pta', 'h', 50), ('ecalp', 'max_rows', None), ('dmn', 'version', 'tta-vlm'))
    """
    target, equals, value = setting.partition("=")
    owner, dot, name = target.partition(".")
    if not (equals and dot and owner and name and value):
        raise InvalidParameter(f"--set {setting}: expected METHOD.NAME=VALUE, for example pta.h=50")
    try:
        return owner, name, json.loads({"True": "true", "False": "false", "None": "null"}.get(value, value))
    except (ValueError, RecursionError):
        return owner, name, value


_OTHER_FORMATS = (".json", ".yaml", ".yml", ".toml", ".xml")
_MARKED = re.compile(r"""[-*•]\s|["'].*["'],?$|.*[,;]$""")  # of a list with bullets, quotes, or commas at the ends
_LARGEST = 16 * 2**20  # bytes


def read_classes(given: str | None) -> list[str]:
    """The names of two or more classes, which are unique: from a file with one per line, or from a list with commas.

    In a file, lines that begin with # are comments.
    """
    if given is None:
        raise InvalidParameter(
            "--classes is required: a file with one name per line, or a list, e.g. --classes cat,dog,bird"
        )
    place = Path(given)
    is_there = exists(place)
    if is_there and place.is_dir():
        listed = f"ls {shlex.quote(given)} > classes.txt"
        raise UnreadableFile(f"--classes {given} is a folder; it takes a file with one name per line: {listed}")
    if is_there:
        lines = read_text(place, "class name", _LARGEST).splitlines()
        _require_bare_names(given, lines)
        names = [line for line in lines if not _is_comment(line)]
        if comments := len(lines) - len(names):
            say(f"{given}: lines that begin with # are comments, not classes ({comments:,} left out)")
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

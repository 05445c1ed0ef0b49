"""Feature files: image features, text anchors, class names and optional labels.

`.npz` or `.safetensors` with `image_features` (N×d), `text_features` (C×d), `classnames` (C; in safetensors a JSON list
in the metadata), and optionally `labels` (N), `scale`, `bias`, `view_features` (N×views×d), `patch_features`
(N×patches×d), `generated_features` (N×pictures×d), `pixels` (N×…, raw samples as the model takes them, such as the
bytes of an image's pixels) and `prompt_features` (C×P×d, of the single prompts of each class). Files that `pta extract`
wrote also hold the `paths` of their samples and, in the metadata, `about`: where everything in them comes from. A
folder of such files with `about.json` is one set (`read_blocks`).
"""

import hashlib
import json
import math
import zipfile
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pta.core.classifier import ZeroShotClassifier
from pta.core.limits import require_memory, require_unpackable
from pta.core.parameters import plain_number, require_count, require_seed
from pta.core.plain import plain_tensor
from pta.core.samples import Samples
from pta.door.files import (
    existing_file,
    exists,
    is_path,
    load_tensors,
    read_json,
    read_npy,
    read_tensors,
    tensor_names,
    understanding,
)
from pta.errors import InvalidParameter, InvalidSamples, UnreadableFile, naming, shown, some_of

_ABOUT = "about.json"
_REQUIRED = ("image_features", "text_features", "classnames")
_OF_CLASSES = ("scale", "bias", "prompt_features")
_OPTIONAL = (*_OF_CLASSES, "labels", "view_features", "patch_features", "generated_features", "pixels", "paths")
_OTHER_DRAW = 2**65  # added to a seed: its classes do not depend on its order
_PACKED_BY_NUMPY = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
STORED_AS = {
    "features": "image_features",
    "views": "view_features",
    "patches": "patch_features",
    "generated": "generated_features",
    "raw": "pixels",
}
"""What the tensors of `Samples` are called in a feature file."""


@dataclass(frozen=True)
class FeatureFile:
    """A dataset as a method sees it."""

    name: str  # the file's, without its ending
    samples: Samples  # N unit features, with their views or whatever else is known of them, if the file has them
    classifier: ZeroShotClassifier  # of the file's text features
    labels: NDArray[np.int64] | None  # N class numbers, if the file has them
    dataset: str = ""  # what its images were listed as when `pta extract` made it, otherwise the file's name, too
    architecture: str = ""  # of the model that made it, if `pta extract` did
    decoder: str = ""  # that decoded its images, if it is known and not Pillow
    runtime: str = ""  # that made its features, if it is known and not torch
    paths: tuple[str, ...] | None = None  # N names of the samples, if the file has them
    part: "Part | None" = None  # where its samples and classes are in the whole file, if they are only some

    def __post_init__(self) -> None:
        if not self.dataset:
            object.__setattr__(self, "dataset", self.name)

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 of all that a method's answers and their count can depend on."""
        classifier = self.classifier
        tensors = {**self.samples.tensors(), "anchors": classifier.anchors}
        arrays = {name: tensor.cpu().numpy() for name, tensor in tensors.items()}
        if classifier.prompt_features is not None:
            arrays["prompts"] = classifier.prompt_features.cpu().numpy()
        if self.labels is not None:
            arrays["labels"] = self.labels
        digest = hashlib.sha256(json.dumps([classifier.class_names, classifier.scale, classifier.bias]).encode())
        for name, array in arrays.items():
            digest.update(f"{name} {array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    @cached_property
    def labels_digest(self) -> str:
        """The same for lists of samples with the same labels in the same order; empty without labels."""
        return "" if self.labels is None else hashlib.sha256(self.labels.astype("<i8").tobytes()).hexdigest()[:16]

    @property
    def zero_shot_logits(self) -> Tensor:
        """What the classifier alone gives each sample and class, N×C."""
        return self.classifier.logits(self.samples.features.to(self.classifier.anchors))

    @cached_property
    def zero_shot_predictions(self) -> NDArray[np.int64]:
        """The class that the classifier alone gives each sample."""
        return self.zero_shot_logits.argmax(dim=1).cpu().numpy()

    @property
    def zero_shot_accuracy(self) -> float | None:
        """Percentage of samples that zero-shot gets right, if that is known."""
        return None if self.labels is None else 100 * float((self.zero_shot_predictions == self.labels).mean())


@dataclass(frozen=True)
class Part:
    """Where the samples and classes of a part of a feature file are."""

    whole: FeatureFile
    samples: NDArray[np.int64]  # their numbers in the file
    classes: NDArray[np.int64]


def drawn(data: FeatureFile, count: int, seed: int) -> FeatureFile:
    """The part of a file with `count` look-alike classes: one at random, and those whose texts have the largest cosine.

    Classes without samples are not drawn. The part has all samples of its classes, in the order of the file.
    """
    if data.labels is None:
        raise InvalidSamples(f"{data.name} has no labels, without which no classes can be drawn")
    whole, occurring = data.classifier, np.unique(data.labels)
    if not 2 <= require_count("classes_drawn", count, 0, 2**31) <= len(occurring):
        raise InvalidParameter(
            f"{data.name} has samples of {len(occurring)} classes; of these two or more can be drawn, not {count}"
        )
    first = np.random.default_rng(require_seed(seed) + _OTHER_DRAW).integers(len(occurring))
    texts = whole.anchors.double().cpu().numpy()[occurring]
    likeness = texts @ texts[first]
    likeness[first] = np.inf  # before a class with the same text
    classes = occurring[np.argsort(-likeness, kind="stable")[:count]]
    place = np.full(whole.classes, -1)
    place[classes] = np.arange(count)
    samples = np.flatnonzero(place[data.labels] >= 0)
    return replace(
        data,
        samples=data.samples[torch.from_numpy(samples)],
        classifier=whole.part(classes.tolist()),
        labels=place[data.labels[samples]],
        paths=data.paths and tuple(data.paths[row] for row in samples),
        part=Part(data, samples, classes),
    )


def load_features(path: str | Path) -> FeatureFile:
    """Read and check a feature file, or a folder of feature blocks; every mistake is one line that names it."""
    if is_path(path) and is_feature_folder(Path(path)):
        path = Path(path)
        arrays, about = read_blocks(path, (*STORED_AS.values(), "labels"))
    else:
        path = existing_file(path, "feature")
        arrays, about = _read(path), read_about(path) or {}
    missing = [key for key in _REQUIRED if key not in arrays]
    if missing:
        raise UnreadableFile(
            f"{path}: no {' and no '.join(missing)}; a feature file has image_features, text_features, classnames "
            f"and optionally labels, this one has {_held(path)}"
        )
    with naming(str(path)):
        given: dict[str, Any] = {name: arrays.get(stored) for name, stored in STORED_AS.items()}
        samples = Samples.of(**given)
        names = arrays["classnames"]
        classifier = ZeroShotClassifier(
            arrays["text_features"],
            _listed(names) if isinstance(names, np.ndarray) else names,
            scale=_number("scale", arrays.get("scale", 100.0)),
            bias=_number("bias", arrays.get("bias", 0.0)),
            prompt_features=arrays.get("prompt_features"),
        )
        if samples.dim != classifier.dim:
            raise InvalidSamples(
                f"image_features have {samples.dim} dimensions but text_features {classifier.dim}; "
                "both must come from the same model"
            )
        labels = _labels(arrays.get("labels"), len(samples), classifier.classes)
        paths = _paths(arrays.get("paths"), len(samples))
        origin = _origin(about, path.stem)
    return FeatureFile(path.stem, samples, classifier, labels, *origin, paths)


def _held(path: Path) -> str:
    """What a feature file that lacks something holds under which names, in words."""
    with understanding(path, "feature file"):
        if path.suffix == ".npz":
            with zipfile.ZipFile(path) as archive:
                names = [name.removesuffix(".npy") for name in archive.namelist()]
        else:
            names = tensor_names(path)
    return some_of(sorted(names)) or "nothing"


def read_about(path: Path) -> dict[str, Any] | None:
    """Where a feature file comes from, if `pta extract` wrote it."""
    try:
        return load_tensors(path, kind="features", only=())[1]
    except UnreadableFile:
        return None


def _read(path: Path) -> dict[str, Any]:
    readers = {".npz": _read_npz, ".safetensors": _read_safetensors}
    if path.suffix not in readers:
        raise UnreadableFile(f"{path}: a feature file ends in .npz or .safetensors")
    with understanding(path, "feature file"):
        return readers[path.suffix](path)


def _read_npz(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        entries = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
        wanted = {key: entries[key] for key in (*_REQUIRED, *_OPTIONAL) if key in entries}
        if any(entry.compress_type not in _PACKED_BY_NUMPY for entry in wanted.values()):
            raise UnreadableFile(f"{path} is packed in a way that numpy does not use; save it with np.savez")
        require_unpackable(path, sum(entry.file_size for entry in wanted.values()))
        return {key: _read_npy(archive, entry) for key, entry in wanted.items()}


def _read_npy(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> NDArray[Any]:
    with archive.open(entry) as file, naming(f"{archive.filename}: {entry.filename}"):
        return read_npy(file, entry.file_size)


def _read_safetensors(path: Path) -> dict[str, Any]:
    tensors, metadata = read_tensors(path, "feature", (*_REQUIRED, *_OPTIONAL))
    names = metadata.get("classnames")
    return tensors if names is None else tensors | {"classnames": json.loads(names)}


def _labels(given: Any, count: int, classes: int) -> NDArray[np.int64] | None:
    if given is None:
        return None
    labels = plain_tensor("labels", given, InvalidSamples)
    if labels.shape != (count,):
        raise InvalidSamples(f"labels have shape {tuple(labels.shape)}, expected one for each of the {count} samples")
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise InvalidSamples(f"labels must be whole numbers, got {labels.dtype}")
    labels = labels.to(torch.int64)
    least, most = map(int, labels.aminmax())
    if least < 0 or most >= classes:
        wrong = least if least < 0 else most
        raise InvalidSamples(f"label {wrong} is out of range; there are {classes} classes, 0…{classes - 1}")
    return labels.numpy()


def _listed(array: NDArray[Any]) -> Any:
    """The texts of an array. One of several dimensions is refused: it can have any number of rows without a text."""
    if array.ndim > 1:
        raise InvalidParameter(f"class names must be a list of texts, got an array of shape {array.shape}")
    return array.tolist()


def _paths(given: Any, count: int) -> tuple[str, ...] | None:
    """The names of samples, from an array of texts or from JSON as bytes."""
    if given is None:
        return None
    try:
        paths = json.loads(given.numpy().tobytes()) if isinstance(given, Tensor) else _listed(given)
    except (ValueError, RecursionError, AttributeError):
        paths = None
    if not isinstance(paths, list) or len(paths) != count or not all(isinstance(path, str) for path in paths):
        raise InvalidSamples(f"paths must be a list of texts, one for each of the {count} samples")
    return tuple(paths)


def _number(name: str, given: object) -> float:
    number = plain_number(given)
    if math.isnan(number):
        raise InvalidSamples(f"{name} must be a single number, got {shown(given)}")
    return number


def _origin(about: dict[str, Any], name: str) -> tuple[str, str, str, str]:
    """What `pta extract` says of a file: what its images were listed as, the architecture, the decoder, the runtime."""
    dataset, images = about.get("dataset", name), about.get("images", {})
    made: dict[str, Any] = images if isinstance(images, dict) else {"architecture": None}
    origin = (dataset, made.get("architecture", ""), made.get("decoder", ""), made.get("runtime", ""))
    if not all(isinstance(one, str) for one in origin):
        raise UnreadableFile("its description does not name dataset, architecture, decoder and runtime")
    return origin


def is_feature_folder(folder: Path) -> bool:
    """Whether a folder holds feature blocks that are one set."""
    return exists(folder / _ABOUT)


def read_blocks(folder: Path, by_sample: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays of a feature file, of all blocks in order, and what the blocks say about themselves.

    `by_sample` are those with one row per sample. The folder must be finished and its blocks of one run.
    """
    about = read_json(folder / _ABOUT, "description")
    if not isinstance(about, dict) or about.get("kind") != "feature blocks" or about.get("version") != 1:
        raise UnreadableFile(f"{folder / _ABOUT} does not describe feature blocks")
    if not about.get("finished"):
        raise UnreadableFile(f"{folder} is not finished; run its pta extract again")
    with understanding(folder, "folder of feature blocks"):
        files = [folder / f"{start:012d}-{stop:012d}.safetensors" for start, stop in about["blocks"]]
        require_memory(folder, sum(file.stat().st_size for file in files if exists(file)))
        blocks = [_block(file, about["run"]) for file in files]
        filled = [arrays for arrays, _ in blocks if len(arrays["numbers"])]
        joined = {name: torch.cat([one[name] for one in filled]) for name in by_sample if name in filled[0]}
        paths = [path for one in filled for path in json.loads(one["paths"].numpy().tobytes())]
        return {**filled[0], **joined, "paths": np.array(paths)}, blocks[0][1]


def _block(path: Path, run: str) -> tuple[dict[str, Any], dict[str, Any]]:
    tensors, metadata = read_tensors(path, "feature")
    try:
        about, names = json.loads(metadata["about"]), json.loads(metadata["classnames"])
    except (KeyError, ValueError, RecursionError):
        about, names = {}, []
    if not isinstance(about, dict) or about.get("run") != run:
        raise UnreadableFile(f"{path} is of another run; the same pta extract makes it again")
    return {**tensors, "classnames": names}, about

"""Feature files: image features, text anchors, class names and perhaps labels, computed once and used by everything.

`.npz` or `.safetensors` with `image_features` (N×d), `text_features` (C×d), `classnames` (C; in safetensors a JSON list
in the metadata), and optionally `labels` (N), `scale`, `bias`, `view_features` (N×views×d) and `pixels`
(N×…, raw samples as the model takes them, such as the bytes of an image's pixels). Files that `pta extract` wrote also
hold the `paths` of their samples and, in the metadata, `about`: where everything in them comes from.
"""

import hashlib
import json
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import Tensor

from pta.classifier import ZeroShotClassifier
from pta.errors import InvalidSamples, PtaError, UnreadableFile, naming
from pta.files import load_tensors
from pta.samples import Samples

_REQUIRED = ("image_features", "text_features", "classnames")
_OPTIONAL = ("labels", "scale", "bias", "view_features", "pixels")
_LARGEST = 64 * 2**30  # bytes after decompression; more is a mistake or an attack


@dataclass(frozen=True)
class FeatureFile:
    """A dataset as a method sees it."""

    name: str  # the file's, without its ending
    samples: Samples  # N unit features, with their views or raw samples if the file has them
    classifier: ZeroShotClassifier  # of the file's text features
    labels: NDArray[np.int64] | None  # N class numbers, if the file has them
    dataset: str = ""  # what its images were listed as when `pta extract` made it, otherwise the file's name, too
    architecture: str = ""  # of the model that made it, if `pta extract` did

    def __post_init__(self) -> None:
        if not self.dataset:
            object.__setattr__(self, "dataset", self.name)

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 of all that a method's answers and their count can depend on."""
        classifier = self.classifier
        tensors = {**self.samples.tensors(), "anchors": classifier.anchors}
        arrays = {name: tensor.cpu().numpy() for name, tensor in tensors.items()}
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


def load_features(path: str | Path) -> FeatureFile:
    """Read and check a feature file; every mistake is one line that names the file."""
    path = Path(path)
    arrays = _read(path)
    missing = [key for key in _REQUIRED if key not in arrays]
    if missing:
        raise UnreadableFile(
            f"{path}: no {' and no '.join(missing)}; a feature file has image_features, text_features, classnames "
            f"and optionally labels, this one has {', '.join(sorted(arrays)) or 'nothing'}"
        )
    with naming(str(path)):
        samples = Samples.of(arrays["image_features"], views=arrays.get("view_features"), raw=arrays.get("pixels"))
        classifier = ZeroShotClassifier(
            arrays["text_features"],
            [str(name) for name in arrays["classnames"]],
            scale=_number("scale", arrays.get("scale", 100.0)),
            bias=_number("bias", arrays.get("bias", 0.0)),
        )
        if samples.dim != classifier.dim:
            raise InvalidSamples(
                f"image_features have {samples.dim} dimensions but text_features {classifier.dim}; "
                "both must come from the same model"
            )
        labels = _labels(arrays.get("labels"), len(samples), classifier.classes)
    about = read_about(path) or {}
    architecture = about.get("images", {}).get("architecture", "")
    return FeatureFile(path.stem, samples, classifier, labels, about.get("dataset", path.stem), architecture)


def read_about(path: Path) -> dict[str, Any] | None:
    """Where a feature file comes from, if `pta extract` wrote it."""
    try:
        return load_tensors(path, kind="features", only=())[1]
    except UnreadableFile:
        return None


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise UnreadableFile(f"no such feature file: {path}")
    readers = {".npz": _read_npz, ".safetensors": _read_safetensors}
    if path.suffix not in readers:
        raise UnreadableFile(f"{path}: a feature file ends in .npz or .safetensors")
    try:
        return readers[path.suffix](path)
    except (SafetensorError, zipfile.BadZipFile, ValueError, OSError, EOFError) as error:
        if isinstance(error, PtaError):
            raise
        raise UnreadableFile(
            f"{path} cannot be read (truncated, damaged, or holding Python objects?): {error}"
        ) from None


def _read_npz(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        _require_sane_size(path, (entry.file_size for entry in archive.infolist()))
    with np.load(path, allow_pickle=False) as file:
        return {key: file[key] for key in (*_REQUIRED, *_OPTIONAL) if key in file}


def _read_safetensors(path: Path) -> dict[str, Any]:
    _require_sane_size(path, [path.stat().st_size])
    with safe_open(path, framework="pt") as file:
        names = (file.metadata() or {}).get("classnames")
        tensors = {key: file.get_tensor(key) for key in (*_REQUIRED, *_OPTIONAL) if key in file.keys()}  # noqa: SIM118
    return tensors if names is None else tensors | {"classnames": json.loads(names)}


def _require_sane_size(path: Path, sizes: Iterable[int]) -> None:
    total = sum(sizes)
    if total > _LARGEST:
        raise UnreadableFile(f"{path} unpacks to {total / 2**30:.0f} GiB; at most {_LARGEST // 2**30} GiB are read")


def _labels(given: Any, count: int, classes: int) -> NDArray[np.int64] | None:
    if given is None:
        return None
    labels = np.asarray(given)
    if labels.shape != (count,):
        raise InvalidSamples(f"labels have shape {labels.shape}, expected one for each of the {count} samples")
    if not np.issubdtype(labels.dtype, np.integer):
        raise InvalidSamples(f"labels must be whole numbers, got {labels.dtype}")
    if labels.min() < 0 or labels.max() >= classes:
        wrong = labels.min() if labels.min() < 0 else labels.max()
        raise InvalidSamples(f"label {wrong} is out of range; there are {classes} classes, 0…{classes - 1}")
    return labels.astype(np.int64)


def _number(name: str, given: Any) -> float:
    try:
        return float(np.asarray(given).reshape(()))
    except (TypeError, ValueError):
        raise InvalidSamples(f"{name} must be a single number, got {given!r}") from None

"""From a set of images to a feature file: resumable, atomic, and only done when it has not been done before.

Next to the file that is to be made, the folder `FILE.parts` collects finished shards; at the end they are joined and
the folder disappears.
"""

import json
import platform
import shutil
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import safe_open
from torch import Tensor

from pta.classifier import ZeroShotClassifier
from pta.datasets.features import read_about
from pta.datasets.images import ImageSet
from pta.encoders import Encoder
from pta.errors import UnreadableFile, UnreadableImage
from pta.files import join_tensors, require_writable
from pta.pipelines.encoding import Reading, Views, encode_files
from pta.pipelines.shards import Shards, claim_shards

_VERSIONED = ("pta-vlm", "torch", "numpy", "pillow", "transformers", "open_clip_torch")


@dataclass(frozen=True)
class Extraction:
    """What was done for a feature file.

    Attributes:
        path: the file.
        images: how many features it holds.
        encoded: how many images were encoded now; 0 when everything was there.
        skipped: what could not be read, in words.
    """

    path: Path
    images: int
    encoded: int
    skipped: tuple[str, ...]


def extract(
    images: ImageSet,
    encoder: Encoder,
    classifier: ZeroShotClassifier,
    out: Path,
    reading: Reading | None = None,
    *,
    about: Mapping[str, Any] | None = None,
    shard: int = 1024,
    on_error: Literal["stop", "skip"] = "stop",
    on_progress: Callable[[int], None] = lambda done: None,
) -> Extraction:
    """Encode the images and write them with the classifier's anchors to `out`, a `.safetensors` feature file.

    Args:
        about: what else is to be recorded, for example how model and templates are called.
        shard: images a shard: what a kill costs at most.
        on_error: `stop` at the first image that cannot be read, or `skip` and report it.
        on_progress: told how many images are done.
    """
    if out.suffix != ".safetensors":
        raise UnreadableFile(f"a feature file that pta writes ends in .safetensors, not {out.name!r}")
    reading = reading or Reading()
    inputs = _inputs(images, encoder, reading, on_error)
    known = read_about(out)
    if known is not None and known["images"] == inputs:
        if known["classifier"] != classifier.fingerprint:
            _replace_anchors(out, known, classifier, about or {})
        return Extraction(out, known["count"], 0, tuple(known["skipped"]))
    require_writable(out)
    folder = out.with_name(f"{out.name}.parts")
    with claim_shards(folder, inputs, len(images), shard) as shards:
        encoded = _fill(shards, images, encoder, reading, on_error, on_progress)
        count, skipped = _join(out, shards, images, classifier, {"images": inputs, **(about or {})})
    shutil.rmtree(folder)
    return Extraction(out, count, encoded, skipped)


def _inputs(images: ImageSet, encoder: Encoder, reading: Reading, on_error: str) -> dict[str, Any]:
    """Everything that decides what the features are."""
    described = {
        "dataset": images.name,
        "listing": images.fingerprint,
        "count": len(images),
        "notes": images.notes,
        "model": encoder.fingerprint,
        "architecture": encoder.architecture,
        "dtype": str(encoder.dtype).removeprefix("torch."),
        "preprocessing": encoder.preprocess.describe(),
        "fast_decode": reading.fast_decode,
        "views": None if reading.views is None else asdict(reading.views),
        "on_error": on_error,
    }
    return json.loads(json.dumps(described))  # type: ignore[no-any-return] # as it will be read back


def _fill(
    shards: Shards,
    images: ImageSet,
    encoder: Encoder,
    reading: Reading,
    on_error: str,
    on_progress: Callable[[int], None],
) -> int:
    """Encode what the shards still miss, in one go, finishing each as soon as its last image is done."""
    missing = deque(shards.missing())
    to_do = [number for numbers in missing for number in numbers]
    done = len(images) - len(to_do)
    on_progress(done)
    rows: dict[int, Tensor] = {}
    skipped: dict[int, str] = {}
    for part in encode_files(encoder, ((number, images.images[number]) for number in to_do), reading):
        for number, error in part.failures:
            if on_error == "stop":
                raise UnreadableImage(f"{error}; --on-error skip goes on without it")
            skipped[number] = str(error)
        rows.update({number: row for (number, _), row in zip(part.images, part.features, strict=True)})
        done += len(part.images) + len(part.failures)
        while missing and (missing[0].stop - 1 in rows or missing[0].stop - 1 in skipped):
            numbers = missing.popleft()
            kept = [number for number in numbers if number in rows]
            tensors = _shard_tensors(kept, [rows.pop(number) for number in kept], encoder, reading.views)
            shards.write(numbers, tensors, [skipped.pop(number) for number in numbers if number in skipped])
        on_progress(done)
    return len(to_do)


def _shard_tensors(kept: list[int], rows: list[Tensor], encoder: Encoder, views: Views | None) -> dict[str, Tensor]:
    numbers = torch.tensor(kept, dtype=torch.int64)
    if views is None:
        return {"kept": numbers, "image_features": torch.stack(rows) if rows else torch.empty(0, encoder.dim)}
    stacked = torch.stack(rows) if rows else torch.empty(0, views.count, encoder.dim)
    return {"kept": numbers, "image_features": stacked[:, 0], "view_features": stacked.half()}


def _join(
    out: Path, shards: Shards, images: ImageSet, classifier: ZeroShotClassifier, about: dict[str, Any]
) -> tuple[int, tuple[str, ...]]:
    read = [shards.read(numbers) for numbers in shards.ranges]
    kept = [number for tensors, _ in read for number in tensors["kept"].tolist()]
    skipped = [line for _, lines in read for line in lines]
    if not kept:
        raise UnreadableImage(f"none of the {len(images)} images of {images.name} could be read: {skipped[0]}")
    keys = json.dumps([images.images[number].key for number in kept], ensure_ascii=False).encode()
    described = {"paths": torch.frombuffer(bytearray(keys), dtype=torch.uint8)}
    if images.labels is not None:
        described["labels"] = torch.from_numpy(images.labels[kept])
    record = {"kind": "features", "version": 1, "count": len(kept), "skipped": skipped, **about}
    _write(out, [shards.path(numbers) for numbers in shards.ranges], described, classifier, record)
    return len(kept), tuple(skipped)


def _replace_anchors(
    out: Path, known: Mapping[str, Any], classifier: ZeroShotClassifier, about: Mapping[str, Any]
) -> None:
    """Write the file again with other text features; the image features stay."""
    with safe_open(out, framework="pt") as file:
        names = [name for name in ("paths", "labels") if name in file.keys()]  # noqa: SIM118 (not a mapping)
        described = {name: file.get_tensor(name) for name in names}
    _write(out, [out], described, classifier, {**known, **about})


def _write(
    out: Path,
    parts: Sequence[Path],
    described: Mapping[str, Tensor],
    classifier: ZeroShotClassifier,
    record: Mapping[str, Any],
) -> None:
    whole = {
        "text_features": classifier.anchors.float(),
        "scale": torch.tensor(classifier.scale),
        "bias": torch.tensor(classifier.bias),
        **described,
    }
    about = {**record, "classifier": classifier.fingerprint, "versions": _versions()}
    rows = ["image_features"] + (["view_features"] if record["images"]["views"] else [])
    names = json.dumps(classifier.class_names, ensure_ascii=False)
    join_tensors(out, parts, rows, whole, {"classnames": names, "about": json.dumps(about, sort_keys=True)})


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in _VERSIONED:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found

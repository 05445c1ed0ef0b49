"""From a set of images to a feature file: resumable, atomic, and only done when it has not been done before.

Next to the file that is to be made, the folder `FILE.parts` collects finished shards; at the end they are joined and
the folder disappears.
"""

import json
import platform
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from pta.classifier import ZeroShotClassifier
from pta.datasets.features import read_about
from pta.datasets.sample_set import ImageSet
from pta.encoders import Encoder
from pta.errors import StateMismatch, UnreadableFile, UnreadableImage
from pta.files import join_tensors, require_writable
from pta.inference.encoding import OnError, Reading, encode_files, encode_prepared, unless_skipped
from pta.inference.shards import Shards, claim_shards, discard_shards

_STORED_AS = {"features": "image_features", "views": "view_features", "pixels": "pixels"}
_VERSIONED = ("pta-vlm", "torch", "numpy", "pillow", "transformers", "open_clip_torch")


@dataclass(frozen=True)
class Extraction:
    """What was done for a feature file.

    Attributes:
        path: the file.
        images: how many features it holds.
        encoded: how many images were encoded now; 0 when all of them were there.
        skipped: what could not be read, in words.
        texts_renewed: whether the images were there, but other text features.
    """

    path: Path
    images: int
    encoded: int
    skipped: tuple[str, ...]
    texts_renewed: bool = False


def extract(
    images: ImageSet,
    encoder: Encoder,
    classifier: ZeroShotClassifier,
    out: Path,
    reading: Reading | None = None,
    *,
    about: Mapping[str, Any] | None = None,
    shard: int = 1024,
    replace: bool = False,
    on_error: OnError = "stop",
    on_progress: Callable[[int], None] = lambda done: None,
) -> Extraction:
    """Encode the images and write them with the classifier's anchors to `out`, a `.safetensors` feature file.

    Args:
        about: what else is to be recorded, for example how model and templates are called.
        shard: images a shard: what a kill costs at most.
        replace: a file that holds something else.
        on_error: `stop` at the first image that cannot be read, or `skip` and report it.
        on_progress: told how many images are done.
    """
    require_feature_file(out)
    reading = reading or Reading()
    inputs = _inputs(images, encoder, reading)
    known = read_about(out)
    if out.exists() and not replace and (known is None or known["images"] != inputs):
        what = "no feature file of pta extract" if known is None else "the features of other images or by other means"
        raise StateMismatch(f"{out} exists and holds {what}; choose another file, or replace it with --replace")
    if known is not None and known["images"] == inputs:
        _refuse_skipped(known["skipped"], on_error)
        discard_shards(out, inputs)
        renew = known["classifier"] != classifier.fingerprint
        if renew:
            _replace_anchors(out, known, classifier, about or {})
        return Extraction(out, known["count"], 0, tuple(known["skipped"]), renew)
    with claim_shards(out, inputs, len(images), shard) as shards:
        encoded = _fill(shards, images, encoder, reading, on_error, on_progress)
        contents = [shards.contents(numbers) for numbers in shards.ranges]
        kept = [number for numbers, _ in contents for number in numbers]
        skipped = [line for _, lines in contents for line in lines]
        _refuse_skipped(skipped, on_error)
        if not kept:
            raise UnreadableImage(f"none of the {len(images)} images of {images.name} could be read: {skipped[0]}")
        record = {
            "dataset": images.name,
            "notes": images.notes,
            "images": inputs,
            "count": len(kept),
            "skipped": skipped,
            "versions": _versions(),
            **(about or {}),
        }
        parts = [shards.path(numbers) for numbers in shards.ranges]
        _write(out, parts, _described(images, kept), classifier, record)
    return Extraction(out, len(kept), encoded, tuple(skipped))


def require_feature_file(out: Path) -> None:
    """Refuse a place that a feature file cannot be written to."""
    if out.suffix != ".safetensors":
        raise UnreadableFile(f"a feature file that pta writes ends in .safetensors, not {out.name!r}")
    require_writable(out)


def _refuse_skipped(skipped: Sequence[str], on_error: str) -> None:
    if skipped and on_error == "stop":
        raise unless_skipped(skipped[0])


def _inputs(images: ImageSet, encoder: Encoder, reading: Reading) -> dict[str, Any]:
    """Everything that decides what the features are."""
    described = {
        "listing": images.fingerprint,
        "count": len(images),
        "model": encoder.fingerprint,
        "architecture": encoder.architecture,
        "dtype": str(encoder.dtype).removeprefix("torch."),
        "preprocessing": encoder.preprocess.describe(),
        "fast_decode": reading.fast_decode,
        "views": None if reading.views is None else asdict(reading.views),
        **({"pixels": True} if reading.pixels else {}),  # files without are as they were before there were any
    }
    return json.loads(json.dumps(described))  # type: ignore[no-any-return] # as it will be read back


def _fill(
    shards: Shards,
    images: ImageSet,
    encoder: Encoder,
    reading: Reading,
    on_error: OnError,
    on_progress: Callable[[int], None],
) -> int:
    """Encode what the shards still miss, in one go, finishing each as soon as its last image is done."""
    missing = deque(shards.missing())
    to_do = [number for numbers in missing for number in numbers]
    done = len(images) - len(to_do)
    on_progress(done)
    rows: dict[int, dict[str, Tensor]] = {}
    none = encode_prepared(encoder, [], reading.views, pixels=reading.pixels)
    skipped: dict[int, str] = {}
    for part in encode_files(
        encoder, ((number, images.images[number]) for number in to_do), reading, on_error=on_error
    ):
        for i, (number, _) in enumerate(part.images):
            rows[number] = {name: tensor[i] for name, tensor in part.tensors.items()}
        skipped.update({number: str(error) for number, error in part.failures})
        done += len(part.images) + len(part.failures)
        while missing and (missing[0].stop - 1 in rows or missing[0].stop - 1 in skipped):
            numbers = missing.popleft()
            kept = [number for number in numbers if number in rows]
            tensors = _shard_tensors(kept, [rows.pop(number) for number in kept], none)
            shards.write(numbers, tensors, [skipped.pop(number) for number in numbers if number in skipped])
        on_progress(done)
    return len(to_do)


def _shard_tensors(kept: list[int], rows: list[dict[str, Tensor]], none: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What a shard holds, given the tensors of each image and those of no image at all."""
    numbers = torch.tensor(kept, dtype=torch.int64)
    stacked = {name: torch.stack([row[name] for row in rows]) if rows else none[name] for name in none}
    stored = {_STORED_AS[name]: tensor.half() if name == "views" else tensor for name, tensor in stacked.items()}
    return {"kept": numbers, **stored}


def _described(images: ImageSet, kept: Sequence[int]) -> dict[str, Tensor]:
    """What is known about the images that could be read, beside their features."""
    keys = json.dumps([images.images[number].key for number in kept]).encode()
    described = {"paths": torch.frombuffer(bytearray(keys), dtype=torch.uint8)}
    if images.labels is not None:
        described["labels"] = torch.from_numpy(images.labels[kept])
    return described


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
    about = {**record, "kind": "features", "version": 1, "classifier": classifier.fingerprint}
    optional = [name for name in ("views", "pixels") if record["images"].get(name)]
    rows = [_STORED_AS[name] for name in ("features", *optional)]
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

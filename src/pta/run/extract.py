"""From a dataset to a feature file: resumable, atomic, and skipped if the file is up to date.

Finished shards are kept in the folder `FILE.parts` next to the file. At the end they are joined and the folder is
removed.
"""

import json
import platform
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from pta.core.classifier import ZeroShotClassifier
from pta.core.modality import Modality
from pta.core.parameters import require_count
from pta.data.features import STORED_AS, read_about
from pta.data.sample_set import SampleSet
from pta.door.claims import sole_writer
from pta.door.files import as_path, join_tensors, require_writable
from pta.door.patience import MOST_UNREAD, Unread
from pta.errors import InvalidParameter, PtaError, StateMismatch, UnreadableFile, UnreadableSample, UnreadSample
from pta.models import Encoder
from pta.run.encoding import OnError, encode_files, unless_skipped
from pta.run.gpu.encoder_program import COMPILED_FROM, EncoderProgram, can_be_compiled
from pta.run.reading import PILLOW, Decoding, Reading, open_decoding
from pta.run.shards import LeftOut, Shards, Stamps, discard_shards, open_shards, stamps_begun_with

_MEANS = ("decoder", "runtime", "compiled")  # inputs that the user can change with an option
_IN_HALF = ("views", "patches", "generated")  # of which only directions count
_LARGEST_SHARD = 2**20
_NO_FEATURES = "no feature file of pta extract"
_VERSIONED = ("pta-vlm", "torch", "numpy", "pillow", "transformers", "open_clip_torch")


@dataclass(frozen=True)
class ExtractedFile:
    """The result of an extraction."""

    path: Path
    samples: int  # in the file
    encoded: int  # by this call; 0 if all were encoded before
    skipped: tuple[str, ...]  # error of each sample that could not be decoded
    texts_renewed: bool = False  # whether only the text features were replaced
    decoded: str | None = None  # how many samples each decoder took, in words, if there is more than one
    seconds: float = 0.0  # that reading and encoding took
    given_up: tuple[str, ...] = ()  # error of each sample that could not be read


def extract(
    samples: SampleSet,
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
    on_size: Callable[[int], None] = lambda size: None,
    wait: bool = False,
) -> ExtractedFile:
    """Encode the samples and write them with the classifier's anchors to `out`, a `.safetensors` feature file.

    `about` is recorded too, for example the names of model and templates. A killed extraction loses at most `shard`
    samples, or one batch. The next call resumes with the same batches and gives the same file bit for bit. `replace`
    overwrites a file with other content. `on_progress` gets the number of finished samples, `on_size` the size of
    the file in bytes before it is written. With `wait`, wait for another process that is making the file.

    Shards with samples that could not be read are not written, and the next call makes them; `reading` says whether
    such samples are given up instead.
    """
    out = require_feature_file(out, replace=replace)
    require_count("shard", shard, 1, _LARGEST_SHARD)
    require_modality(samples, encoder.modality, encoder.architecture)
    job = _Extractor(samples, encoder, classifier, out, reading or Reading(), about or {}, on_error)
    with sole_writer(out, wait=wait):
        known = read_about(out)
        is_whole = known is not None and (job.reading.give_up_unread or not known.get("given_up"))
        if known is not None and is_whole and known["images"] == job.inputs:
            return job.renew(known)
        job.require_there()
        if out.exists() and not replace:
            raise _exists(out, _NO_FEATURES if known is None else job.difference(known))
        batch = job.reading.samples_at_once
        with open_shards(out, job.inputs_as_begun(), job.stamps, size=shard, batch=batch) as shards:
            begun = time.perf_counter()
            encoded = job.fill(shards, on_progress, on_size)
            return job.join(shards, encoded, time.perf_counter() - begun)


def require_modality(samples: SampleSet, read: Modality, model: str) -> None:
    """Refuse samples that the model does not read."""
    if samples.modality != read:
        raise InvalidParameter(
            f"{samples.name} holds {samples.modality.name}s, but {model} reads {read.name}s ({read.endings}); "
            "choose another --model"
        )


def require_feature_file(place: str | Path, *, replace: bool = True) -> Path:
    """The path of a feature file, if one can be written there without `replace` overwriting a file of another kind."""
    out = as_path(place)
    if out.suffix != ".safetensors":
        raise UnreadableFile(f"a feature file that pta writes ends in .safetensors, not {out.name!r}")
    require_writable(out)
    if out.exists() and not replace and read_about(out) is None:
        raise _exists(out, _NO_FEATURES)
    return out


def _exists(out: Path, what: str) -> StateMismatch:
    return StateMismatch(f"{out} exists and holds {what}; choose another file, or overwrite it with --replace")


@dataclass(frozen=True)
class _Extractor:
    """The inputs of a feature file."""

    samples: SampleSet
    encoder: Encoder
    classifier: ZeroShotClassifier
    out: Path
    reading: Reading
    about: Mapping[str, Any]
    on_error: OnError

    @cached_property
    def inputs(self) -> dict[str, Any]:
        """Everything that the features depend on."""
        views, generated = self.reading.views, self.reading.generated
        described = {
            "listing": self.samples.fingerprint_with(self.stamps),
            "count": len(self.samples),
            "model": self.encoder.fingerprint,
            "architecture": self.encoder.architecture,
            "dtype": str(self.encoder.dtype).removeprefix("torch."),
            "preprocessing": self.encoder.preparation,
            "fast_decode": self.reading.fast_decode,
            "views": None if views is None else asdict(views),
            # files without are as they were before there were any
            **({"decoder": self.decoding.name} if self.decoding.name != PILLOW else {}),
            **({"runtime": self.encoder.runtime} if self.encoder.runtime != Encoder.runtime else {}),
            **({"compiled": True} if self.compiled else {}),
            **({"pixels": True} if self.reading.raw else {}),
            **({"patches": True} if self.reading.patches else {}),
            **({"generated": {"count": generated.count, "listing": generated.fingerprint}} if generated else {}),
        }
        return json.loads(json.dumps(described))  # as it will be read back

    @cached_property
    def stamps(self) -> Stamps:
        """What changes when a sample does, for each."""
        return [sample.stamp for sample in self.samples.samples]

    def inputs_as_begun(self) -> dict[str, Any]:
        """The inputs of the shards that are there, if they differ only in samples that are away now, or were then."""
        before, now = stamps_begun_with(self.out) or (), self.stamps
        if len(before) != len(now) or any(
            a != b and -1 not in (a[-1], b[-1]) for a, b in zip(before, now, strict=True)
        ):
            return self.inputs
        return self.inputs | {"listing": self.samples.fingerprint_with(before)}

    @cached_property
    def decoding(self) -> Decoding:
        """What decodes the samples."""
        return open_decoding(self.encoder, self.reading)

    @property
    def compiled(self) -> bool:
        """Whether the model is compiled: for the whole file or for none of it."""
        wanted = self.reading.compiled and not self.reading.patches and len(self.samples) >= COMPILED_FROM
        return wanted and can_be_compiled(self.encoder)

    def difference(self, known: Mapping[str, Any]) -> str:
        """How an existing file differs, in words."""
        images, given_up = known["images"], known.get("given_up")
        if given_up:
            return f"features without {len(given_up):,} samples that were given up"
        if {**images, **dict.fromkeys(_MEANS)} != {**self.inputs, **dict.fromkeys(_MEANS)}:
            return "features of other samples or with other options"
        decoder = images.get("decoder", PILLOW)
        if decoder != self.inputs.get("decoder", PILLOW):
            return f"features of pictures decoded by {decoder}, not by {self.decoding.name} (see --decode)"
        runtime = images.get("runtime", Encoder.runtime)
        if runtime != self.encoder.runtime:
            return f"features made by {runtime}, not by {self.encoder.runtime} (see --runtime)"
        return f"features of a model that was {'' if images.get('compiled') else 'not '}compiled (see --no-compile)"

    def renew(self, known: Mapping[str, Any]) -> ExtractedFile:
        """The existing file, with the classifier's anchors if it had others."""
        self._refuse_skipped(known["skipped"])
        discard_shards(self.out, known["images"])
        renew = known["classifier"] != self.classifier.fingerprint
        if renew:
            with safe_open(self.out, framework="pt") as file:
                names = [name for name in ("paths", "labels") if name in file.keys()]  # noqa: SIM118 (not a mapping)
                described = {name: file.get_tensor(name) for name in names}
            self._write([self.out], described, {**known, **self.about})
        given_up = tuple(known.get("given_up", ()))
        return ExtractedFile(self.out, known["count"], 0, tuple(known["skipped"]), renew, given_up=given_up)

    def fill(self, shards: Shards, on_progress: Callable[[int], None], on_size: Callable[[int], None]) -> int:
        """Encode the missing shards in one pass, and save each as soon as its last sample is done.

        One with samples that could not be read is not saved, and after the last it is said which these are.
        """
        reading = replace(self.reading, batch=shards.batch * self.reading.encoded_per_sample)
        missing = deque(shards.missing(give_up=reading.give_up_unread))
        to_do = [number for numbers in missing for number in numbers]
        done = len(self.samples) - len(to_do)
        on_progress(done)
        rows: dict[int, dict[str, Tensor]] = {}
        failed: dict[int, PtaError] = {}
        unread = Unread()
        numbered = ((number, self.samples.samples[number]) for number in to_do)
        is_size_known = False
        at_once, count = reading.encoded_at_once, len(self.samples)
        program = EncoderProgram(self.encoder, at_once, count, whole=True, optimise=self.compiled)
        for part in encode_files(program, numbered, reading, self.decoding, on_error=self.on_error, pass_unread=True):
            held = stored(part.tensors)
            for i, (number, _) in enumerate(part.samples):
                rows[number] = {name: tensor[i] for name, tensor in held.items()}
            if part.samples and not is_size_known:
                on_size(len(self.samples) * sum(tensor[0].nbytes for tensor in held.values()))
                is_size_known = True
            failed.update(part.failures)
            done += len(part.taken)
            while missing and (missing[0].stop - 1 in rows or missing[0].stop - 1 in failed):
                numbers = missing.popleft()
                kept = [number for number in numbers if number in rows]
                tensors = _shard_tensors(kept, [rows.pop(number) for number in kept])
                left_out = _left_out([failed.pop(number) for number in numbers if number in failed])
                if reading.give_up_unread or not left_out.given_up:
                    shards.write(numbers, tensors, left_out)
                else:
                    unread += Unread.of(left_out.given_up)
            on_progress(done)
            if unread.count >= MOST_UNREAD:
                break
        if unread:
            raise unread.error()
        return len(to_do)

    def require_there(self) -> None:
        """Begin no file with stamps of samples that are not there now: it could not be resumed once they are."""
        absent = (one.key for one, stamp in zip(self.samples.samples, self.stamps, strict=True) if stamp[-1] == -1)
        unread = Unread.of(f"{key} cannot be read: it is not there" for key in absent)
        if unread and not self.reading.give_up_unread:
            raise unread.error()

    def join(self, shards: Shards, encoded: int, seconds: float) -> ExtractedFile:
        """Join the finished shards into one file."""
        contents = [shards.contents(numbers) for numbers in shards.ranges]
        kept = [number for numbers, _ in contents for number in numbers]
        skipped = [line for _, left_out in contents for line in left_out.skipped]
        given_up = [line for _, left_out in contents for line in left_out.given_up]
        self._refuse_skipped(skipped)
        samples = self.samples
        if not kept:
            kind, first = (UnreadableSample, skipped[0]) if skipped else (UnreadSample, given_up[0])
            raise kind(f"none of the {len(samples)} samples of {samples.name} could be read: {first}")
        parts = [shards.path(own) for own, (inside, _) in zip(shards.ranges, contents, strict=True) if inside]
        made = {"count": len(kept), "skipped": skipped, "batch": shards.batch, "versions": _versions()}
        made |= {"given_up": given_up} if given_up else {}
        record = {"dataset": samples.name, "notes": samples.notes, "images": self.inputs, **self.about}
        self._write(parts, _described(samples, kept), {**made, **record})
        how = (False, self.decoding.sentence(), seconds)
        return ExtractedFile(self.out, len(kept), encoded, tuple(skipped), *how, tuple(given_up))

    def _refuse_skipped(self, skipped: Sequence[str]) -> None:
        if skipped and self.on_error == "stop":
            raise unless_skipped(skipped[0])

    def _write(self, parts: Sequence[Path], described: Mapping[str, Tensor], record: Mapping[str, Any]) -> None:
        anchors, scale, bias = self.classifier.anchors.float(), self.classifier.scale, self.classifier.bias
        whole = {"text_features": anchors, "scale": torch.tensor(scale), "bias": torch.tensor(bias), **described}
        if self.classifier.prompt_features is not None:
            whole["prompt_features"] = self.classifier.prompt_features.half()
        about = {**record, "kind": "features", "version": 1, "classifier": self.classifier.fingerprint}
        made = {**record["images"], "features": True, "raw": record["images"].get("pixels")}
        rows = [stored for name, stored in STORED_AS.items() if made.get(name)]
        names = json.dumps(self.classifier.class_names, ensure_ascii=False)
        join_tensors(self.out, parts, rows, whole, {"classnames": names, "about": json.dumps(about, sort_keys=True)})


def _left_out(errors: Sequence[PtaError]) -> LeftOut:
    """The errors of samples that cannot be decoded, and of those that could not be read."""
    parts = [[str(one) for one in errors if isinstance(one, UnreadSample) == unread] for unread in (False, True)]
    return LeftOut(*parts)


def _shard_tensors(kept: list[int], rows: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """What a shard holds, given the numbers and the tensors of its samples; of none, only that there is none."""
    stacked = {name: torch.stack([row[name] for row in rows]) for name in (rows[0] if rows else ())}
    return {"kept": torch.tensor(kept, dtype=torch.int64), **stacked}


def stored(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors of samples as files hold them."""
    return {STORED_AS[name]: one.half() if name in _IN_HALF else one for name, one in tensors.items()}


def _described(samples: SampleSet, kept: Sequence[int]) -> dict[str, Tensor]:
    """What is known about the samples that could be read, beside their features."""
    keys = json.dumps([samples.samples[number].key for number in kept]).encode()
    described = {"paths": torch.frombuffer(bytearray(keys), dtype=torch.uint8)}
    if samples.labels is not None:
        described["labels"] = torch.from_numpy(samples.labels[kept])
    return described


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in _VERSIONED:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found

"""From files to features, with decoding and encoding in parallel."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, Generic, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from pta.core.samples import SMALLEST_NORM, Samples
from pta.data.sample_set import SampleReference
from pta.door.images.bare import BaselineJpeg
from pta.door.images.batch_decoder import Prepared as Picture
from pta.door.patience import ADVICE
from pta.engines.gpu.download import Download
from pta.errors import InvalidSamples, PtaError, UnreadableSample, UnreadSample, naming
from pta.models import Encoder, ImageEncoder
from pta.models.encoder import Prepare, Raw
from pta.run.feed.batches import Prepared, default_workers, in_stages, prepare_in_batches
from pta.run.gpu.encoder_program import EncoderProgram
from pta.run.reading import PILLOW, Decoding, Reading, open_decoding

OnError = Literal["stop", "skip"]

_FIRST_SHARE = 8
_PROMPT = 1e-4  # seconds; Python's own 5e-3 is a quarter of what a GPU takes for a batch

Reference = TypeVar("Reference", bound=SampleReference)
_Raws = tuple[Raw | Picture, Raw | None]  # of a sample, and of the pictures that were generated from it


@dataclass(frozen=True)
class Encoded(Generic[Reference]):
    """A batch: the numbered samples with their features, and those that could not be decoded or read."""

    taken: list[tuple[int, Reference]]  # both kinds, in order
    samples: list[tuple[int, Reference]]
    # `features` N×d, and `views` N×V×d, `raw`, `patches`, `generated` if asked for; on the CPU; none if N is 0
    tensors: dict[str, Tensor]
    failures: list[tuple[int, PtaError]]
    on_device: Tensor | None = None  # the features where they were made, if that was a GPU


def encode_files(
    program: EncoderProgram,
    numbered: Iterable[tuple[int, Reference]],
    reading: Reading,
    decoding: Decoding | None = None,
    *,
    on_error: OnError = "stop",
    pass_unread: bool = False,
    quick_start: bool = False,
    live: bool = False,
    stopping: Callable[[], bool] = lambda: False,
) -> Iterator[Encoded[Reference]]:
    """Batches of features in the order of the numbered samples; for `live` and `stopping` see `prepare_in_batches`.

    The last bits of features depend on the batch. So that resumed work gives those of work that was never interrupted,
    batches end at fixed numbers, wherever the numbers begin: at multiples of the batch size. With `quick_start`, the
    first batch is an eighth as large, so that the first results come soon, and the others follow it.

    With `on_error="stop"`, everything before a sample that cannot be decoded is given out, then its error is raised;
    with `skip` it is among the failures of its batch. A sample that cannot be read is among them with `pass_unread` or
    if it is given up (see `Reading`). Else its error is raised after the batches before its own, so that resumed work
    has the same batches; of a live stream, after all samples before it.

    On a GPU one batch is decoded and another encoded while a third is given out, unless the stream is live.
    """
    encoder, device = program.encoder, program.encoder.device.type
    decoding = decoding or open_decoding(encoder, reading)
    plain = decoding.prepare if reading.generated is None else encoder.preparer(limits=reading.limits)
    prepare = _PrepareFile(decoding.prepare, plain, reading)
    processes = reading.with_processes(device == "cuda", program.expected) and isinstance(encoder, ImageEncoder)
    workers = reading.workers or default_workers(processes and decoding.name == PILLOW)
    size = reading.samples_at_once
    first = max(1, size // _FIRST_SHARE) if quick_start else 0
    batches = prepare_in_batches(
        *(numbered, prepare, size, workers),
        ends=lambda item: (item[0] + 1 - first) % size == 0,
        size=_bytes,
        live=live,
        processes=processes,
        low_priority=device == "cpu",
        stopping=stopping,
    )
    pass_unread = pass_unread or reading.give_up_unread
    passed = {"pass_undecodable": on_error == "skip", "pass_unread": pass_unread, "live": live}
    decode, begin = partial(_decode, decoding), partial(_begin, program, reading, passed)
    ahead = 0 if live or device == "cpu" else 1
    stages = in_stages(batches, decode, begin, ahead) if ahead else map(begin, map(decode, batches))
    with _prompt_threads() if ahead else nullcontext():
        for begun in stages:
            yield begun.wait()
            if isinstance(begun.stop, UnreadSample):
                ended = UnreadSample(f"{begun.stop}; {ADVICE} (--state with --resume goes on there)")
                ended.key = begun.stop.key
                raise ended from begun.stop
            if begun.stop is not None:
                raise unless_skipped(str(begun.stop)) from begun.stop


@contextmanager
def _prompt_threads() -> Iterator[None]:
    """Let a thread that has waited for a GPU continue soon, even if other threads are busy."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(_PROMPT)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


@dataclass(frozen=True)
class _PrepareFile:
    """Reads a numbered sample and prepares it; another process can do it too."""

    prepare: Prepare
    prepare_plain: Prepare
    reading: Reading

    def __call__(self, item: tuple[int, SampleReference]) -> _Raws:
        number, sample = item
        generated = self.reading.generated
        own = self.prepare(self._content(sample), sample.key, number)
        if generated is None:
            return own, None
        with naming(f"generated from {sample.key}"):
            plain = [self.prepare_plain(self._content(one), one.key, 0) for one in generated.of(sample)]
            return own, np.stack(plain)

    def _content(self, sample: SampleReference) -> bytes:
        return self.reading.patience.ask(partial(sample.read, self.reading.limits.max_bytes))


def _bytes(raws: _Raws) -> int:
    own, generated = raws
    held = len(own.content) if isinstance(own, BaselineJpeg) else own.nbytes
    return held + (0 if generated is None else generated.nbytes)


_Files = list[Prepared[tuple[int, Reference], _Raws]]
_Decoded = tuple[_Files[Reference], Sequence[Raw] | Tensor]
"""A batch of files, and the raw samples of those that could be read."""


def _decode(decoding: Decoding, files: _Files[Reference]) -> _Decoded[Reference]:
    readable = [one for one in files if one.result is not None]
    if not readable:
        return files, []
    raw, errors = decoding.finish([one.result[0] for one in readable if one.result is not None])
    for one, error in zip(readable, errors, strict=True):
        if error is not None:
            named = type(error)(f"{one.item[1].key}: {error}")
            files[files.index(one)] = Prepared(one.item, None, named)
    return files, raw


@dataclass(frozen=True)
class _Begun(Generic[Reference]):
    """A batch that a GPU may still be encoding."""

    encoder: Encoder
    encoded: Encoded[Reference]
    features: Download | None  # None if no sample could be read
    stop: PtaError | None  # what ends the stream after this batch

    def wait(self) -> Encoded[Reference]:
        """The batch, once it is complete and its features are known to be numbers."""
        if self.features is None:
            return self.encoded
        features = self.features.wait()
        if not np.isfinite(features.numpy()).all():  # by numpy: torch would wake all its threads for it
            self.encoder.require_finite(features)
        return replace(self.encoded, tensors={**self.encoded.tensors, "features": features})


def _split(
    files: _Files[Reference], *, pass_undecodable: bool, pass_unread: bool, live: bool
) -> tuple[_Files[Reference], PtaError | None]:
    """The files of a batch that are given out, and the error after which nothing is."""
    for place, one in enumerate(files):
        if isinstance(one.error, UnreadSample):
            one.error.key = one.item[1].key
            if not pass_unread:
                return files[:place] if live else [], one.error
        elif one.error is not None and not pass_undecodable:
            return files[:place], one.error
    return files, None


def _begin(
    program: EncoderProgram, reading: Reading, passed: dict[str, bool], batch: _Decoded[Reference]
) -> _Begun[Reference]:
    files, raw = batch
    done, stop = _split(files, **passed)
    taken, failures = [one.item for one in done], [(one.item[0], one.error) for one in done if one.error is not None]
    samples = [one.item for one in done if one.error is None]
    if not samples:
        return _Begun(program.encoder, Encoded(taken, samples, {}, failures), None, stop)
    tensors = encode_prepared(program, raw[: len(samples)], reading)
    if reading.generated is not None:
        generated = [one.result[1] for one in done if one.result is not None and one.result[1] is not None]
        tensors["generated"] = _encode_each(program.encoder.encode, generated)
    features = tensors["features"]
    encoded = Encoded(taken, samples, tensors, failures, features if features.is_cuda else None)
    return _Begun(program.encoder, encoded, Download(features), stop)


def unless_skipped(complaint: str) -> UnreadableSample:
    """The error for a sample that cannot be decoded, with what to do."""
    return UnreadableSample(f"{complaint}; use --on-error skip to continue without it")


def encode_prepared(program: EncoderProgram, prepared: Sequence[Raw] | Tensor, reading: Reading) -> dict[str, Tensor]:
    """The tensors of several samples, at least one, as `Encoder.preparer` or a GPU made them for this reading.

    Samples of one shape are encoded together. Features are where the encoder is, and were not looked at.
    """
    if isinstance(prepared, Tensor):
        if prepared.is_cuda:
            prepared.record_stream(torch.cuda.current_stream(prepared.device))  # it was made on another
        return _encode_plain(program, prepared, reading)
    alike, place = _by_shape(prepared)
    if len(alike) > 1 and reading.raw:
        shapes = " and ".join("×".join(map(str, prepared[numbers[0]].shape)) for numbers in alike[:2])
        raise InvalidSamples(f"raw samples must have one shape, got {shapes}; give samples of one size")
    parts = [_encode_alike(program, [prepared[number] for number in numbers], reading) for numbers in alike]
    if len(parts) == 1:
        return parts[0]
    return {name: torch.cat([part[name] for part in parts])[place] for name in parts[0]}


def _by_shape(samples: Sequence[Tensor | Raw]) -> tuple[list[list[int]], Tensor]:
    """The numbers of the samples of each shape, and where every sample is once these stand one after the other."""
    alike: dict[tuple[int, ...], list[int]] = {}
    for number, sample in enumerate(samples):
        alike.setdefault(tuple(sample.shape), []).append(number)
    return list(alike.values()), torch.tensor(list(chain.from_iterable(alike.values()))).argsort()


def _encode_alike(program: EncoderProgram, prepared: Sequence[Raw], reading: Reading) -> dict[str, Tensor]:
    # numpy stacks: torch would wake all its threads for it, which fight with those that decode
    plain = torch.from_numpy(np.stack([one if reading.views is None else one[0] for one in prepared]))
    if reading.views is None:
        return _encode_plain(program, plain, reading)
    seen = _encode_each(program, prepared)
    program.encoder.require_finite(seen.flatten(0, 1))
    tensors = {"features": seen[:, 0], "views": seen}
    return tensors | ({"patches": program.encoder.encode_tokens(plain).cpu()} if reading.patches else {})


def _encode_plain(program: EncoderProgram, plain: Tensor, reading: Reading) -> dict[str, Tensor]:
    if reading.patches:
        features, patches = program.encoder.encode_with_tokens(plain)
        tensors = {"features": features, "patches": patches.cpu()}
    else:
        tensors = {"features": program(plain)}
    return tensors | ({"raw": plain.cpu()} if reading.raw else {})


def _encode_each(encode: Callable[[Tensor], Tensor], several: Sequence[Raw]) -> Tensor:
    """Several raw samples for each of N, to N×n×d."""
    return torch.stack([encode(torch.from_numpy(one)).cpu() for one in several])


def samples_of(tensors: Mapping[str, Any], on_device: Tensor | None = None) -> Samples:
    """The `Samples` of at least one encoded sample.

    They are checked on the host; features that are also on a GPU are taken from there.
    """
    if on_device is not None and tensors.keys() == {"features"}:
        norms = np.linalg.norm(tensors["features"].numpy(), axis=1)  # by numpy, as above
        if norms.min() >= SMALLEST_NORM:
            return Samples.unchecked(on_device)
    return Samples.of(**tensors)

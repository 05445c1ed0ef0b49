"""A model and a method as one program: on a GPU compiled, recorded once and replayed; elsewhere called directly.

For pixels that are ready, whatever they come from. Batches have one size, so that all the work of one, from bytes to
labels, is a single CUDA graph, in which the host has no part. A method whose step cannot be recorded
(`pta.run.gpu.recordable`) takes it outside of the graph.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from pta.core.parameters import require_count
from pta.core.samples import Samples
from pta.door.foreign import works
from pta.door.images import DevicePreprocessing
from pta.door.images.preprocessing import require_bytes
from pta.engines.gpu.download import Download
from pta.errors import InvalidParameter, InvalidSamples, shown
from pta.methods.adapter import Adapter
from pta.models import ImageEncoder
from pta.run.gpu.encoder_program import Recording, Uploads, compiled_by_torch, on
from pta.run.gpu.recordable import is_recordable

Pixels = Tensor | npt.NDArray[np.uint8]

_MOST_AT_ONCE = 2**16
_LARGEST_SIDE = 2**15


class Predictions(NamedTuple):
    """B labels and B×C logits; `adapter.probabilities` turns logits into probabilities."""

    labels: Tensor
    logits: Tensor


class Program:
    """Pixels to predictions, with adaptation, exactly as the adapter would from the encoder's features.

    Not for several threads or CUDA streams at once. On a GPU features are not checked, so that the host never waits.

    Args:
        encoder: the model, on its device and in its precision; the adapter is moved to its device.
        batch: images per call: 1 for latency, more for throughput. Predictions are the same.
        frame: height and width of the images, to resize them on the device as Pillow does.
        optimise: use torch.compile on the encoder on a GPU, once per batch size.
    """

    @torch.no_grad()
    def __init__(
        self,
        encoder: ImageEncoder,
        adapter: Adapter,
        *,
        batch: int = 1,
        frame: tuple[int, int] | None = None,
        optimise: bool = True,
    ) -> None:
        if not isinstance(encoder, ImageEncoder) or not isinstance(adapter, Adapter):
            raise InvalidParameter("compile takes an encoder (from load_encoder) and an adapter (from create_adapter)")
        if adapter.needs_with(adapter.parameters) != {"features"} or adapter.scope != "sample":
            raise InvalidParameter(
                f"{adapter.name} cannot be compiled: it does not answer sample by sample from features"
            )
        if adapter.classifier.dim != encoder.dim:
            raise InvalidParameter(
                f"the model's features have {encoder.dim} dimensions, the classifier's anchors {adapter.classifier.dim}"
            )
        self.batch = require_count("batch", batch, 1, _MOST_AT_ONCE)
        self._device = encoder.device
        self._resize: Callable[[Tensor], Tensor] = nn.Identity()
        size = (encoder.preprocess.size, encoder.preprocess.size)
        if frame is not None:
            size = _checked_frame(frame)
            self._resize = DevicePreprocessing(encoder.preprocess, *size).to(self._device)
        self._encode: Callable[[Tensor], Tensor] = encoder.encode_unchecked
        self._pixels = torch.zeros(batch, len(encoder.preprocess.mean), *size, dtype=torch.uint8, device=self._device)
        self.encoder, self.adapter = encoder, adapter.to(self._device)
        stretch = min(self.batch, self.adapter.refresh_interval or self.batch)
        self._stretches = [slice(begin, begin + stretch) for begin in range(0, self.batch, stretch)]
        self._recordings: list[Recording] = []  # of each stretch; the first encodes the whole batch
        self._refresh: Recording | None = None
        self._recorded: tuple[int, ...] = ()
        self._records_step = False
        if self._on_gpu:
            with on(self._device):
                if optimise:
                    self._optimise()
                self._record()

    @torch.no_grad()
    def __call__(self, pixels: Pixels, labels: None = None) -> Predictions:
        """Learn from up to `batch` images, uint8 N×channels×height×width, and classify them; labels are refused.

        On a GPU the predictions are tensors there that may still be computed. No later call changes them.
        """
        if labels is not None:
            raise InvalidParameter(
                "a compiled program is recorded without labels; adapter.step(encoder.encode(pixels), labels) takes them"
            )
        given = self._checked(pixels)
        with on(self._device):
            self._take(given)
            return self._answer(len(given))

    def stream(self, batches: Iterable[Pixels]) -> Iterator[Predictions]:
        """The same for a stream of batches, with predictions on the host.

        While a GPU computes one batch, the next is fetched and uploaded. When a batch is yielded, the next one may
        already be learned.
        """
        before: list[Download] = []
        try:
            for pixels in batches:
                predictions = self(pixels)
                if not self._on_gpu:
                    yield predictions
                    continue
                with on(self._device):
                    coming = [Download(one) for one in predictions]
                if before:
                    yield _arrived(before)
                before = coming
        except Exception:
            if before:  # it was learned, so it is given out
                yield _arrived(before)
            raise
        if before:
            yield _arrived(before)

    def _checked(self, pixels: Pixels) -> Tensor:
        try:
            pixels = np.require(pixels, requirements=["C", "W"]) if isinstance(pixels, np.ndarray) else pixels
            given = torch.as_tensor(pixels)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InvalidSamples(f"pixels cannot be read as numbers: {error}") from None
        otherwise = "frame=(height, width) is for images of another size"
        require_bytes("pixels", given, tuple(self._pixels.shape[1:]), otherwise)
        if not 1 <= len(given) <= self.batch:
            raise InvalidSamples(f"this was compiled for 1 to {self.batch} images at once, not {len(given)}")
        if self.encoder.device != self._device or self.adapter.classifier.anchors.device != self._device:
            raise InvalidParameter(f"the model or the adapter has been moved away from {self._device}; compile again")
        return given

    def _take(self, pixels: Tensor) -> None:
        if self._on_gpu and pixels.device.type == "cpu":
            self._uploads.send(pixels, self._pixels)
        else:
            self._pixels[: len(pixels)].copy_(pixels)

    def _features(self) -> Tensor:
        return self._encode(self._resize(self._pixels))

    def _predict(self, features: Tensor) -> Predictions:
        logits = (self.adapter.step_unchecked if self._on_gpu else self.adapter.step)(features)
        return Predictions(logits.argmax(dim=1), logits)

    def _answer(self, count: int) -> Predictions:
        if not self._recordings:
            return self._predict(self._encode(self._resize(self._pixels[:count])))
        if self._recorded != self._memory():
            self._record()
        if not self._records_step:
            (features,) = self._recordings[0].replay()
            return self._predict(features[:count])
        due = self.adapter.refreshes.within(count) if self.adapter.refresh_interval else []
        if count < self.batch or not set(due) <= {stretch.stop for stretch in self._stretches}:
            return self._predict(self._features()[:count])
        return self._replay(due)

    def _replay(self, due: list[int]) -> Predictions:
        parts = []
        for stretch, recording in zip(self._stretches, self._recordings, strict=True):
            parts.append(recording.replay())
            if stretch.stop in due and self._refresh is not None:
                self._refresh.replay()
        self.adapter.refreshes.count(self.batch)
        return Predictions(*(one[0] if len(one) == 1 else torch.cat(one) for one in zip(*parts, strict=True)))

    @property
    def _on_gpu(self) -> bool:
        return self._device.type == "cuda"

    @cached_property
    def _uploads(self) -> Uploads:
        return Uploads(self._pixels)

    @cached_property
    def _stream(self) -> torch.cuda.Stream:
        return torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def _optimise(self) -> None:
        plain = self._resize, self._encode

        def trial() -> None:
            self._resize, self._encode = map(compiled_by_torch, plain)
            self._features()

        if not works(trial, f"{self.encoder.architecture} runs uncompiled; torch.compile failed"):
            self._resize, self._encode = plain

    def _record(self) -> None:
        self._recordings, self._refresh = [], None  # give their memory back before the next ones take as much
        sizes = {len(range(self.batch)[stretch]) for stretch in self._stretches}
        self._records_step = all(is_recordable(self.adapter, size) for size in sizes)
        if not self._records_step:
            self._recordings = [Recording(lambda: (self._features(),), (), self._stream)]
        else:
            state = self.adapter.state().values()
            for number in range(len(self._stretches)):
                self._recordings.append(Recording(partial(self._work, number), state, self._stream))
            if self.adapter.refresh_interval is not None:
                self._refresh = Recording(self._refresh_work, state, self._stream)
        self._recorded = self._memory()

    def _work(self, number: int) -> Predictions:
        """Learn and classify a stretch of the batch; the first stretch encodes the whole batch."""
        if number == 0:
            self._encoded = self._features()
        logits = self.adapter.step_before_refresh(Samples.unchecked(self._encoded[self._stretches[number]]))
        return Predictions(logits.argmax(dim=1), logits)

    def _refresh_work(self) -> tuple[Tensor, ...]:
        self.adapter.refresh_state()
        return ()

    def _memory(self) -> tuple[int, ...]:
        """Where all that a recording reads and writes lies: replacing the state or converting the model moves it."""
        used = (*self.adapter.state().values(), self.adapter.classifier.anchors, next(self.encoder.parameters()))
        return tuple(tensor.data_ptr() for tensor in used)


compile = Program  # the public name: pta.compile(encoder, adapter)


def _arrived(downloads: list[Download]) -> Predictions:
    return Predictions(*(one.wait().clone() for one in downloads))


def _checked_frame(frame: object) -> tuple[int, int]:
    if not isinstance(frame, tuple | list) or len(frame) != 2:
        raise InvalidParameter(f"frame must be (height, width) in pixels, not {shown(frame)}")
    return require_count("height", frame[0], 1, _LARGEST_SIDE), require_count("width", frame[1], 1, _LARGEST_SIDE)

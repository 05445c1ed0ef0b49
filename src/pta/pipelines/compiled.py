"""A model and a method as one program: on a GPU compiled, recorded once and replayed, elsewhere simply called.

For pixels that are ready, whatever they come from. Batches have one size, so that all the work of one, from bytes to
labels, is a single CUDA graph, in which the host has no part. A method that must look at numbers on the host
(`Adapter.recordable` is False) takes its step outside of it.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from pta.adapters.base import Adapter
from pta.encoders import Encoder
from pta.errors import InvalidParameter, InvalidSamples
from pta.images import DevicePreprocessing
from pta.images.preprocessing import require_bytes
from pta.pipelines.uploads import Uploads

Pixels = Tensor | npt.NDArray[np.uint8]

_WARM_UPS = 3


class Predictions(NamedTuple):
    """What a batch shows."""

    labels: Tensor
    logits: Tensor


class Compiled:
    """Pixels to predictions, learning on the way, exactly as the adapter would from the encoder's features.

    Args:
        encoder: the model, where and in the precision it is to run; `Encoder.ready` puts it there.
        adapter: the method, which must answer sample by sample from features; it is moved to the model's device.
        batch: how many images come at once. 1 is for latency; more, for throughput, gives the same answers.
        frame: height and width of the images, if they are to be resized on the device, as Pillow would do it.
        optimise: let torch.compile work on the encoder, where there is a GPU: once, for some ten seconds.
    """

    def __init__(
        self,
        encoder: Encoder,
        adapter: Adapter,
        *,
        batch: int = 1,
        frame: tuple[int, int] | None = None,
        optimise: bool = True,
    ) -> None:
        if batch < 1:
            raise InvalidParameter(f"batch must be a whole number from 1, not {batch}")
        if adapter.needs != {"features"} or adapter.scope != "sample":
            raise InvalidParameter(
                f"{adapter.name} cannot be compiled: it does not answer sample by sample from features"
            )
        if adapter.classifier.dim != encoder.dim:
            raise InvalidParameter(
                f"the model's features have {encoder.dim} dimensions, the classifier's anchors {adapter.classifier.dim}"
            )
        self.encoder, self.adapter, self.batch = encoder, adapter.to(encoder.device), batch
        self._on_gpu = encoder.device.type == "cuda"
        size = (encoder.preprocess.size, encoder.preprocess.size)
        shape = (batch, len(encoder.preprocess.mean), *(frame or size))
        self._pixels = torch.zeros(shape, dtype=torch.uint8, device=encoder.device)
        self._resize: Callable[[Tensor], Tensor] = (
            DevicePreprocessing(encoder.preprocess, *frame).to(encoder.device) if frame else nn.Identity()
        )
        self._encode: Callable[[Tensor], Tensor] = encoder.encode_images
        self._recording: _Recording | None = None
        if self._on_gpu:
            with self._here():
                if optimise:
                    self._optimise()
                self._record()

    @torch.no_grad()
    def __call__(self, pixels: Pixels) -> Predictions:
        """Learn from up to `batch` images, uint8 N×channels×height×width, and say what they show.

        On a GPU the answers are tensors there that may still be under way; they are yours, no later call changes them.
        """
        with self._here():
            return self._answer(self._take(self._checked(pixels)))

    @torch.no_grad()
    def stream(self, batches: Iterable[Pixels]) -> Iterator[Predictions]:
        """The same for batch after batch, answers on the host.

        While a GPU computes one batch, the next is fetched and uploaded; so when the answers to a batch are given out,
        the one after it may have been learnt already.
        """
        before: _Coming | None = None
        for pixels in batches:
            predictions = self(pixels)
            if not self._on_gpu:
                yield predictions
                continue
            with self._here():
                coming = _Coming(predictions)
            if before is not None:
                yield before.arrived()
            before = coming
        if before is not None:
            yield before.arrived()

    # -- from the caller's pixels to those that the program reads ---------------------------------------------------

    def _checked(self, pixels: Pixels) -> Tensor:
        given = torch.as_tensor(pixels)
        require_bytes(
            "pixels", given, tuple(self._pixels.shape[1:]), "say frame=(height, width) for images of one size"
        )
        if not 1 <= len(given) <= self.batch:
            raise InvalidSamples(f"this was compiled for 1 to {self.batch} images at once, not {len(given)}")
        return given

    def _take(self, pixels: Tensor) -> int:
        if pixels.device.type == self._pixels.device.type:
            self._pixels[: len(pixels)].copy_(pixels)
        else:
            self._uploads.send(pixels, self._pixels)
        return len(pixels)

    # -- the program ------------------------------------------------------------------------------------------------

    def _features(self) -> Tensor:
        return self._encode(self._resize(self._pixels))

    def _predict(self, features: Tensor) -> Predictions:
        logits = self.adapter.step_on_trust(features)
        return Predictions(logits.argmax(dim=1), logits)

    def _answer(self, count: int) -> Predictions:
        if self._recording is None:
            return self._predict(self._encode(self._resize(self._pixels[:count])))
        if not self.adapter.recordable:
            (features,) = self._recording.replay()
            return self._predict(features[:count])
        if count < self.batch:
            return self._predict(self._features()[:count])
        if not self._recording.writes_to(self.adapter):
            self._record()
        return Predictions(*self._recording.replay())

    # -- on a GPU ---------------------------------------------------------------------------------------------------

    @cached_property
    def _uploads(self) -> Uploads:
        return Uploads(self._pixels)

    def _here(self) -> AbstractContextManager[object]:
        return torch.cuda.device(self.encoder.device) if self._on_gpu else nullcontext()

    def _optimise(self) -> None:
        plain = self._resize, self._encode
        self._resize, self._encode = (torch.compile(part, dynamic=False) for part in plain)
        try:
            self._features()
        except Exception as error:  # whatever a compiler may say: the model runs without it
            warnings.warn(f"{self.encoder.architecture} runs as it is, torch.compile failed: {error}", stacklevel=3)
            self._resize, self._encode = plain

    def _record(self) -> None:
        if self.adapter.recordable:
            self._recording = _Recording(lambda: self._predict(self._features()), self.adapter.state())
        else:
            self._recording = _Recording(lambda: (self._features(),), {})


class _Recording:
    """Work on fixed tensors as a CUDA graph, state as it was before."""

    def __init__(self, work: Callable[[], tuple[Tensor, ...]], state: Mapping[str, Tensor]) -> None:
        saved = {name: tensor.clone() for name, tensor in state.items()}
        beside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(_WARM_UPS):
                work()
        torch.cuda.current_stream().wait_stream(beside)
        for name, tensor in state.items():
            tensor.copy_(saved[name])
        self._state, self._graph = tuple(state.values()), torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._results = work()

    def writes_to(self, adapter: Adapter) -> bool:
        """Whether the adapter's state is still where it was: resetting, loading and moving replace it."""
        return all(then is now for then, now in zip(self._state, adapter.state().values(), strict=True))

    def replay(self) -> tuple[Tensor, ...]:
        """Do the work; the results are copies."""
        self._graph.replay()
        return tuple(result.clone() for result in self._results)


class _Coming:
    """Predictions on their way to the host."""

    def __init__(self, predictions: Predictions) -> None:
        self._predictions = Predictions(
            *(
                torch.empty(one.shape, dtype=one.dtype, pin_memory=True).copy_(one, non_blocking=True)
                for one in predictions
            )
        )
        self._here = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._here.record()

    def arrived(self) -> Predictions:
        """Wait for them."""
        self._here.synchronize()
        return self._predictions

"""EncoderProgram: a model for batches of one size; on a GPU compiled, recorded once and replayed.

Compiling takes as long as encoding tens of thousands of images. So it is done in the background while the model runs as
it is, or not at all. It is recorded between two batches: what another thread allocates meanwhile would break that.

Here are also what every program on a GPU uses: recordings, and copies of batches to the GPU and back.
"""

import atexit
import ctypes
import threading
import warnings
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from itertools import cycle
from typing import Any

import torch
from torch import Tensor

from pta.door.foreign import failure_of
from pta.door.private_cache import keep_code_private
from pta.errors import InvalidParameter, first_line
from pta.models import Encoder, ImageEncoder

COMPILED_FROM = 2_000
"""A model is compiled for at least this many samples."""

ON_DEVICE = threading.Lock()
"""Held while a recording is made, and by other threads that use the GPU."""


_WARM_UPS = 3  # kernels are compiled and chosen before they are recorded


class Recording:
    """What `work` does with tensors that stay where they are; after recording, its `state` is as it was before.

    All recordings of a program share a stream, because libraries keep memory for each.
    """

    def __init__(
        self, work: Callable[[], tuple[Tensor, ...]], state: Iterable[Tensor], stream: torch.cuda.Stream
    ) -> None:
        written = list(state)
        saved = [tensor.clone() for tensor in written]
        stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(stream):
                for _ in range(_WARM_UPS):
                    work()
        finally:
            torch.cuda.current_stream().wait_stream(stream)
            for tensor, before in zip(written, saved, strict=True):
                tensor.copy_(before)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"):
            self._results = work()

    def replay(self) -> tuple[Tensor, ...]:
        """Do the work; the results are copies."""
        self._graph.replay()
        return tuple(result.clone() for result in self._results)


_SLOTS = 2  # one is filled while the other is read


class Uploads:
    """Sends batches, which are to be `like` one on the device, on a stream of their own."""

    def __init__(self, like: Tensor) -> None:
        self._slots = cycle([_Slot(like) for _ in range(_SLOTS)])
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._stream.wait_stream(torch.cuda.current_stream())  # it may still use the memory of the slots

    def send(self, pixels: Tensor, into: Tensor) -> None:
        """Write pixels to the first rows of `into`, on the current stream; the host does not wait for that."""
        slot, part = next(self._slots), slice(len(pixels))
        slot.uploaded.synchronize()  # what was here before has left
        slot.host[part].copy_(pixels)
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(slot.handed_over)
            slot.device[part].copy_(slot.host[part], non_blocking=True)
            slot.uploaded.record()
        torch.cuda.current_stream().wait_event(slot.uploaded)
        into[part].copy_(slot.device[part])
        slot.handed_over.record()


class _Slot:
    """A batch in memory that a GPU can read by itself, and its copy there."""

    def __init__(self, like: Tensor) -> None:
        self.host = torch.empty(like.shape, dtype=like.dtype, pin_memory=True)
        self.device = torch.empty_like(like)
        self.uploaded = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self.handed_over = torch.cuda.Event()  # type: ignore[no-untyped-call]


class EncoderProgram:
    """`encode_unchecked` of an encoder for up to `batch` raw samples of one shape; a batch that is not full is padded.

    Args:
        expected: how many samples will come, if it is known; of at least `COMPILED_FROM`, compiling begins at once, and
            otherwise after so many. A model with kernels of its own is recorded as it is.
        whole: record before the first batch, so that all features are made by one program; a failure is an error.
        optimise: if False, the encoder is neither compiled nor recorded.
    """

    def __init__(
        self, encoder: Encoder, batch: int, expected: int | None = None, *, whole: bool = False, optimise: bool = True
    ) -> None:
        self.encoder, self._batch, self._whole = encoder, batch, whole
        self.expected = expected
        self._optimise = optimise and can_be_compiled(encoder)
        self._done = 0
        self._compiling: _Compiling | None = None
        self._recording: Recording | None = None
        self._raw, self._weights = torch.empty(0), 0

    @torch.no_grad()
    def __call__(self, raw: Tensor) -> Tensor:
        """Raw samples to unit rows on the encoder's device; on a GPU they may still be under way."""
        with on(self.encoder.device):
            if self._recording is not None and self._weights != _place(self.encoder):
                self._recording = None  # they were moved or converted
            if self._optimise and self._recording is None:
                self._advance(raw)
            self._done += len(raw)
            if self._recording is None or raw.shape[1:] != self._raw.shape[1:] or raw.dtype != self._raw.dtype:
                return self.encoder.encode_unchecked(raw)
            return torch.cat([self._replay(part) for part in torch.split(raw, self._batch)])

    def _advance(self, raw: Tensor) -> None:
        """Record the model if it is due."""
        if not (are_many(self.expected) or are_many(self._done)):
            return
        if not len(self._raw):
            self._raw = torch.zeros((self._batch, *raw.shape[1:]), dtype=raw.dtype, device=self.encoder.device)
        encode = self._code()
        if encode is not None:
            with ON_DEVICE:
                self._recording = Recording(lambda: (encode(self._raw),), (), self._stream)
                self._weights = _place(self.encoder)

    def _code(self) -> Callable[[Tensor], Tensor] | None:
        """What is recorded: the model as it is if it has kernels of its own, otherwise compiled; None: not yet."""
        if self.encoder.has_kernels_for(self._batch):  # the first answers do not wait for the recording
            return self.encoder.encode_unchecked if self._whole or self._done else None
        if self._compiling is None:
            self._compiling = _Compiling(self.encoder, self._raw)
        if not self._whole and self._compiling.thread.is_alive():
            return None
        return self._compiling.wait(must_succeed=self._whole)

    def _replay(self, raw: Tensor) -> Tensor:
        assert self._recording is not None
        if raw.device.type == "cpu":
            self._uploads.send(raw, self._raw)
        else:
            self._raw[: len(raw)].copy_(raw)
        return self._recording.replay()[0][: len(raw)]

    @cached_property
    def _uploads(self) -> Uploads:
        return Uploads(self._raw)

    @cached_property
    def _stream(self) -> torch.cuda.Stream:
        return torch.cuda.Stream()  # type: ignore[no-untyped-call]


def compiled_by_torch(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A function that is compiled for every shape of its input when it is called."""
    keep_code_private()  # before this import, which makes the folder
    from torch._inductor import list_options  # takes a second

    # these would lie in a folder that all users share, whatever torch is told; not every version has them
    headers: dict[str, Any] = {name: False for name in list_options() if name == "cpp_cache_precompile_headers"}
    return torch.compile(function, dynamic=False, options=headers)


def are_many(samples: int | None) -> bool:
    """Whether it pays to start what takes seconds, if so many are known to come."""
    return samples is not None and samples >= COMPILED_FROM


def on(device: torch.device) -> AbstractContextManager[object]:
    """A GPU as the current one."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def can_be_compiled(encoder: Encoder) -> bool:
    """Whether compiling helps: on a GPU, for raw samples of one shape, such as pictures."""
    return isinstance(encoder, ImageEncoder) and encoder.device.type == "cuda"


def _place(encoder: Encoder) -> int:
    """Where the weights lie, which a recording reads."""
    return next(encoder.parameters()).data_ptr()


class _Compiling:
    """Compiles an encoder for batches like the given one, in a background thread."""

    def __init__(self, encoder: Encoder, like: Tensor) -> None:
        self._encoder, self._like = encoder, like
        self._encode: Callable[[Tensor], Tensor] = encoder.encode_unchecked
        self._failure: BaseException | None = None
        self.thread = threading.Thread(target=self._run, name="compile", daemon=True)
        atexit.register(self._break_off)
        self.thread.start()

    def wait(self, must_succeed: bool) -> Callable[[Tensor], Tensor]:
        """The compiled encoder; if compiling failed, the uncompiled one, with a warning."""
        self.thread.join()
        if self._failure is not None:
            complaint = f"torch.compile failed for {self._encoder.architecture}: {first_line(self._failure)}"
            if must_succeed:
                raise InvalidParameter(f"{complaint}; use --no-compile (compiled=False)")
            warnings.warn(f"{complaint}; it runs uncompiled", stacklevel=3)
        return self._encode

    def _run(self) -> None:
        self._failure = failure_of(self._compile)
        atexit.unregister(self._break_off)

    def _compile(self) -> None:
        compiled = compiled_by_torch(self._encoder.encode_unchecked)
        with on(self._like.device), torch.no_grad():  # as its callers: for others torch would compile again
            compiled(self._like)
        self._encode = compiled

    def _break_off(self) -> None:
        """Stop when the interpreter ends, which a thread that is still in a compiler would abort."""
        ident = ctypes.c_ulong(self.thread.ident or 0)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(SystemExit))
        self.thread.join()

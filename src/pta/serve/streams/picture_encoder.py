"""PictureEncoder: pictures to features; requests take turns, so that none waits for all pictures of another."""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Condition, Thread
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pta.core.limits import Limits
from pta.door.images.reading import open_counted
from pta.errors import PtaError, UnreadableSample, naming
from pta.models import Encoder, ImageEncoder
from pta.run.encoding import encode_prepared
from pta.run.feed.batches import default_workers
from pta.run.gpu.encoder_program import EncoderProgram
from pta.run.reading import Reading, open_decoding
from pta.serve.streams.stage import errors_told_to, use_threads

_log = logging.getLogger("pta.serve")
_MAX_BATCH_ON_CPU = 16  # pictures that the model sees at once; those of other requests wait for no more

Outcome = NDArray[np.float32] | Exception
"""The features of a request, B×d, or what is wrong with one of its pictures."""


@dataclass(eq=False)
class _Task:
    """The pictures of a request on their way to features."""

    pictures: Sequence[bytes]
    is_answered: Callable[[], bool]
    done: Callable[[Outcome], None]
    begun: int = 0  # pictures that are decoded or being decoded
    under_way: int = 0  # of these, the ones that are not encoded yet
    features: dict[int, NDArray[np.float32]] = field(default_factory=dict)
    wrong: dict[int, Exception] = field(default_factory=dict)

    @property
    def has_more(self) -> bool:
        return self.begun < len(self.pictures) and not self.wrong


class PictureEncoder:
    """Threads that decode pictures, and one that encodes those that are decoded, in batches.

    Requests take turns: a thread that is free decodes the next picture of the request whose turn it is. No more than a
    batch of decoded pictures waits for the model.

    Args:
        most_pixels: of all pictures of a request.
        threads: of torch, for the model.
    """

    def __init__(self, encoder: Encoder, limits: Limits, most_pixels: int, threads: int) -> None:
        on_cpu = encoder.device.type == "cpu"
        self._encoder, self._most_pixels = encoder, most_pixels
        self._reading = Reading(limits=limits, batch=_MAX_BATCH_ON_CPU) if on_cpu else Reading(limits=limits)
        self._decoding = open_decoding(encoder, self._reading)
        self._program = EncoderProgram(encoder, self._reading.batch)
        self._turns: deque[_Task] = deque()  # requests with pictures that are not decoded, the next one first
        self._decoded: deque[tuple[_Task, int, Any]] = deque()
        self._under_way, self._is_ending = 0, False  # how many requests are not done
        self._changed = Condition()
        decoders = [Thread(target=self._decode_all, name="decode", daemon=True) for _ in range(default_workers())]
        model = Thread(target=self._encode_all, args=(threads,), name="encode", daemon=True)
        self._threads = [*decoders, model]
        for thread in self._threads:
            thread.start()

    def put(self, pictures: Sequence[bytes], is_answered: Callable[[], bool], done: Callable[[Outcome], None]) -> None:
        """Begin with a request; `done` is told the outcome, unless the request `is_answered` when its turn comes."""
        with self._changed:
            self._under_way += 1
            self._turns.append(_Task(pictures, is_answered, done))
            self._changed.notify_all()

    def close(self) -> None:
        """Finish what was put, and end the threads."""
        with self._changed:
            self._is_ending = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    # -- decode -----------------------------------------------------------------------------------------------------

    def _decode_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: (self._turns and len(self._decoded) < self._reading.batch) or self._has_ended
                )
                if not self._turns:
                    return
                task = self._turns[0]
                number = self._turns[0].begun
                self._turns.rotate(-1)
                task.begun += 1
                task.under_way += 1
                if number == 0 or not task.has_more:  # `_begin` decides about the others
                    self._turns.remove(task)
            with errors_told_to(partial(self._failed, task, number)):
                if number == 0 and not self._begin(task):
                    continue
                with naming(f"image[{number}]"):
                    prepared = self._decoding.prepare(task.pictures[number], "", number)
                with self._changed:
                    self._decoded.append((task, number, prepared))
                    self._changed.notify_all()

    @property
    def _has_ended(self) -> bool:
        return self._is_ending and not self._under_way

    def _begin(self, task: _Task) -> bool:
        """Whether there is anything to do; a request of too many pixels is refused before the first is decoded."""
        if task.is_answered():
            self._end()
            return False
        if isinstance(self._encoder, ImageEncoder):
            pixels = 0
            for number, content in enumerate(task.pictures):
                with naming(f"image[{number}]"):
                    pixels += _pixels_of(content, self._reading.limits)
            if pixels > self._most_pixels:
                most = f"--max-request-pixels is {self._most_pixels:,}"
                raise UnreadableSample(f"the pictures of the request have {pixels:,} pixels; {most}")
        if task.has_more:
            with self._changed:
                self._turns.append(task)
                self._changed.notify_all()
        return True

    # -- encode -----------------------------------------------------------------------------------------------------

    def _encode_all(self, threads: int) -> None:
        use_threads(threads)
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._decoded or self._has_ended)
                batch = [self._decoded.popleft() for _ in range(min(len(self._decoded), self._reading.batch))]
                self._changed.notify_all()
            if not batch:
                return
            with errors_told_to(partial(self._all_failed, batch)):
                self._encode(batch)

    def _all_failed(self, batch: Sequence[tuple[_Task, int, Any]], error: Exception) -> None:
        for task, number, _ in batch:
            self._failed(task, number, error)

    def _encode(self, batch: Sequence[tuple[_Task, int, Any]]) -> None:
        raw, errors = self._decoding.finish([prepared for _, _, prepared in batch])
        good = [(task, number) for (task, number, _), error in zip(batch, errors, strict=True) if error is None]
        features: NDArray[np.float32] | tuple[()] = ()
        if good:
            encoded = encode_prepared(self._program, raw, self._reading)["features"].float().cpu()
            self._encoder.require_finite(encoded)
            features = encoded.numpy()
        for (task, number), row in zip(good, features, strict=True):
            task.features[number] = row
            self._finished(task)
        for (task, number, _), error in zip(batch, errors, strict=True):
            if error is not None:
                self._failed(task, number, UnreadableSample(f"image[{number}]: {error}"))

    # -- done -------------------------------------------------------------------------------------------------------

    def _failed(self, task: _Task, number: int, error: Exception) -> None:
        if not isinstance(error, PtaError):
            _log.error("a picture could not be encoded", exc_info=error)
        task.wrong[number] = error
        self._finished(task)

    def _finished(self, task: _Task) -> None:
        """A picture is encoded or cannot be; after the last one the request is told, of the first that is wrong."""
        with self._changed:
            task.under_way -= 1
            if task.under_way or task.has_more:
                return
            if task in self._turns:  # what is left need not be decoded
                self._turns.remove(task)
        numbers = range(len(task.pictures))
        task.done(task.wrong[min(task.wrong)] if task.wrong else np.stack([task.features[one] for one in numbers]))
        self._end()

    def _end(self) -> None:
        with self._changed:
            self._under_way -= 1
            self._changed.notify_all()


_ANIMATION_IN_PNG = b"\0\0\0\x08acTL"  # a chunk in front of the pixels


def _pixels_of(content: bytes, limits: Limits) -> int:
    """How many pixels a picture counts as; an animation and a format that is not read are refused."""
    image, pixels = open_counted(content, limits)
    if getattr(image, "is_animated", False) or _ANIMATION_IN_PNG in content[: max(0, content.find(b"IDAT"))]:
        raise UnreadableSample("it is animated; send one frame as a picture of its own")
    return pixels

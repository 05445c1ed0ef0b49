"""PictureEncoder: the pictures of several requests to features, in one batch."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pta.encoders import Encoder, ImageEncoder
from pta.errors import PtaError, UnreadableSample
from pta.inference.decoding import open_decoding
from pta.inference.encoder_program import EncoderProgram
from pta.inference.encoding import encode_prepared
from pta.inference.feed import default_workers
from pta.inference.reading import Reading
from pta.limits import Limits
from pta.serve.pictures import require_still


class PictureEncoder:
    """Decodes pictures in threads and encodes those that can be read."""

    def __init__(self, encoder: Encoder, limits: Limits) -> None:
        self._encoder, self._reading = encoder, Reading(limits=limits)
        self._decoding = open_decoding(encoder, self._reading)
        self._program = EncoderProgram(encoder, self._reading.batch)
        self._threads = ThreadPoolExecutor(default_workers(), "decode")

    def encode(self, requests: Sequence[Sequence[bytes]]) -> list[NDArray[np.float32] | PtaError]:
        """For each request its features, B×d, or what is wrong with one of its pictures."""
        items = [(number, content) for pictures in requests for number, content in enumerate(pictures)]
        prepared = list(self._threads.map(self._prepare, items))
        good = [row for row, one in enumerate(prepared) if not isinstance(one, PtaError)]
        raw, errors = self._decoding.finish([prepared[row] for row in good])
        for row, error in zip(good, errors, strict=True):
            if error is not None:
                prepared[row] = UnreadableSample(f"image[{items[row][0]}]: {error}")
        rows = iter(self._features(raw))
        outcomes: list[NDArray[np.float32] | PtaError] = []
        start = 0
        for pictures in requests:
            own = prepared[start : start + len(pictures)]
            start += len(pictures)
            features = [next(rows) for one in own if not isinstance(one, PtaError)]
            wrong = next((one for one in own if isinstance(one, PtaError)), None)
            outcomes.append(np.stack(features) if wrong is None else wrong)
        return outcomes

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown()

    def _prepare(self, item: tuple[int, bytes]) -> Any:
        number, content = item
        try:
            if isinstance(self._encoder, ImageEncoder):
                require_still(content, self._reading.limits)
            return self._decoding.prepare(content, "", number)
        except PtaError as error:
            return UnreadableSample(f"image[{number}]: {error}")

    def _features(self, raw: Any) -> NDArray[np.float32]:
        if not len(raw):
            return np.empty((0, self._encoder.dim), np.float32)
        size = self._reading.batch
        encode = partial(encode_prepared, self._program, reading=self._reading)
        parts = [encode(raw[start : start + size])["features"].float().cpu() for start in range(0, len(raw), size)]
        for part in parts:
            self._encoder.require_finite(part)
        return np.concatenate([part.numpy() for part in parts])

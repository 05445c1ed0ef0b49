"""BatchDecoder: files of pictures of any size to the pixels a model wants, decoded and resized on a GPU.

Usual JPEG files are decoded there. All others are decoded by Pillow, whose verdict on bad files counts on both ways.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pta.core.limits import USUAL_LIMITS, Limits
from pta.door.images.bare import BaselineJpeg, baseline_jpeg
from pta.door.images.decoders import Decoder
from pta.door.images.device import resize_ragged
from pta.door.images.preprocessing import Pixels, Preprocessing
from pta.door.images.reading import made_in_room, open_image, require_few_pixels
from pta.errors import UnreadableSample

DECODE_MEMORY = 2 * 2**30
"""Bytes of decoded pixels that are on the device at once."""

Prepared = BaselineJpeg | Pixels
"""A file that the GPU decodes, or the pixels that Pillow made of one, channels×size×size."""

_COLOURS = 3  # of what the GPU's decoders give


@dataclass(frozen=True)
class DecodedBatch:
    """What became of the files of a batch, in their order."""

    pixels: Tensor  # uint8 N×channels×size×size on the device; zeros where there is an error
    errors: list[UnreadableSample | None]


@dataclass(frozen=True)
class PrepareFile:
    """The first half of decoding, for one file: in many threads at once, or in another process."""

    preprocess: Preprocessing
    limits: Limits = USUAL_LIMITS
    decode_memory: int = DECODE_MEMORY

    def __call__(self, content: bytes) -> Prepared:
        """What `decode` takes; a file that cannot be read, or exceeds the limits, is refused.

        A file for the GPU costs some microseconds here, any other the time that Pillow takes.
        """
        jpeg = baseline_jpeg(content) if len(self.preprocess.mean) == _COLOURS else None
        if jpeg is None or _decoded_bytes(jpeg) > self.decode_memory:
            return self.by_pillow(content)
        require_few_pixels(jpeg.width, jpeg.height, self.limits)
        self.preprocess.geometry(jpeg.width, jpeg.height)  # refuses what would be blown up too far
        return jpeg

    def by_pillow(self, content: bytes) -> Pixels:
        """The pixels that Pillow makes."""
        return made_in_room(open_image(content, limits=self.limits), self.preprocess, self.preprocess.pixels)


class BatchDecoder:
    """The pixels of files, as `Preprocessing.pixels` makes them of decoded pictures.

    `prepare` may run in many threads at once, `decode` in one at a time. `decode` waits for the current CUDA stream and
    for the files to be decoded. It is best called in a thread and a stream of its own. `counts` says how many pictures
    were decoded by "gpu" and by "pillow".
    """

    def __init__(self, decoder: Decoder, prepare: PrepareFile, device: torch.device) -> None:
        self.decoder, self.prepare, self.device = decoder, prepare, device
        self.counts = Counter(gpu=0, pillow=0)

    def decode(self, batch: Sequence[Prepared]) -> DecodedBatch:
        """The pixels of prepared files; what the GPU's decoder refuses is left to Pillow."""
        errors: list[UnreadableSample | None] = [None] * len(batch)
        by_pillow = {number: one for number, one in enumerate(batch) if not isinstance(one, BaselineJpeg)}
        made: list[tuple[list[int], Tensor]] = []
        for part in self._parts(batch):
            decoded = dict(zip(part, self._decoded(list(part.values())), strict=True))
            by_gpu = {number: picture for number, picture in decoded.items() if picture is not None}
            if by_gpu:
                made.append((list(by_gpu), resize_ragged(list(by_gpu.values()), self.prepare.preprocess)))
            self.counts["gpu"] += len(by_gpu)
            for number in part.keys() - by_gpu.keys():
                try:
                    by_pillow[number] = self.prepare.by_pillow(bytes(part[number].content))
                except UnreadableSample as error:
                    errors[number] = error
        if by_pillow:
            made.append((list(by_pillow), torch.from_numpy(np.stack(list(by_pillow.values()))).to(self.device)))
        self.counts["pillow"] += len(by_pillow)
        return DecodedBatch(self._joined(made, len(batch)), errors)

    def _joined(self, made: list[tuple[list[int], Tensor]], count: int) -> Tensor:
        """The pixels of numbered pictures, in order; usually they are all of one batch."""
        if len(made) == 1 and made[0][0] == list(range(count)):
            return made[0][1]
        preprocess = self.prepare.preprocess
        shape = (count, len(preprocess.mean), preprocess.size, preprocess.size)
        pixels = torch.zeros(shape, dtype=torch.uint8, device=self.device)
        for numbers, part in made:
            pixels[numbers] = part
        return pixels

    def _parts(self, batch: Sequence[Prepared]) -> Iterator[dict[int, BaselineJpeg]]:
        """The files for the GPU by their number in the batch, as many at a time as there is memory for."""
        part: dict[int, BaselineJpeg] = {}
        taken = 0
        for number, one in enumerate(batch):
            if isinstance(one, BaselineJpeg):
                taken += _decoded_bytes(one)
                if part and taken > self.prepare.decode_memory:
                    yield part
                    part, taken = {}, _decoded_bytes(one)
                part[number] = one
        if part:
            yield part

    def _decoded(self, files: list[BaselineJpeg]) -> list[Tensor | None]:
        """The picture of each file, None where the decoder refuses it. It refuses a batch as a whole."""
        try:
            pictures = self.decoder([file.content for file in files])
        except Exception:  # decoders raise whatever they like
            return [None] if len(files) == 1 else [self._decoded([file])[0] for file in files]
        expected = [(_COLOURS, file.height, file.width) for file in files]
        return [one if one.shape == shape else None for one, shape in zip(pictures, expected, strict=True)]


def _decoded_bytes(jpeg: BaselineJpeg) -> int:
    return _COLOURS * jpeg.width * jpeg.height

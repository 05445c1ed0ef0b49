"""How fast model and methods are together, one image at a time, once the methods have learned most of the stream.

Every image goes through zero-shot and through each method in turn, so that all meet the same machine and their ratios
mean something. Their order is another for each image. The images are parted into rounds; a round gives the median time
of each method, and its share of zero-shot's speed. Pixels are ready before the clock starts, as in the paper, whose
loader prepares images beside the GPU. The paper's times are those of a whole stream; here, all but the last images are
learned from their features, and these are timed.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pta.core.samples import Samples
from pta.data.features import FeatureFile
from pta.data.sample_set import SampleSet
from pta.errors import InvalidParameter, InvalidSamples
from pta.measure.record import Record
from pta.measure.stream import Stream
from pta.methods import adapter_class, create_adapter
from pta.models import Encoder
from pta.run.reading import Views

ROUNDS, TIMED = 5, 100  # images in all rounds together
_BATCH = 256


@dataclass(eq=False)
class TimedMethod:
    """A method that is timed; with `views`, each image is encoded as its views, and it has learned nothing before."""

    method: str
    parameters: Mapping[str, Any]
    data: FeatureFile
    views: Views | None = None
    rounds: list[list[float]] = field(default_factory=list, init=False)  # seconds per image
    peak: int = field(default=0, init=False)  # bytes of GPU memory while it answers

    def __post_init__(self) -> None:
        needs = adapter_class(self.method).needs_with(self.parameters)
        refusals = {
            "image tower": "runs the model itself, so its speed is not measured in this way",
            "generated": "needs generated pictures, which cannot be timed",
            "stream": "predicts a whole stream at once, so it has no speed for single images",
        }
        for what, why in refusals.items():
            if what in (*needs, adapter_class(self.method).scope):
                raise InvalidParameter(f"{self.method} {why}")

    def learn(self, encoder: Encoder, order: NDArray[np.int64]) -> None:
        """Learn from the features of these samples."""
        self.encoder, self.learned = encoder, order[:0] if self.views else order
        samples, before = None if self.views else self.data.samples, self._allocated()
        made_from = (self.method, self.data.classifier)
        self.adapter = create_adapter(*made_from, model=encoder, source=samples, **self.parameters)
        for rows in torch.split(torch.from_numpy(self.learned), _BATCH):
            if len(rows):
                self.adapter.step(self.data.samples[rows])
        self.resident = self._allocated() - before  # bytes of GPU memory, as long as it is there

    def answer(self, pixels: Tensor) -> None:
        """Take the time from the pixels of an image, or of its views, to a label."""
        before = self._allocated()
        if self._is_cuda:
            torch.cuda.reset_peak_memory_stats(self.encoder.device)
        begun = time.perf_counter()
        features = self.encoder.encode(pixels)
        others: dict[str, Any] = {"views": features[None]} if self.views else {}
        if "patches" in self.adapter.needs_with(self.adapter.parameters):
            others["patches"] = self.encoder.encode_tokens(pixels[:1])
        int(self.adapter.step(Samples.of(features[:1], **others)).argmax(dim=1))  # waits for a GPU
        self.rounds[-1].append(time.perf_counter() - begun)
        if self._is_cuda:
            self.peak = max(self.peak, torch.cuda.max_memory_allocated(self.encoder.device))
            self.resident += self._allocated() - before  # what it made once and keeps, such as a recording

    def record(self, zero_shot: "TimedMethod", resident: int) -> Record:
        """What was found; `resident` is the memory of all methods, of which only this one's counts."""
        rounds = []
        for seconds, of_clip in zip(map(median, self.rounds), map(median, zero_shot.rounds), strict=True):
            share, stream = 100 * of_clip / seconds, seconds * len(self.data.samples)
            times = {"seconds": seconds, "images_per_second": 1 / seconds}
            rounds.append({**times, "share_of_clip": share, "stream_seconds": stream})
        return {
            "dataset": self.data.name,
            "method": self.method,
            "params": self.adapter.parameters,
            "stream": Stream().record(1),
            "n": sum(map(len, self.rounds)),
            "learned_before": len(self.learned),
            "memory_mib": (self.peak - resident + self.resident) / 2**20 if self._is_cuda else None,
            "state_bytes": self.adapter.state_bytes,
            "accuracy": None,
            "rounds": rounds,
        }

    @property
    def _is_cuda(self) -> bool:
        return self.encoder.device.type == "cuda"

    def _allocated(self) -> int:
        return torch.cuda.memory_allocated(self.encoder.device) if self._is_cuda else 0


@torch.no_grad()
def measure_speeds(encoder: Encoder, images: SampleSet, contenders: Sequence[TimedMethod]) -> list[Record]:
    """Time methods in turn on the last images of the stream of seed 1: a record each, with what every round gave."""
    data = contenders[0].data
    if len(images) != len(data.samples):
        raise InvalidSamples("some pictures could not be read, so it is not known which of them to time")
    order = Stream().order(data, 1, _BATCH)
    learned, timed = order[:-TIMED], order[-TIMED:]
    zero_shot = TimedMethod("clip", {}, data)
    turns = [zero_shot if one.method == "clip" else one for one in contenders]
    everyone, shuffled = list(dict.fromkeys([zero_shot, *turns])), np.random.default_rng(1)
    for one in everyone:
        one.learn(encoder, learned)
    prepare = {one.views: encoder.preparer(views=one.views) for one in everyone}
    for numbers in np.array_split(timed, min(ROUNDS, len(timed))):
        for one in everyone:
            one.rounds.append([])
        for number in numbers.tolist():
            sample = images.samples[number]
            raw = {views: prepared(sample.read(), sample.key, number) for views, prepared in prepare.items()}
            pixels = {
                views: torch.from_numpy(one if views else one[None]).to(encoder.device) for views, one in raw.items()
            }
            for at in shuffled.permutation(len(everyone)):  # whoever comes before may leave a cold cache
                everyone[at].answer(pixels[everyone[at].views])
    resident = sum(one.resident for one in everyone)
    return [one.record(zero_shot, resident) for one in turns]

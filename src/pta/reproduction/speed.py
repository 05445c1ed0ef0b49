"""How fast model and methods are together, one image at a time, once the methods have learnt most of the stream.

Every image goes through zero-shot and through each method in turn, so that all meet the same machine and their ratios
mean something. Their order is another for each image. The images are parted into rounds; a round gives the median time
of each method, and its share of zero-shot's speed. Pixels are ready before the clock starts, as in the paper, whose
loader prepares images beside the GPU. The paper's times are those of a whole stream; here, all but the last images are
learnt from their features, and these are timed.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pta.adapters import adapter_class, create_adapter, needs_model
from pta.datasets.features import FeatureFile
from pta.datasets.sample_set import SampleSet
from pta.encoders import Encoder
from pta.errors import InvalidParameter, InvalidSamples
from pta.evaluation.record import Record
from pta.evaluation.stream import Stream
from pta.inference.encoding import Views
from pta.samples import Samples

ROUNDS, TIMED = 5, 100  # images in all rounds together
_BATCH = 256


@dataclass(frozen=True)
class Contender:
    """A method that is timed; with `views`, each image is encoded as its views."""

    method: str
    parameters: Mapping[str, Any]
    data: FeatureFile
    views: Views | None = None

    def __post_init__(self) -> None:
        if needs_model(self.method, self.parameters):
            raise InvalidParameter(f"{self.method} runs the model itself, so its speed is not measured in this way")
        if adapter_class(self.method).scope == "stream":
            raise InvalidParameter(
                f"{self.method} answers a whole stream at once, so it has no speed for single images"
            )


@torch.no_grad()
def measure_speeds(encoder: Encoder, images: SampleSet, contenders: Sequence[Contender]) -> list[Record]:
    """Time methods in turn on the last images of the stream of seed 1: a record each, with what every round gave."""
    data = contenders[0].data
    if len(images) != len(data.samples):
        raise InvalidSamples("some pictures could not be read, so it is not known which of them to time")
    order = Stream().order(data, 1, _BATCH)
    learnt, timed = order[:-TIMED], order[-TIMED:]
    zero_shot = _Turn(encoder, Contender("clip", {}, data), learnt)
    turns = [zero_shot if one.method == "clip" else _Turn(encoder, one, learnt) for one in contenders]
    everyone, shuffled = list(dict.fromkeys([zero_shot, *turns])), np.random.default_rng(1)
    prepare = {turn.contender.views: encoder.preparer(views=turn.contender.views) for turn in everyone}
    for numbers in np.array_split(timed, min(ROUNDS, len(timed))):
        for turn in everyone:
            turn.rounds.append([])
        for number in numbers.tolist():
            sample = images.samples[number]
            raw = {views: prepared(sample.read(), sample.key, number) for views, prepared in prepare.items()}
            pixels = {
                views: torch.from_numpy(one if views else one[None]).to(encoder.device) for views, one in raw.items()
            }
            for at in shuffled.permutation(len(everyone)):  # whoever comes before may leave a cold cache
                everyone[at].answer(pixels[everyone[at].contender.views])
    resident = sum(turn.resident for turn in everyone)
    return [turn.record(zero_shot, len(timed), resident) for turn in turns]


@dataclass(eq=False)
class _Turn:
    """A method that has learnt from the stream, and its times."""

    encoder: Encoder
    contender: Contender
    learnt: np.ndarray  # the samples before those that are timed; with views, there are none to learn from
    rounds: list[list[float]] = field(default_factory=list)  # seconds per image
    peak: int = 0  # bytes of GPU memory while it answers

    def __post_init__(self) -> None:
        given, data, before = self.contender, self.contender.data, self._allocated()
        self.learnt = self.learnt[:0] if given.views else self.learnt
        samples = None if given.views else data.samples
        self.adapter = create_adapter(given.method, data.classifier, source=samples, **given.parameters)
        for rows in torch.split(torch.from_numpy(self.learnt), _BATCH):
            if len(rows):
                self.adapter.step(data.samples[rows])
        self.resident = self._allocated() - before  # bytes of GPU memory, as long as it is there

    def answer(self, pixels: Tensor) -> None:
        """Take the time from the pixels of an image, or of its views, to a label."""
        if self._is_cuda:
            torch.cuda.reset_peak_memory_stats(self.encoder.device)
        begun = time.perf_counter()
        features = self.encoder.encode(pixels)
        others: dict[str, Any] = {"views": features[None]} if self.contender.views else {}
        if "patches" in self.adapter.needs_with(self.adapter.parameters):
            others["patches"] = self.encoder.encode_tokens(pixels[:1])
        samples = Samples.of(features[:1], **others)
        self.adapter.step(samples).argmax(dim=1).item()
        self.rounds[-1].append(time.perf_counter() - begun)
        if self._is_cuda:
            self.peak = max(self.peak, torch.cuda.max_memory_allocated(self.encoder.device))

    def record(self, zero_shot: "_Turn", images: int, resident: int) -> Record:
        """What was found; `resident` is the memory of all methods, of which only this one's counts."""
        data = self.contender.data
        rounds = []
        for seconds, of_clip in zip(map(median, self.rounds), map(median, zero_shot.rounds), strict=True):
            share, stream = 100 * of_clip / seconds, seconds * len(data.samples)
            times = {"seconds": seconds, "images_per_second": 1 / seconds}
            rounds.append({**times, "share_of_clip": share, "stream_seconds": stream})
        return {
            "dataset": data.name,
            "method": self.contender.method,
            "params": self.adapter.parameters,
            "stream": Stream().record(1),
            "n": images,
            "learnt_before": len(self.learnt),
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

"""How fast model and method are together, one image at a time, once the method has learnt most of the stream.

Every image goes through zero-shot and through the method in turn, so that both meet the same machine and their ratio
means something; times are medians. Pixels are ready before the clock starts, as in the paper, whose loader prepares
images beside the GPU. The paper's times are those of a whole stream; here, all but the last images are learnt from
their features, and these are timed.
"""

import time
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

import torch
from torch import Tensor

from pta.adapters import Adapter, adapter_class, create_adapter, needs_model
from pta.adapters.clip import CLIP
from pta.datasets.features import FeatureFile
from pta.datasets.sample_set import SampleSet
from pta.encoders import Encoder
from pta.errors import InvalidParameter, InvalidSamples
from pta.evaluation.record import Record
from pta.evaluation.stream import Stream
from pta.inference.encoding import Views
from pta.samples import Samples

TIMED = 100  # images
_BATCH = 256


@torch.no_grad()
def measure_speed(
    encoder: Encoder,
    images: SampleSet,
    data: FeatureFile,
    method: str,
    parameters: Mapping[str, Any],
    views: Views | None = None,
) -> Record:
    """Time the method on the last images of the stream of seed 1; with `views`, each image is encoded as its views."""
    if needs_model(method, parameters):
        raise InvalidParameter(f"{method} runs the model itself, so its speed is not measured in this way")
    if adapter_class(method).scope == "stream":
        raise InvalidParameter(f"{method} answers a whole stream at once, so it has no speed for single images")
    if len(images) != len(data.samples):
        raise InvalidSamples("some pictures could not be read, so it is not known which of them to time")
    order = Stream().order(data, 1, _BATCH)
    timed = order[-TIMED:]
    learnt = order[: len(order) - len(timed)] if views is None else order[:0]
    adapter = create_adapter(method, data.classifier, source=None if views else data.samples, **parameters)
    for rows in torch.split(torch.from_numpy(learnt), _BATCH):
        if len(rows):
            adapter.step(data.samples[rows])
    zero_shot = CLIP(data.classifier)
    cuda = encoder.device.type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats(encoder.device)
    seconds: list[float] = []
    of_clip: list[float] = []
    for at, pixels in enumerate(_prepared(encoder, images, timed.tolist(), views)):
        turns = [(of_clip, pixels[:1], zero_shot, False), (seconds, pixels, adapter, views is not None)]
        for found, given, one, takes_views in turns if at % 2 else reversed(turns):  # being second may help
            found.append(_answer_in(encoder, given, one, takes_views=takes_views))
    each, each_of_clip = median(seconds), median(of_clip)
    return {
        "dataset": data.name,
        "method": method,
        "params": adapter.parameters,
        "seed": 1,
        "stream": Stream().record(1),
        "n": len(seconds),
        "learnt_before": len(learnt),
        "seconds": each,
        "images_per_second": 1 / each,
        "share_of_clip": 100 * each_of_clip / each,
        "stream_seconds": each * len(data.samples),
        "memory_mib": torch.cuda.max_memory_allocated(encoder.device) / 2**20 if cuda else None,
        "state_bytes": adapter.state_bytes,
        "accuracy": None,
    }


def _answer_in(encoder: Encoder, pixels: Tensor, adapter: Adapter, *, takes_views: bool) -> float:
    """The seconds from the pixels of an image, or of its views, to a label."""
    begun = time.perf_counter()
    features = encoder.encode(pixels)
    samples = Samples.of(features[:1], views=features[None] if takes_views else None)
    adapter.step(samples).argmax(dim=1).item()
    return time.perf_counter() - begun


def _prepared(encoder: Encoder, images: SampleSet, numbers: list[int], views: Views | None) -> Iterator[Tensor]:
    """The pixels of each image, or of its views, on the encoder's device."""
    prepare = encoder.preparer(views=views)
    for number in numbers:
        sample = images.samples[number]
        raw = torch.from_numpy(prepare(sample.read(), sample.key, number))
        yield (raw[None] if views is None else raw).to(encoder.device)

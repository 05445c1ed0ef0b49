"""How fast images become features: one by one, our way, and the encoder alone, side by side in one run.

    python benchmarks/encode.py            writes benchmarks/results/encode-cpu.csv and encode-fast-decode.csv

The ways take turns, and ratios are medians over the rounds: a busy machine slows all of them, so trust the ratios, to
within a few per cent. Weights are random (ViT-B/32) or the packaged ones (embedded); photographs are synthetic, with
the spectrum, size and compression of real ones.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from PIL import Image
from result_file import RESULTS, Row, write

from pta.data.sample_set import SampleFile
from pta.door.files import read_sample
from pta.door.images import open_image
from pta.measure.provenance import hardware
from pta.models import EmbeddedEncoder, Encoder
from pta.models.clip.encoder import ClipEncoder
from pta.models.clip.state_dict import in_openai_layout
from pta.models.encoder import FAST_MARGIN
from pta.run.encoding import encode_files
from pta.run.gpu.encoder_program import EncoderProgram
from pta.run.reading import Reading

BATCH = 64
SIZE = (500, 375)  # of a usual photograph in ImageNet
SHARE_OF_SLOWEST = 4  # one by one is measured on a fourth of the images

Way = TypeVar("Way")


def random_vit_b32() -> Encoder:
    """ViT-B/32 with random weights, made by transformers and run by us."""
    from transformers import CLIPConfig, CLIPModel

    torch.manual_seed(0)
    return ClipEncoder(in_openai_layout(CLIPModel(CLIPConfig()).state_dict()), quick_gelu=True).ready()


def photograph(rng: np.random.Generator, size: tuple[int, int] = SIZE) -> Image.Image:
    """A picture whose energy falls with frequency as in nature, slightly coloured."""
    width, height = size
    frequency = np.hypot(*np.meshgrid(np.fft.fftfreq(width), np.fft.fftfreq(height)))
    frequency[0, 0] = 1
    grey, *colours = (
        np.fft.ifft2(np.fft.fft2(rng.standard_normal((height, width))) / frequency).real for _ in range(4)
    )
    channels = [grey + 0.3 * colour for colour in colours]
    scaled = [128 + 55 * (channel - channel.mean()) / channel.std() for channel in channels]
    return Image.fromarray(np.clip(np.stack(scaled, axis=2), 0, 255).astype(np.uint8))


def one_by_one(encoder: Encoder, paths: Iterable[Path]) -> torch.Tensor:
    """What a first program does."""
    return torch.cat([encoder.encode(encoder.preprocess(Image.open(path))) for path in paths])


def our_way(encoder: Encoder, paths: Iterable[Path], fast_decode: bool = False) -> torch.Tensor:
    """What `pta extract` and `pta predict` do."""
    images = enumerate(SampleFile(path, path.name) for path in paths)
    parts = encode_files(EncoderProgram(encoder, BATCH), images, Reading(BATCH, fast_decode=fast_decode))
    return torch.cat([part.tensors["features"] for part in parts])


def encoder_alone(encoder: Encoder, ready: torch.Tensor) -> torch.Tensor:
    """What would be left if decoding cost nothing."""
    return torch.cat([encoder.encode(batch) for batch in ready.split(BATCH)])


def measure(ways: dict[Way, Callable[[], object]], repeats: int) -> dict[Way, list[float]]:
    """The seconds of each way, round by round; they take turns."""
    seconds: dict[Way, list[float]] = {name: [] for name in ways}
    for _ in range(repeats + 1):
        for name, run in ways.items():
            begun = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - begun)
    return {name: times[1:] for name, times in seconds.items()}  # the first round warms up


def ratio(longer: list[float], shorter: list[float]) -> float:
    """The median over the rounds of how many times as long one way took as the other."""
    return statistics.median(one / other for one, other in zip(longer, shorter, strict=True))


def compare(name: str, encoder: Encoder, paths: list[Path], repeats: int) -> list[Row]:
    """All ways over the same files with one model."""
    ready = encoder.preprocess([Image.open(path) for path in paths])
    few = paths[: len(paths) // SHARE_OF_SLOWEST]
    ways = {
        "one by one": lambda: one_by_one(encoder, few),
        "ours": lambda: our_way(encoder, paths),
        "encoder alone": lambda: encoder_alone(encoder, ready),
        "ours, fast decoding": lambda: our_way(encoder, paths, fast_decode=True),
    }
    seconds = measure(ways, repeats)
    seconds["one by one"] = [time * len(paths) / len(few) for time in seconds["one by one"]]
    return [
        {
            "model": name,
            "way": way,
            "images": len(paths),
            "images_per_second": round(len(paths) / statistics.median(seconds[way]), 1),
            "of_encoder_alone": round(ratio(seconds["encoder alone"], seconds[way]), 3),
            "of_one_by_one": round(ratio(seconds["one by one"], seconds[way]), 3),
            "hardware": hardware(),
        }
        for way in ways
    ]


def fast_decoding(models: dict[str, Encoder], folder: Path) -> list[Row]:
    """How far fast decoding moves features and how much faster pixels are made, for photographs of several sizes."""
    rows = []
    for size in ((500, 375), (1000, 750), (2000, 1500), (4000, 3000)):
        rng = np.random.default_rng(size[0])
        paths = [folder / f"{size[0]}-{number}.jpg" for number in range(8)]
        for path in paths:
            photograph(rng, size).save(path, quality=90)
        for name, encoder in models.items():
            exact, fast = (our_way(encoder, paths, fast_decode=fast) for fast in (False, True))
            cosines = (exact * fast).sum(dim=1)
            among = (exact @ exact.T)[~torch.eye(len(paths), dtype=torch.bool)]
            seconds = measure({at: partial(make_pixels, encoder, paths, at) for at in (None, FAST_MARGIN)}, repeats=3)
            rows.append(
                {
                    "model": name,
                    "width": size[0],
                    "height": size[1],
                    "pixels_made_faster_by": round(ratio(seconds[None], seconds[FAST_MARGIN]), 2),
                    "least_cosine": round(cosines.min().item(), 6),
                    "mean_cosine": round(cosines.mean().item(), 6),
                    "mean_cosine_between_pictures": round(among.mean().item(), 6),
                    "hardware": hardware(),
                }
            )
    return rows


def make_pixels(encoder: Encoder, paths: Iterable[Path], margin: int | None) -> None:
    """Decode and preprocess, in one thread."""
    for path in paths:
        at_least = None if margin is None else margin * encoder.preprocess.size
        encoder.preprocess.pixels(open_image(read_sample(path), at_least=at_least))


def main() -> None:
    """Measure both models, then what fast decoding costs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=192)
    parser.add_argument("--repeats", type=int, default=9)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder, rng = Path(place), np.random.default_rng(1)
        paths = [folder / f"{number:04d}.jpg" for number in range(arguments.images)]
        for path in paths:
            photograph(rng).save(path, quality=90)
        models = {"ViT-B/32, random weights": random_vit_b32(), "embedded": EmbeddedEncoder.load().ready()}
        rows = [row for name, model in models.items() for row in compare(name, model, paths, arguments.repeats)]
        write(RESULTS / "encode-cpu.csv", rows)
        write(RESULTS / "encode-fast-decode.csv", fast_decoding(models, folder))


if __name__ == "__main__":
    main()

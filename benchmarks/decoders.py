"""A GPU's decoder beside Pillow: how fast each part of its way is, and how far pixels and features are apart.

    python benchmarks/decoders.py       writes benchmarks/results/decoders-gpu.csv, one row per kind of file

Photographs are synthetic, with the spectrum of real ones. `mixed` has widths from 320 to 4000, evenly by their
logarithm. `prepare` is the walk through the markers in one thread of the host. Times are medians over the rounds.
Distances are between resized bytes. The cosine is that of the features that ViT-B/16 with random weights gives.
"""

import io
import sys
import time
from collections.abc import Callable, Iterator
from statistics import fmean, median

import numpy as np
import torch
from encode import SIZE, photograph
from PIL import Image
from random_clip import random_state
from result_file import RESULTS, Row, write

from pta.door.images import open_image
from pta.door.images.bare import BaselineJpeg
from pta.door.images.batch_decoder import BatchDecoder, PrepareFile
from pta.door.images.decoders import available_decoder
from pta.door.images.device import resize_ragged
from pta.measure.provenance import hardware
from pta.models import Encoder
from pta.models.clip.encoder import ClipEncoder

DEVICE = torch.device("cuda")
BATCH, COMPARED, ROUNDS = 256, 64, 7
LARGEST = (4000, 3000)


def files(kind: str, photo: Image.Image, rng: np.random.Generator) -> Iterator[bytes]:
    """A batch of JPEG files of quality 90: parts of a photograph, or all of it in different sizes."""
    for _ in range(BATCH):
        if kind == "mixed":
            width = round(320 * (LARGEST[0] / 320) ** rng.random())
            picture = photo.resize((width, round(0.75 * width)), Image.Resampling.BILINEAR, reducing_gap=1.0)
        else:
            left, top = (int(rng.integers(whole - part)) for whole, part in zip(photo.size, SIZE, strict=True))
            picture = photo.crop((left, top, left + SIZE[0], top + SIZE[1]))
        file = io.BytesIO()
        colours = {"subsampling": "4:4:4"} if "4:4:4" in kind else {}  # 4:2:0 is usual
        picture.convert("L" if "grey" in kind else "RGB").save(file, "JPEG", quality=90, **colours)
        yield file.getvalue()


def seconds(work: Callable[[], object]) -> float:
    """Of one turn on a GPU that is warm."""
    times = []
    for _ in range(ROUNDS + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return median(times[1:])


def measure(batches: BatchDecoder, encoder: Encoder, kind: str, contents: list[bytes]) -> Row:
    """One row."""
    prepare = seconds(lambda: [batches.prepare(content) for content in contents])
    prepared = [one for one in map(batches.prepare, contents) if isinstance(one, BaselineJpeg)]
    assert len(prepared) == BATCH
    megapixels = fmean(one.width * one.height for one in prepared) / 1e6
    decode = seconds(lambda: batches.decoder([one.content for one in prepared]))
    pictures = batches.decoder([one.content for one in prepared])
    resize = seconds(lambda: resize_ragged(pictures, encoder.preprocess))
    together = seconds(lambda: batches.decode(prepared))
    ours = batches.decode(prepared[:COMPARED]).pixels
    by_pillow = [encoder.preprocess.pixels(open_image(content)) for content in contents[:COMPARED]]
    pillows = torch.from_numpy(np.stack(by_pillow)).to(DEVICE)
    distance = (ours.short() - pillows.short()).abs().float()
    cosines = (encoder.encode(ours) * encoder.encode(pillows)).sum(dim=1)
    return {
        "hardware": hardware(DEVICE),
        "decoder": batches.decoder.name,
        "files": kind,
        "megapixels": f"{megapixels:.3f}",
        "kilobytes": f"{fmean(map(len, contents)) / 1e3:.0f}",
        "prepare_us": f"{prepare / BATCH * 1e6:.0f}",
        "decoded_per_second": f"{BATCH / decode:.0f}",
        "megapixels_per_second": f"{BATCH * megapixels / decode:.0f}",
        "resized_per_second": f"{BATCH / resize:.0f}",
        "both_per_second": f"{BATCH / together:.0f}",
        "mean_distance": f"{distance.mean():.3f}",
        "largest_distance": f"{distance.max():.0f}",
        "equal": f"{(distance == 0).float().mean():.3f}",
        "least_cosine": f"{cosines.min():.6f}",
    }


def main() -> None:
    rng = np.random.default_rng(0)
    photo = photograph(rng, LARGEST)
    encoder = ClipEncoder(random_state("ViT", small=False), quick_gelu=True).ready("cuda")
    kinds = ("500×375 4:2:0", "500×375 4:4:4", "500×375 grey", "mixed")
    contents = {kind: list(files(kind, photo, rng)) for kind in kinds}
    if (decoder := available_decoder(DEVICE)) is None:
        sys.exit("this needs a GPU, and torchvision built for it")
    batches = BatchDecoder(decoder, PrepareFile(encoder.preprocess), DEVICE)
    rows = (measure(batches, encoder, kind, contents[kind]) for kind in kinds)
    write(RESULTS / "decoders-gpu.csv", rows)


if __name__ == "__main__":
    main()

"""How fast JPEG files become rows and features on a GPU, beside the model alone, in one run.

    python benchmarks/files.py                      writes files-gpu.csv and files-latency.csv to benchmarks/results
    python benchmarks/files.py --models ViT-B/16 --sizes 500x375 --commands predict

Weights are random, in half precision; 1000 classes lie around the features, as in gpu.py. Pictures are smooth with some
noise, so that files are as long as those of photographs. Every path leads to one of a few hundred files, which the
system keeps in memory: reading from a drive is not measured. Of mixed sizes, the longer side is log-uniform. A model is
compiled before it is measured, and how long that takes is a row of its own. `predict` ends with the last row on the
disk, `extract` with the file. The start of a run is part of its speed: workers, plain code until the model is recorded.
`second_half` is the speed without it; of runs that are too short to say, it is left out.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path

import numpy as np
import torch
from encode import random_vit_b32
from gpu import classes_around
from PIL import Image, ImageChops
from random_clip import random_state
from result_file import RESULTS, Row, write
from torch import Tensor

from pta import Classifier
from pta.core.modality import IMAGES
from pta.data.sample_set import SampleFile, SampleSet
from pta.door.images.decoders import available_decoder
from pta.measure.provenance import hardware
from pta.models import ImageEncoder
from pta.models.clip.encoder import ClipEncoder
from pta.run.encoding import encode_files
from pta.run.extract import extract
from pta.run.gpu import encoder_program
from pta.run.gpu.encoder_program import EncoderProgram
from pta.run.predict import predict_stream
from pta.run.reading import Reading, open_decoding, start_early
from pta.run.row_file import RowFile
from pta.run.saved_stream import Progress, RowThread, SavedStream

BATCH, CLASSES = 256, 1000
MODELS = ("ViT-B/16", "ViT-B/32")
SIZES = ("500x375", "mixed")
COMMANDS = ("predict", "extract")
LONG = 10_000  # pictures; much of a shorter run was read ahead in its first half
SMALLEST, LARGEST, DISTINCT = 320, 4000, 1024  # longer sides, and how many pictures of mixed sizes there are
LONG_RUN = 409_600  # pictures of the runs `predict-long` and `extract-long`
COUNTS = {"500x375": (40_960, 16_384, 3_072), "mixed": (12_288, 3_072, 1_024)}  # by GPU, processes and threads


class RandomClip(ClipEncoder):
    """A model whose texts are 1000 classes that lie around the features of some pictures."""

    anchors: Tensor

    def text_features(self, texts: Sequence[str]) -> Tensor:
        return self.anchors[[int(text.split()[-1]) for text in texts]]


def random_model(name: str) -> RandomClip:
    """A model of full size on the GPU, in half precision."""
    state = random_state("ViT", small=False) if name == "ViT-B/16" else random_vit_b32().state_dict()
    model = RandomClip(state, quick_gelu=True).ready("cuda", torch.float16)
    noise = torch.randint(0, 256, (512, 3, 224, 224), dtype=torch.uint8, device="cuda")
    classifier, _ = classes_around(model.encode(noise), CLASSES)
    model.anchors, model.scale = classifier.anchors, classifier.scale
    return model


def write_pictures(folder: Path, sizes: Sequence[tuple[int, int]]) -> list[Path]:
    """A JPEG file of each size, by all processors."""
    side = max(map(max, sizes)) + 64
    levels = np.random.default_rng(0).normal(128, 6, (side, side)).astype(np.uint8)
    noise = Image.merge("RGB", [Image.fromarray(levels)] * 3)
    folder.mkdir()

    def one(number: int) -> Path:
        rng, (width, height) = np.random.default_rng(number), sizes[number]
        coarse = rng.integers(0, 256, (9, 12, 3), dtype=np.uint8)
        smooth = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
        left, top = map(int, rng.integers(0, 64, 2))
        path = folder / f"{number:05d}.jpg"
        ImageChops.add(smooth, noise.crop((left, top, left + width, top + height)), 1, -128).save(path, quality=90)
        return path

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(one, range(len(sizes))))


def mixed_sizes() -> list[tuple[int, int]]:
    """Distinct sizes: the longer side log-uniform, the shorter from half of it to three quarters, a third upright."""
    rng, sizes = np.random.default_rng(1), {(SMALLEST, SMALLEST * 3 // 4): None, (LARGEST, LARGEST * 3 // 4): None}
    while len(sizes) < DISTINCT:
        longer = int(np.exp(rng.uniform(np.log(SMALLEST), np.log(LARGEST))))
        shorter = max(SMALLEST * 3 // 4, int(longer * rng.uniform(0.5, 0.75)))
        sizes[(shorter, longer) if rng.random() < 1 / 3 else (longer, shorter)] = None
    return list(sizes)


@dataclass(frozen=True)
class Way:
    """How files are read and encoded."""

    name: str
    reading: Reading
    on_gpu: bool = False  # where files are decoded


def ways() -> list[Way]:
    """The GPU's decoder, if it is installed, and Pillow."""
    cores = os.cpu_count() or 1
    host = Reading(BATCH, decode="pillow")
    found = [
        Way("Pillow in 8 threads, not compiled", replace(host, workers=8, compiled=False)),
        Way("Pillow in 8 threads", replace(host, workers=8)),
        Way(f"Pillow in {cores} processes", replace(host, workers=cores, processes=True)),
    ]
    gpu = Reading(BATCH, workers=4, decode="gpu", processes=True)
    decoder = available_decoder(torch.device("cuda"))
    return found if decoder is None else [Way(f"{decoder.name}, 4 processes read", gpu, on_gpu=True), *found]


def model_alone(model: ImageEncoder) -> float:
    """Images per second of the compiled model, from pixels that are on the device."""
    program = EncoderProgram(model, BATCH, 10**6, whole=True)
    pixels = torch.randint(0, 256, (BATCH, 3, 224, 224), dtype=torch.uint8, device="cuda")
    for _ in range(20):
        program(pixels)
    torch.cuda.synchronize()
    begun, calls = time.perf_counter(), 200
    for _ in range(calls):
        program(pixels)
    torch.cuda.synchronize()
    return calls * BATCH / (time.perf_counter() - begun)


Seen = Callable[[int], None]  # is told how many samples are done


def run_predict(model: RandomClip, files: list[SampleFile], reading: Reading, place: Path, seen: Seen) -> str:
    """What `pta predict --state S --out rows.jsonl` does."""
    classifier = Classifier(model, [f"class {n}" for n in range(CLASSES)], templates=["{}"], method="pta", cache=None)
    file = RowFile(place / "rows.jsonl", 1)
    rows, decoding = RowThread(file), open_decoding(model, reading)
    progress = Progress()
    try:
        with SavedStream(classifier, place / "state.safetensors", rows, progress, 30) as stream:
            for part in predict_stream(classifier, files, reading, decoding, total=len(files)):
                stream.add(part)
                seen(progress.taken)
    finally:
        rows.close()
        file.close()
    return decoding.sentence() or ""


def run_extract(model: RandomClip, files: list[SampleFile], reading: Reading, place: Path, seen: Seen) -> str:
    """What `pta extract` does, with its file."""
    names = tuple(f"class {n}" for n in range(CLASSES))
    classifier = Classifier(model, names, templates=["{}"], cache=None).classifier
    samples = SampleSet("pictures", names, tuple(files), None)
    out = place / "features.safetensors"
    return extract(samples, model, classifier, out, reading, shard=8192, on_progress=seen).decoded or ""


RUNS: dict[str, Callable[..., str]] = {"predict": run_predict, "extract": run_extract}


def processor_seconds() -> float:
    """Of all processors of the machine, since it was started, in which they did something."""
    user, nice, system, _, _, *interrupts = map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:8])
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")


def measure(model: RandomClip, paths: list[Path], way: Way, command: str, count: int) -> tuple[Row, float]:
    """One run over so many files: its numbers, and its speed."""
    files = [SampleFile(path, f"{number:06d}.jpg") for number, path in enumerate(islice(cycle(paths), count))]
    torch.cuda.empty_cache()
    place = Path(tempfile.mkdtemp())
    halfway: list[tuple[int, float]] = []

    def seen(done: int) -> None:
        if done >= count // 2 and not halfway:
            halfway.append((done, time.perf_counter()))

    try:
        busy, begun = processor_seconds(), time.perf_counter()
        said = RUNS[command](model, files, way.reading, place, seen)
        end = time.perf_counter()
        busy = processor_seconds() - busy
    finally:
        shutil.rmtree(place)
    free, total = torch.cuda.mem_get_info()
    speed, (before, middle) = count / (end - begun), halfway[0]
    steady = round((count - before) / (end - middle)) if count >= LONG else ""
    row = {"images": count, "images_per_second": round(speed), "second_half": steady}
    row["host_cpu_share"] = round(busy / (end - begun) / os.cpu_count(), 3)
    return row | {"gpu_gib": round((total - free) / 2**30, 2), "decoded": said}, speed


def distances(model: RandomClip, paths: list[Path], way: Way) -> Row:
    """How far the features of the first files are from those that Pillow's pixels give."""
    few = paths[:BATCH]

    def features(reading: Reading) -> Tensor:
        files = enumerate(SampleFile(path, path.name) for path in few)
        program = EncoderProgram(model, BATCH, optimise=False)
        return torch.cat([part.tensors["features"] for part in encode_files(program, files, reading)])

    cosines = (features(way.reading) * features(Reading(BATCH, decode="pillow"))).sum(dim=1)
    return {"least_cosine": round(cosines.min().item(), 6), "mean_cosine": round(cosines.mean().item(), 6)}


def table(models: Sequence[str], kinds: Sequence[str], commands: Sequence[str], folder: Path) -> Iterator[Row]:
    """Every way over every kind of files by every model."""
    sizes = {"500x375": [(500, 375)] * 512, "mixed": mixed_sizes()}
    files = {kind: write_pictures(folder / kind, sizes[kind]) for kind in kinds}
    for name in models:
        model = random_model(name)
        begun = time.perf_counter()
        alone = model_alone(model)
        about = {"model": name, "hardware": f"{hardware('cuda')}; {os.cpu_count()} cores"}
        yield _row(way="model alone, ready tensors", images_per_second=round(alone), share_of_model=1.0, **about)
        yield _row(way="compiling and recording", seconds=round(time.perf_counter() - begun, 1), **about)
        for kind in kinds:
            pixels = sum(width * height for width, height in sizes[kind]) / len(sizes[kind]) / 1e6
            length = statistics.mean(path.stat().st_size for path in files[kind]) / 1e3
            of = {"sizes": kind, "megapixels": round(pixels, 2), "kilobytes": round(length)}
            for way in ways():
                is_thorough = name == MODELS[0] and (kind == SIZES[0] or not way.reading.compiled)
                if not way.reading.processes and not is_thorough:
                    continue
                count = COUNTS[kind][0 if way.on_gpu else 1 if way.reading.processes else 2]
                try:
                    far = distances(model, files[kind], way) if way.on_gpu else {}
                    runs = [(command, count) for command in (commands if way.reading.processes else commands[:1])]
                    if way.on_gpu and is_thorough:
                        runs += [(f"{command}-long", LONG_RUN) for command in commands]
                    for command, count in runs:
                        row, speed = measure(model, files[kind], way, command.removesuffix("-long"), count)
                        row |= {
                            "share_of_model": round(speed / alone, 3),
                            "megapixels_per_second": round(speed * pixels),
                        }
                        yield _row(way=way.name, command=command, **of, **row, **far, **about)
                except Exception as error:  # the other rows are worth having
                    yield _row(way=way.name, decoded=f"failed: {error!r}"[:200], **of, **about)


COLUMNS = (
    *("model", "sizes", "megapixels", "kilobytes", "command", "way", "images"),
    *("images_per_second", "second_half", "share_of_model"),
    *(
        "megapixels_per_second",
        "host_cpu_share",
        "gpu_gib",
        "least_cosine",
        "mean_cosine",
        "decoded",
        "seconds",
        "hardware",
    ),
)


def _row(**known: object) -> Row:
    return {column: known.get(column, "") for column in COLUMNS}


def latency(model: RandomClip, folder: Path) -> Iterator[Row]:
    """The first row of `predict`, and one JPEG file at a time from bytes to label, by each decoder."""
    contents = [path.read_bytes() for path in write_pictures(folder / "latency", [(500, 375)] * 256)]
    names = [f"class {n}" for n in range(CLASSES)]
    about = {"model": "ViT-B/16", "hardware": f"{hardware('cuda')}; {os.cpu_count()} cores"}
    pillow = Way("Pillow", Reading(BATCH, decode="pillow"))
    for way in [*(way for way in ways() if way.on_gpu), pillow]:
        decode = "gpu" if way.on_gpu else "pillow"
        command = [sys.executable, __file__, "--first-row", decode]
        done = subprocess.run(command, capture_output=True, text=True)  # it ends while the model is compiled
        first = float(done.stdout.split()[-1]) if done.stdout else float("nan")
        classifier = Classifier(model, names, templates=["{}"], method="pta", cache=None, decode=decode)
        for state in ("plain", "compiled"):
            times = []
            for content in islice(cycle(contents), 400):
                begun = time.perf_counter()
                classifier(content)
                times.append(1e3 * (time.perf_counter() - begun))
            p50, p99 = map(float, np.percentile(times[50:], [50, 99]))
            shown = {"p50_ms": round(p50, 2), "p99_ms": round(p99, 2), "exit": done.returncode}
            yield {"way": way.name, "program": state, "first_row_s": round(first, 2), **shown, **about}
            encoder_program.COMPILED_FROM = 0  # so that the next program is compiled at once
            classifier._programs[1] = EncoderProgram(model, 1, 1, whole=True)
            encoder_program.COMPILED_FROM = 2_000
            classifier(contents[0])


def first_row(decode: str, folder: Path) -> float:
    """Seconds from a model that is loaded to the first row of 20,000, in a new process."""
    paths = write_pictures(folder / "first", [(500, 375)] * 64)
    files = [SampleFile(path, path.name) for path in islice(cycle(paths), 20_000)]
    reading = Reading(BATCH, decode=decode, processes=True)
    start_early(reading, IMAGES, torch.device("cuda"), len(files))  # as commands do before they load a model
    model = random_model("ViT-B/16")
    begun, found = time.perf_counter(), list[float]()

    def seen(done: int) -> None:
        while not (folder / "rows.jsonl").stat().st_size:
            time.sleep(0.001)
        found.append(time.perf_counter() - begun)
        raise StopIteration

    with suppress(StopIteration, RuntimeError):
        run_predict(model, files, reading, folder, seen)
    return found[0]


def main() -> None:
    """Measure all, or what is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", choices=MODELS, default=MODELS)
    parser.add_argument("--sizes", nargs="*", choices=SIZES, default=SIZES)
    parser.add_argument("--commands", nargs="*", choices=COMMANDS, default=COMMANDS)
    parser.add_argument("--no-latency", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--first-row", choices=("pillow", "gpu"), help="Print how long the first row takes, and end.")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        if arguments.first_row:
            print(first_row(arguments.first_row, Path(place)), flush=True)
            return
        if arguments.commands:
            rows = table(arguments.models, arguments.sizes, arguments.commands, Path(place))
            write(arguments.out / "files-gpu.csv", rows)
        if not arguments.no_latency:
            write(arguments.out / "files-latency.csv", latency(random_model("ViT-B/16"), Path(place)))


if __name__ == "__main__":
    main()

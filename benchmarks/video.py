"""How fast frames are taken from a 1080p file, beside Debian's ffmpeg for the same frames and threads, in one run.

    python benchmarks/video.py        writes video.csv to benchmarks/results

The file is H.264 at 30 frames per second; a window moves over a smooth picture with some noise. Both decode it whole
and give out frames of red, green and blue: ffmpeg through a pipe to this process, which reads and forgets them, and pta
from its decoder's process as arrays. The start of both is part of their time. They take turns; medians are compared.
On a machine that does other work too, the seconds of processors that both took are the better measure.
"""

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np
from PIL import Image
from result_file import RESULTS, Row, write

from pta.door.video import Camera, Timing, VideoAddress, video_frames
from pta.measure.provenance import hardware

WIDTH, HEIGHT, RATE = 1920, 1080, 30
ROUNDS = 7


def make(path: Path, seconds: int) -> None:
    """Write the file."""
    rng = np.random.default_rng(0)
    coarse = Image.fromarray(rng.integers(0, 255, (40, 60, 3), dtype=np.uint8))
    whole = np.asarray(coarse.resize((2 * WIDTH, 2 * HEIGHT), Image.Resampling.BICUBIC)).astype(np.int16)
    whole = (whole + rng.integers(-12, 13, whole.shape)).clip(0, 255).astype(np.uint8)
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=RATE, options={"preset": "veryfast", "crf": "23"})
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for number in range(seconds * RATE):
            top, left = 2 * number % HEIGHT, 3 * number % WIDTH
            window = np.ascontiguousarray(whole[top : top + HEIGHT, left : left + WIDTH])
            out.mux(stream.encode(av.VideoFrame.from_ndarray(window, format="rgb24")))
        out.mux(stream.encode())


def by_pta(path: Path, step: int, threads: int) -> int:
    """Take every so many frames as arrays; how many came."""
    timing = Timing(None if step == 1 else step / RATE)
    camera = Camera(VideoAddress.parse(str(path)), "", timing, threads=threads)
    return sum(len(moment) for moment in video_frames(camera))


def by_ffmpeg(path: Path, step: int, threads: int) -> int:
    """The same frames by ffmpeg."""
    chosen = [] if step == 1 else ["-vf", rf"select=not(mod(n\,{step}))", "-vsync", "0"]
    call = ["ffmpeg", "-v", "error", "-nostdin", "-threads", str(threads), "-i", str(path), *chosen]
    count, buffer = 0, bytearray(3 * WIDTH * HEIGHT)
    with subprocess.Popen([*call, "-pix_fmt", "rgb24", "-f", "rawvideo", "-"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while process.stdout.readinto(buffer):
            count += 1
    return count


@dataclass(frozen=True)
class Cost:
    """What a run took: seconds by the clock and of processors, those of ended processes included."""

    seconds: float
    processor: float


def cost(work: Callable[[Path, int, int], int], path: Path, step: int, threads: int, expected: int) -> Cost:
    """What it takes, once it has given all frames."""
    began, before = time.perf_counter(), os.times()
    assert work(path, step, threads) == expected
    after = os.times()
    return Cost(time.perf_counter() - began, sum(after[:4]) - sum(before[:4]))


def median(costs: Sequence[Cost]) -> Cost:
    """The medians of both."""
    return Cost(statistics.median(one.seconds for one in costs), statistics.median(one.processor for one in costs))


def rows(seconds: int) -> Iterator[Row]:
    """A row for every choice of frames and threads."""
    version = subprocess.run(["ffmpeg", "-version"], capture_output=True, text=True, check=True).stdout.split()[2]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "film.mp4"
        make(path, seconds)
        for step in (60, 1):
            for threads in (1, 2):
                expected = -(-seconds * RATE // step)
                costs: dict[str, list[Cost]] = {"pta": [], "ffmpeg": []}
                for _ in range(ROUNDS):
                    for name, work in (("pta", by_pta), ("ffmpeg", by_ffmpeg)):
                        costs[name].append(cost(work, path, step, threads, expected))
                ours, theirs = median(costs["pta"]), median(costs["ffmpeg"])
                yield {
                    "taken": f"1 of {step}",
                    "threads": threads,
                    "decoded_per_second": round(seconds * RATE / ours.seconds, 1),
                    "ffmpeg_decoded_per_second": round(seconds * RATE / theirs.seconds, 1),
                    "share_of_ffmpeg": round(theirs.seconds / ours.seconds, 3),
                    "share_by_processor_time": round(theirs.processor / ours.processor, 3),
                    "frames": expected,
                    "pyav": av.__version__,
                    "ffmpeg": version,
                    "hardware": hardware(),
                }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=20, help="length of the file")
    write(RESULTS / "video.csv", rows(parser.parse_args().seconds))

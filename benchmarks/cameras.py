"""Whether cameras of one process keep their rate on two cores while one of them hangs.

    python benchmarks/cameras.py                    writes cameras.csv to benchmarks/results

A process plays cameras over HTTP (MJPEG, 640×360, 10 frames per second, a smooth picture that changes); one of them
sends its head and then nothing. `pta watch` takes two frames per second of each. Its loop runs in this process, with
every camera's decoder in one of its own, all on the processors of `--cores`; the player has those, too. `rate` counts
the frames that were answered after all cameras but the hanging one had come. `model` is the packaged one, or CLIP
ViT-B/32 with random weights. `processors` is the processor time of loop and decoders by the wall time. `load` is
the system's load average before: above the number of cores, others took part of them.
"""

import argparse
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from multiprocessing.connection import Connection
from threading import Event

import numpy as np
import torch
from encode import random_vit_b32
from PIL import Image
from result_file import RESULTS, Row, write

from pta import Classifier
from pta.door.video import Camera, Region, Timing, VideoAddress
from pta.measure.provenance import hardware
from pta.models import Encoder, load_encoder
from pta.monitor.silence import Silence
from pta.run.watch.change import RegionName
from pta.run.watch.confirm import Confirmation
from pta.run.watch.loop import Watch, WatchedCamera, leave_cores_to_decoders
from pta.run.watch.outlets import Outlets
from pta.run.watch.region import WatchedRegion

CAMERAS, SIZE, FPS, TAKEN = 8, (640, 360), 10, 2
CLASSES = ("ankle boot", "shirt", "bag")


class Player(BaseHTTPRequestHandler):
    """Plays pictures at a rate, or hangs."""

    pictures: Sequence[bytes]

    def do_GET(self) -> None:
        """Send parts until the reader has gone."""
        self.send_response(200)
        self.send_header("Content-Type", "multipart/x-mixed-replace; boundary=frame")
        self.end_headers()
        if self.path == "/hang":
            Event().wait()
        due, number = time.monotonic(), 0
        with suppress(OSError):
            while True:
                content = self.pictures[number % len(self.pictures)]
                self.wfile.write(b"--frame\r\nContent-Length: %d\r\n\r\n%s\r\n" % (len(content), content))
                due, number = due + 1 / FPS, number + 1
                time.sleep(max(0.0, due - time.monotonic()))

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def play(pipe: Connection) -> None:
    """Serve cameras for ever, and say at which port."""
    Player.pictures = list(pictures())
    server = ThreadingHTTPServer(("127.0.0.1", 0), Player)
    server.daemon_threads = True
    pipe.send(server.server_port)
    server.serve_forever()


def pictures() -> Iterator[bytes]:
    """Some seconds of a camera."""
    random = np.random.default_rng(1)
    for _ in range(3 * FPS):
        small = random.integers(0, 256, (9, 16, 3), np.uint8)
        content = BytesIO()
        Image.fromarray(small).resize(SIZE, Image.Resampling.BICUBIC).save(content, "JPEG", quality=85)
        yield content.getvalue()


def watched(encoder: Encoder, url: str, number: int, changed: Event) -> WatchedCamera:
    """A camera with one region; the first one hangs."""
    name, address = RegionName(f"{number}", "gate"), VideoAddress.parse(f"{url}/{number if number else 'hang'}")
    region = WatchedRegion(name, address, Classifier(encoder, CLASSES), Confirmation(), None)
    camera = Camera(
        *(address, name.camera, Timing(1 / TAKEN), [Region.parse("gate=25%,25%,50%,50%")]),
        on_change=changed.set,
        threads=1,
    )
    return WatchedCamera(camera, [region], Silence(None))


def measured(model: str, encoder: Encoder, url: str, seconds: float) -> Iterator[Row]:
    """Watch for so many seconds; a row per camera."""
    changed = Event()
    cameras = [watched(encoder, url, number, changed) for number in range(CAMERAS)]
    began, before, load = 0.0, [0] * CAMERAS, os.getloadavg()[0]

    def stopping() -> bool:
        nonlocal began, before
        if not began and all(one.frames > 2 * TAKEN for one in cameras[1:]):
            began, before = time.monotonic(), [one.frames for one in cameras]
        return began > 0 and time.monotonic() >= began + seconds

    used, start = sum(os.times()[:4]), time.monotonic()
    Watch(cameras, Outlets([]), None, changed, 30.0, 64).run(stopping)
    wall = time.monotonic() - began
    share = (sum(os.times()[:4]) - used) / (time.monotonic() - start)
    for number, one in enumerate(cameras):
        yield {
            "model": model,
            "camera": number,
            "hangs": not number,
            "wanted": TAKEN,
            "rate": round((one.frames - before[number]) / wall, 3),
            "passed_over": one.camera.counts.passed_over,
            "seconds": round(wall, 1),
            "processors": round(share, 2),
            "load": round(load, 1),
            "hardware": hardware(torch.device("cpu")),
        }


def main() -> None:
    """Measure both models."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--cores", type=int, default=2)
    given = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: given.cores])
    torch.set_num_threads(given.cores)
    leave_cores_to_decoders()
    ours, theirs = multiprocessing.Pipe()
    player = multiprocessing.get_context("spawn").Process(target=play, args=(theirs,), daemon=True)
    player.start()
    url = f"http://127.0.0.1:{ours.recv()}"
    models = {"embedded": load_encoder("embedded", device="cpu"), "ViT-B/32": random_vit_b32()}
    rows = (row for name, model in models.items() for row in measured(name, model, url, given.seconds))
    write(RESULTS / "cameras.csv", rows)
    player.kill()


if __name__ == "__main__":
    main()

"""What thousands of streams in one service cost: memory, disk, start, close, and the first answer of a cold stream.

    python benchmarks/streams.py                              writes benchmarks/results/serve-streams.csv
    python benchmarks/streams.py --streams 100 --methods pta --active 5 --out /tmp     the short form

C = 1000 classes, d = 512. Each stream learns 24 samples of 20 classes. They come over several connections, a few per
request, one stream after another and then again from the first, so that all streams are active and none for long. The
last requests are spread over `--active` seconds, in which the bytes that are written per second are measured.
"""

import argparse
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from result_file import RESULTS, Row, write
from serve_load import Server, infer, send_all
from synthetic import clip_like

from pta.data.features import load_features
from pta.measure.provenance import hardware
from pta.serve.journal.journal import Journal
from pta.serve.streams.history import History
from pta.serve.streams.past import Past
from pta.serve.streams.served_model import ServedModel
from pta.serve.streams.stage import one_thread

CLASSES, DIM = 1000, 512
LEARNED, SAMPLES = 20, 24  # classes and samples of a stream
PER_REQUEST = 8
PROCESSES, CONNECTIONS = 2, 8  # of clients, and connections of each
NOISE = 0.3  # of a sample near its anchor, whose probability is then above 0.99
COLD = 200  # streams that are asked after a start
GIGABYTE = 10**9
GOALS = {  # for 10,000 streams of pta
    "memory": f"at most {GIGABYTE}",
    "disk": f"at most {GIGABYTE}",
    "start": "at most 5",
    "close": "at most 10",
    "cold": "at most 50",
}
JOURNAL_FILES = ("journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm", "journal.count")


class Streams:
    """So many streams of a service, and the requests that fill them."""

    def __init__(self, folder: Path, method: str, streams: int) -> None:
        self.folder, self.method, self.streams = folder, method, streams
        folder.mkdir()
        classifier, _ = clip_like(CLASSES, DIM, 1)
        self.anchors = classifier.anchors.numpy()
        self.file = folder / "synthetic.npz"
        names = np.array(classifier.class_names)
        np.savez(self.file, image_features=self.anchors[:1], text_features=self.anchors, classnames=names)

    def serve(self) -> Server:
        """The service."""
        given = ("--features-only", str(self.file), "--method", self.method, "--auto-create", str(self.streams + 1))
        return Server(self.folder, *given)

    def samples(self, stream: int) -> NDArray[np.float32]:
        """All samples of a stream: one near each of its anchors, and some more."""
        random = np.random.default_rng([1, stream])
        classes = random.permutation(CLASSES)[:LEARNED]
        near = self.anchors[np.resize(classes, SAMPLES)]
        noise = random.standard_normal((SAMPLES, DIM)) / np.sqrt(DIM)
        return (near + NOISE * noise).astype(np.float32)

    def requests(self, first: int, turns: range) -> Iterator[bytes]:
        """Some requests of every PROCESSES-th stream."""
        for turn in turns:
            for stream in range(first, self.streams, PROCESSES):
                rows = self.samples(stream)[turn * PER_REQUEST : (turn + 1) * PER_REQUEST]
                yield infer("FP32", "features", rows.shape, rows.tobytes(), stream=_name(stream))

    def send(self, server: Server, turns: range, seconds: float = 0.0) -> float:
        """Send these requests of all streams, spread over some seconds; how long it took."""
        pause = PROCESSES * seconds / (self.streams * len(turns))
        began = time.perf_counter()
        with multiprocessing.get_context("fork").Pool(PROCESSES) as pool:
            pool.map(partial(self._send, server.port, turns, pause), range(PROCESSES), chunksize=1)
        return time.perf_counter() - began

    def _send(self, port: int, turns: range, pause: float, first: int) -> None:
        send_all(port, self.requests(first, turns), CONNECTIONS, pause)

    def ask_cold(self, server: Server) -> dict[int, float]:
        """The seconds of the first answer of some streams, one after another."""
        chosen = np.random.default_rng(2).permutation(self.streams)[:COLD].tolist()
        rows = self.anchors[:1]
        made = partial(infer, "FP32", "features", rows.shape, rows.tobytes())
        send_all(server.port, [made(stream="default")] * 10, 1)  # warms up what streams share
        taken = send_all(server.port, (made(stream=_name(stream)) for stream in chosen), 1)
        return dict(zip(chosen, taken.tolist(), strict=True))

    def replay_alone(self, data: Path, streams: list[int]) -> dict[int, float]:
        """The seconds that the replay of each stream takes, without a service."""
        served = ServedModel(load_features(self.file).classifier, self.method)
        with Journal.open(data, served.identity) as journal, one_thread("replay") as alone:
            numbers = journal.streams()

            def replay(stream: int) -> float:
                number = numbers[_name(stream)]
                began = time.perf_counter()
                past = Past(served, journal, number)
                past.replayed(History.of(journal.operations(number)), past.last)
                return time.perf_counter() - began

            alone.submit(replay, streams[0]).result()  # warms it up
            return {stream: alone.submit(replay, stream).result() for stream in streams}


def measured(one: Streams, active: float) -> Iterator[Row]:
    """The rows of a method and a number of streams."""
    row = partial(_row, one)
    turns = SAMPLES // PER_REQUEST
    rows = one.anchors[:1]
    with one.serve() as server:
        send_all(server.port, [infer("FP32", "features", rows.shape, rows.tobytes())] * 20, 1)
        empty = server.memory()
        seconds = one.send(server, range(turns - 1))
        samples = one.streams * PER_REQUEST * (turns - 1)
        yield row("samples per second while the streams are filled", samples / seconds, "samples per second")
        before = server.written()
        seconds = one.send(server, range(turns - 1, turns), active)
        yield row("written while all streams are active", (server.written() - before) / seconds, "bytes per second")
        yield row("requests meanwhile", one.streams / seconds, "requests per second")
        yield row("memory beyond that of an empty service", server.memory() - empty, "bytes", "memory")
        yield row("peak of the memory beyond that of an empty service", server.memory("VmHWM") - empty, "bytes")
        if (loaded := server.metric("pta_streams_loaded")) is not None:
            yield row("streams in memory", loaded, "streams")
        closing = server.close()
    yield row("close", closing, "s", "close")
    yield row("data folder beyond the journal", _disk_bytes(server.data, journal=False), "bytes", "disk")
    yield row("journal", _disk_bytes(server.data, journal=True), "bytes")
    imports = _seconds_to_import()
    with one.serve() as server:
        yield row("imports of torch and numba alone", imports, "s")
        yield row("start until ready, beyond these imports", server.seconds_to_ready - imports, "s", "start")
        cold = one.ask_cold(server)
    alone = one.replay_alone(server.data, list(cold))
    for what, seconds_of, goal in (
        ("first answer of a cold stream", cold, ""),
        ("its replay alone", alone, ""),
        ("first answer beyond the replay", {stream: taken - alone[stream] for stream, taken in cold.items()}, "cold"),
    ):
        values = [1000 * taken for taken in seconds_of.values()]
        yield row(f"{what}, p50", statistics.median(values), "ms", goal)
        yield row(f"{what}, worst", max(values), "ms", goal)


def _name(stream: int) -> str:
    return f"camera-{stream}"


def _row(one: Streams, what: str, value: float, unit: str, goal: str = "") -> Row:
    is_goal = goal and (one.method, one.streams) == ("pta", 10_000)
    return {
        "method": one.method,
        "streams": one.streams,
        "what": what,
        "value": float(f"{value:.4g}"),
        "unit": unit,
        "goal": GOALS[goal] if is_goal else "",
        "hardware": hardware(),
    }


def _disk_bytes(data: Path, *, journal: bool) -> int:
    """Blocks that files and folders take on the disk: those of the journal, or all others."""
    files = [path for path in data.rglob("*") if (path.name in JOURNAL_FILES) == journal]
    return sum(512 * path.stat().st_blocks for path in files)


def _seconds_to_import() -> float:
    """What a bare process takes for the two large packages that a service imports."""
    taken = []
    for _ in range(3):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import torch, numba"], check=True)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def all_rows(folder: Path, methods: list[str], counts: list[int], active: float) -> Iterator[Row]:
    """The rows of serve-streams.csv."""
    for method in methods:
        for streams in counts:
            began = time.perf_counter()
            print(f"{method}, {streams:,} streams", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory(dir=folder) as own:  # so that the disk is free again
                yield from measured(Streams(Path(own) / "service", method, streams), active)
            print(f"took {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)


def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--methods", nargs="+", default=["pta", "wpta"])
    parser.add_argument("--active", type=float, default=65.0, help="seconds in which written bytes are counted")
    parser.add_argument("--folder", type=Path, help="where the data is written: a folder on the disk in question")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    chosen = arguments.folder, arguments.methods, arguments.streams, arguments.active
    write(arguments.out / "serve-streams.csv", all_rows(*chosen))


if __name__ == "__main__":
    main()

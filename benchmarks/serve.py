"""What `pta serve` costs: processor time per request, answers per second with and without a journal, replay, rewind.

    python benchmarks/serve.py                 writes benchmarks/results/serve-latency.csv and serve-journal.csv
    python benchmarks/serve.py --seconds 1     the short form, about three minutes

C = 1000 classes, d = 512, synthetic features, binary requests of one sample. Servers that are compared run at the same
time and are measured in turn. A ratio is the median over the turns: trust the ratios, not the rates.
"""

import argparse
import io
import statistics
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from result_file import RESULTS, Row, write
from serve_load import Load, Server, drive, infer
from synthetic import clip_like

from pta import PTA
from pta.data.fashion import load_fashion_test
from pta.data.features import load_features
from pta.measure.provenance import hardware
from pta.serve.journal.journal import Journal
from pta.serve.journal.rows import NewRequest
from pta.serve.streams.answering import answer, rounded, score
from pta.serve.streams.served_model import ServedModel, rule_of
from pta.serve.streams.service import Service

CLASSES, DIM, VARIETY = 1000, 512, 512
TURNS = 7  # of a second rather than one of many: others who use the machine come and go
CLIENTS = (1, 16, 64)
PICTURE_CLIENTS = 16
REWOUND = 10_000  # samples
GOALS = {"cpu_ms": 0.3, "pictures": 0.95, "features": 0.7}


class Benchmark:
    """The synthetic features, the folder of all servers, and the seconds of one measurement."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder, self.seconds = folder, seconds
        classifier, self.features = clip_like(CLASSES, DIM, VARIETY)
        sent = self.features.numpy()
        self.requests = [infer("FP32", "features", [1, DIM], row.tobytes()) for row in sent]
        file = folder / "synthetic.npz"
        texts, names = classifier.anchors.numpy(), np.array(classifier.class_names)
        np.savez(file, image_features=sent[:1], text_features=texts, classnames=names)
        self.classifier = load_features(file).classifier
        self.serve_features = ("--features-only", str(file), "--method", "pta")

    # -- answers -------------------------------------------------------------------------------------------------------

    def latency(self) -> Iterator[Row]:
        """The rows of serve-latency.csv."""
        with ExitStack() as stack:
            off = stack.enter_context(Server(self.folder / "off", *self.serve_features, "--no-journal"))
            on = stack.enter_context(Server(self.folder / "on", *self.serve_features))
            yield self._processor_time(off)
            for clients in CLIENTS:
                yield from self._with_and_without_journal(off, on, clients)
        yield from self._pictures()

    def _processor_time(self, server: Server) -> Row:
        server.load(self.requests, 1, self.seconds)  # warms it up
        before = server.cpu_seconds()
        load = server.load(self.requests, 1, 2 * self.seconds)
        per_request = (server.cpu_seconds() - before) / len(load.seconds)
        adapter, samples = PTA(self.classifier), self.features.split(1)
        written, rule = [rounded(sample.numpy()) for sample in samples], rule_of(adapter)
        adapter.step(self.features)
        step = _cpu_ms(adapter.step, samples)
        answering = _cpu_ms(lambda row: answer(adapter, score(row, self.classifier, rule), learn=True), written)
        times = {"step_cpu_ms": step, "answering_cpu_ms": answering}
        beyond = {"cpu_ms_beyond_step": round(1000 * per_request - step, 3), "goal": GOALS["cpu_ms"]}
        return _row("features", "off", 1, load) | times | beyond

    def _with_and_without_journal(self, off: Server, on: Server, clients: int) -> Iterator[Row]:
        """The bound of a journal is what it answers without one, or one group per commit with every client in it."""
        ratios, loads = [], []
        for _ in range(TURNS):
            without, journalled = (server.load(self.requests, clients, self.seconds) for server in (off, on))
            bound = min(without.per_second, clients / statistics.median(self.commit_seconds(1)))
            ratios.append(journalled.per_second / bound)
            loads.append((without, journalled))
        without, journalled = (_median(turns) for turns in zip(*loads, strict=True))
        yield _row("features", "off", clients, without)
        yield _row("features", "on", clients, journalled) | _of(ratios, GOALS["features"])

    def _pictures(self) -> Iterator[Row]:
        images = load_fashion_test().images[:VARIETY]
        requests = [infer("BYTES", "image", [1], _png(image)) for image in images]
        model = ("--model", "embedded", "--classes", ",".join(load_fashion_test().class_names))
        ratios, loads = [], []
        with (
            Server(self.folder / "clip", *model, "--method", "clip", "--no-journal") as clip,
            Server(self.folder / "pta", *model, "--method", "pta") as pta,
        ):
            for server in (clip, pta):
                server.load(requests, PICTURE_CLIENTS, self.seconds)
            for _ in range(TURNS):
                loads.append([server.load(requests, PICTURE_CLIENTS, self.seconds) for server in (clip, pta)])
                ratios.append(loads[-1][1].per_second / loads[-1][0].per_second)
        plain, adapted = (_median(turns) for turns in zip(*loads, strict=True))
        yield _row("pictures", "off", PICTURE_CLIENTS, plain, "clip")
        yield _row("pictures", "on", PICTURE_CLIENTS, adapted) | _of(ratios, GOALS["pictures"])

    # -- the journal ---------------------------------------------------------------------------------------------------

    def journal(self) -> Iterator[Row]:
        """The rows of serve-journal.csv."""
        yield _figure("commit, group of 1, p50", 1000 * statistics.median(self.commit_seconds(1)), "ms")
        yield _figure("commit, group of 64, p50", 1000 * statistics.median(self.commit_seconds(64)), "ms")
        yield from self._bytes()
        yield from self._replay("replay, journal of 64 clients", 64, REWOUND, "at least 10000")
        yield from self._replay("replay, groups of 1", 1, 1_000)
        yield from self._rewind()

    def commit_seconds(self, size: int, commits: int = 50) -> list[float]:
        """How long each commit of a group takes."""
        taken = []
        with tempfile.TemporaryDirectory(dir=self.folder) as folder, Journal.open(Path(folder), {}) as journal:
            stream = journal.create("default")
            for number in range(commits):
                group = self._group(stream, number, size)
                began = time.perf_counter()
                journal.commit(group, None)
                taken.append(time.perf_counter() - began)
        return taken

    def _group(self, stream: int, number: int, size: int) -> list[NewRequest]:
        rows = self.features[: max(size, 1)].numpy().astype(np.float16)
        ids = ((number * size + one).to_bytes(16, "little") for one in range(size))
        return [NewRequest(stream, name, name, None, rows[one : one + 1], [b"\0" * 8]) for one, name in enumerate(ids)]

    def _bytes(self) -> Iterator[Row]:
        for size, commits in ((1, 20), (64, 5)):
            folder = self.folder / f"bytes-{size}"
            folder.mkdir()
            with Journal.open(folder, {}) as journal:
                stream = journal.create("default")
                journal.checkpoint()
                wal = folder / "journal.sqlite-wal"
                for number in range(commits):
                    journal.commit(self._group(stream, number, size), None)
                yield _figure(f"WAL per commit, group of {size}", wal.stat().st_size / commits, "bytes")
        with Server(self.folder / "sizes", *self.serve_features) as server:
            samples = self._learn(server, 64, 2_000)
        size = (server.data / "journal.sqlite").stat().st_size  # the last to close it writes a checkpoint
        yield _figure("database per sample after a checkpoint", size / samples, "bytes", "at most 1300")

    def _learn(self, server: Server, clients: int, samples: int) -> int:
        """Let clients send at least so many samples; how many were learned."""
        while (learned := server.ask("GET", "/streams/default")["position"]) < samples:
            server.load(self.requests, clients, self.seconds)
        return int(learned)

    def _replay(self, name: str, clients: int, samples: int, goal: str = "") -> Iterator[Row]:
        """A killed service begins again without its snapshots, so that it learns the whole journal again."""
        with Server(self.folder / f"replay-{clients}", *self.serve_features) as server:
            learned = self._learn(server, clients, samples)
            server.kill()
        for snapshot in server.data.rglob("*.safetensors"):
            snapshot.unlink()
        served, empty = ServedModel(self.classifier, "pta"), self.folder / f"empty-{clients}"
        nothing, everything = (
            _recovery(served, data, samples) for data, samples in ((empty, 0), (server.data, learned))
        )
        for clock, unit in enumerate(("samples per second", "samples per second of processor time")):
            yield _figure(name, learned / (everything[clock] - nothing[clock]), unit, goal)

    def _rewind(self) -> Iterator[Row]:
        """Back to a moment that all samples lie before but a few, so that they are replayed, while a client asks on."""
        with Server(self.folder / "rewind", *self.serve_features) as server:
            learned = self._learn(server, 64, REWOUND)
            for snapshot in server.data.rglob("*.safetensors"):
                snapshot.unlink()
            seen: list[np.ndarray] = []
            asking = threading.Thread(
                target=lambda: seen.append(drive(server.port, self.requests, 1, 4 + self.seconds))
            )
            asking.start()
            began = time.perf_counter()
            server.ask("POST", "/streams/default/rewind", {"sequence": REWOUND})
            taken = time.perf_counter() - began
            asking.join()
        meanwhile = Load(0, seen[0][np.cumsum(seen[0]) <= taken])  # one client, whose answers came one after the other
        yield _figure(f"rewind that replays {REWOUND:,} of {learned:,} samples", taken, "s", "at most 2")
        yield _figure("answer during the rewind, p50", meanwhile.ms(50), "ms")
        yield _figure("answer during the rewind, p99", meanwhile.ms(99), "ms")


def _cpu_ms(call: Callable[[Any], object], inputs: Sequence[Any]) -> float:
    """Processor time per call."""
    began = time.process_time()
    for one in inputs:
        call(one)
    return round(1000 * (time.process_time() - began) / len(inputs), 3)


def _recovery(served: ServedModel, data: Path, samples: int) -> tuple[float, float]:
    """The seconds and the processor time until a service of a data folder is ready."""
    began = time.perf_counter(), time.process_time()
    service = Service.open(served, data)
    taken = time.perf_counter() - began[0], time.process_time() - began[1]
    if service.summary("default")["position"] < samples:
        raise RuntimeError("samples are missing after the replay")
    service.close()
    return taken


def _row(kind: str, journal: str, clients: int, load: Load, method: str = "pta") -> Row:
    return {
        "input": kind,
        "method": method,
        "journal": journal,
        "clients": clients,
        "answers_per_second": round(load.per_second, 1),
        "p50_ms": round(load.ms(50), 2),
        "p99_ms": round(load.ms(99), 2),
        "step_cpu_ms": "",
        "answering_cpu_ms": "",
        "cpu_ms_beyond_step": "",
        "of_bound": "",
        "least": "",
        "most": "",
        "goal": "",
        "hardware": hardware(),
    }


def _of(ratios: list[float], goal: float) -> Row:
    least, most = (round(one, 3) for one in (min(ratios), max(ratios)))
    return {"of_bound": round(statistics.median(ratios), 3), "least": least, "most": most, "goal": goal}


def _median(loads: tuple[Load, ...]) -> Load:
    """All latencies, and the median of the rates."""
    return Load(statistics.median(load.per_second for load in loads), np.concatenate([load.seconds for load in loads]))


def _figure(what: str, value: float, unit: str, goal: str = "") -> Row:
    return {"what": what, "value": float(f"{value:.4g}"), "unit": unit, "goal": goal, "hardware": hardware()}


def _png(image: np.ndarray) -> bytes:
    """A picture as an element of a binary BYTES tensor: its length, then its bytes."""
    file = io.BytesIO()
    Image.fromarray(image).save(file, "PNG")
    return struct.pack("<I", file.tell()) + file.getvalue()


def main() -> None:
    """Measure and write both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--seconds", type=float, default=5.0, help="of one measurement")
    parser.add_argument("--folder", type=Path, help="where the journals are written: a folder on the disk in question")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        benchmark = Benchmark(Path(folder), arguments.seconds)
        write(arguments.out / "serve-latency.csv", benchmark.latency())
        write(arguments.out / "serve-journal.csv", benchmark.journal())


if __name__ == "__main__":
    main()

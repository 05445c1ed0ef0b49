"""What `pta serve` costs beside naive services: answers per second, processor time, the journal, replay and rewind.

    python benchmarks/serve.py                 writes benchmarks/results/serve-latency.csv and serve-journal.csv
    python benchmarks/serve.py --seconds 1     the short form
    python benchmarks/serve.py --only journal  only one of the two; the other is `latency`

C = 1000 classes, d = 512, synthetic features, binary requests of one sample. Servers that are compared run at the same
time and are measured in turn within each round. A ratio is the median over the rounds: trust the ratios, not the rates.
"""

import argparse
import io
import os
import statistics
import struct
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from result_file import RESULTS, Row, write
from serve_load import Load, NaiveServer, Server, ServerProcess, drive, infer
from synthetic import clip_like

from pta.data.fashion import load_fashion_test
from pta.data.features import load_features
from pta.measure.provenance import hardware
from pta.serve.journal.journal import Journal
from pta.serve.journal.rows import NewRequest
from pta.serve.streams.served_model import ServedModel
from pta.serve.streams.service import Service

CLASSES, DIM, VARIETY = 1000, 512, 512
METHODS = ("pta", "wpta")  # the second is the default of the service
ROUNDS = 7  # of a second rather than one of many: others who use the machine come and go
CLIENTS = (1, 16, 64)
PICTURE_CLIENTS = 16
REWOUND = 10_000  # samples
NAIVE, NAIVE_DURABLE, OFF, ON = "naive zero-shot", "naive durable", "ours without journal", "ours"
GOALS = {1: 0.45, 16: 0.8, 64: 1.0}  # answers per second of pta, as a share of the naive durable service's
GOAL_OF_PICTURES = 0.95  # of zero-shot without a journal
Name = tuple[str, str]
"""The method of a server, and what kind it is."""
Rounds = Sequence[Mapping[Name, Load]]


class Benchmark:
    """The synthetic features, the folder of all servers, and the seconds of one measurement."""

    def __init__(self, folder: Path, seconds: float, rounds: int) -> None:
        self.folder, self.seconds, self.rounds = folder, seconds, rounds
        classifier, self.features = clip_like(CLASSES, DIM, VARIETY)
        sent = self.features.numpy()
        self.requests = [infer("FP32", "features", [1, DIM], row.tobytes()) for row in sent]
        self.file = folder / "synthetic.npz"
        texts, names = classifier.anchors.numpy(), np.array(classifier.class_names)
        np.savez(self.file, image_features=sent[:1], text_features=texts, classnames=names)
        self.classifier = load_features(self.file).classifier

    def serve(self, name: str, method: str, *others: str) -> Server:
        """`pta serve` of the features, with its data in a folder of this name."""
        return Server(self.folder / name, "--features-only", str(self.file), "--method", method, *others)

    # -- answers -------------------------------------------------------------------------------------------------------

    def latency(self) -> Iterator[Row]:
        """The rows of serve-latency.csv."""
        with ExitStack() as stack:
            servers: dict[Name, ServerProcess] = {
                ("clip", NAIVE): NaiveServer(self.folder / "naive", self.file, durable=False),
                ("clip", NAIVE_DURABLE): NaiveServer(self.folder / "durable", self.file, durable=True),
            }
            for method in METHODS:
                servers[method, OFF] = self.serve(f"{method}-off", method, "--no-journal")
                servers[method, ON] = self.serve(f"{method}-on", method)
            for server in servers.values():
                stack.enter_context(server)
                server.load(self.requests, CLIENTS[-1], self.seconds)  # warms it up
            for clients in CLIENTS:
                yield from self._compared(servers, clients)
        yield from self._pictures()

    def _compared(self, servers: Mapping[Name, ServerProcess], clients: int) -> Iterator[Row]:
        rounds, syncs = [], []
        for _ in range(self.rounds):
            syncs.append(_fsync_seconds(self.folder))
            rounds.append({name: one.load(self.requests, clients, self.seconds) for name, one in servers.items()})
        common = {"clients": clients, "fsync_ms": round(1000 * statistics.median(syncs), 3)}
        for method, kind in servers:
            row = _row("features", method, kind, rounds) | common
            if kind != NAIVE_DURABLE:
                row |= _share("of_naive_durable", rounds, (method, kind), ("clip", NAIVE_DURABLE))
            yield row | ({"goal": GOALS[clients]} if (method, kind) == ("pta", ON) else {})

    def _pictures(self) -> Iterator[Row]:
        images = load_fashion_test().images[:VARIETY]
        requests = [infer("BYTES", "image", [1], _png(image)) for image in images]
        model = ("--model", "embedded", "--classes", ",".join(load_fashion_test().class_names))
        plain, adapted = ("clip", OFF), ("pta", ON)
        with (
            Server(self.folder / "clip", *model, "--method", "clip", "--no-journal") as clip,
            Server(self.folder / "pta", *model, "--method", "pta") as pta,
        ):
            for server in (clip, pta):
                server.load(requests, PICTURE_CLIENTS, self.seconds)
            rounds = [
                {
                    name: server.load(requests, PICTURE_CLIENTS, self.seconds)
                    for name, server in ((plain, clip), (adapted, pta))
                }
                for _ in range(self.rounds)
            ]
        common = {"clients": PICTURE_CLIENTS}
        yield _row("pictures", *plain, rounds) | common
        share = _share("of_zero_shot", rounds, adapted, plain)
        yield _row("pictures", *adapted, rounds) | common | share | {"goal": GOAL_OF_PICTURES}

    # -- the journal ---------------------------------------------------------------------------------------------------

    def journal(self) -> Iterator[Row]:
        """The rows of serve-journal.csv."""
        yield _figure("fsync of 4 kB, p50", 1000 * _fsync_seconds(self.folder), "ms")
        yield _figure("commit, group of 1, p50", 1000 * statistics.median(self.commit_seconds(1)), "ms")
        yield _figure("commit, group of 64, p50", 1000 * statistics.median(self.commit_seconds(64)), "ms")
        yield from self._bytes()
        for method in METHODS:
            goals = ("at least 15000", "at least 5000") if method == "pta" else ("", "")
            yield from self._replay("replay, journal of 64 clients", method, 64, REWOUND, goals[0])
            yield from self._replay("replay, groups of 1", method, 1, 1_000, goals[1])
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
        for size, commits, goal in ((1, 20, "at most 45000"), (64, 5, "")):
            folder = self.folder / f"bytes-{size}"
            folder.mkdir()
            with Journal.open(folder, {}) as journal:
                stream = journal.create("default")
                journal.checkpoint()
                wal = folder / "journal.sqlite-wal"
                for number in range(commits):
                    journal.commit(self._group(stream, number, size), None)
                yield _figure(f"WAL per commit, group of {size}", wal.stat().st_size / commits, "bytes", goal)
        with self.serve("sizes", "pta") as server:
            samples = self._learn(server, 64, 2_000)
        size = (server.data / "journal.sqlite").stat().st_size  # the last to close it writes a checkpoint
        yield _figure("database per sample after a checkpoint", size / samples, "bytes", "at most 1300")

    def _learn(self, server: Server, clients: int, samples: int) -> int:
        """Let clients send at least so many samples; how many were learned."""
        while (learned := server.ask("GET", "/streams/default")["position"]) < samples:
            server.load(self.requests, clients, self.seconds)
        return int(learned)

    def _replay(self, name: str, method: str, clients: int, samples: int, goal: str) -> Iterator[Row]:
        """A killed service begins again without its snapshots, so that it learns the whole journal again."""
        with self.serve(f"replay-{method}-{clients}", method) as server:
            learned = self._learn(server, clients, samples)
            server.kill()
        for snapshot in server.data.rglob("*.safetensors"):
            snapshot.unlink()
        served, empty = ServedModel(self.classifier, method), self.folder / f"empty-{method}-{clients}"
        _recovery(served, empty / "first", 0)  # what a process does once would be taken for time without a replay
        nothing = _recovery(served, empty / "second", 0)
        everything = _recovery(served, server.data, learned)
        units = (("samples per second", ""), ("samples per second of processor time", goal))
        for (unit, own_goal), before, after in zip(units, nothing, everything, strict=True):
            yield _figure(name, learned / (after - before), unit, own_goal, method)

    def _rewind(self) -> Iterator[Row]:
        """Back to a moment that all samples lie before but a few, so that they are replayed, while a client asks on."""
        with self.serve("rewind", "pta") as server:
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


def _fsync_seconds(folder: Path) -> float:
    """The median of a hundred appends of 4 kB to a file, each with its fsync."""
    taken = []
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        for _ in range(100):
            began = time.perf_counter()
            os.write(file.fileno(), bytes(4096))
            os.fsync(file.fileno())
            taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def _recovery(served: ServedModel, data: Path, samples: int) -> tuple[float, float]:
    """The seconds and the processor time until a service of a data folder has its stream in memory."""
    began = time.perf_counter(), time.process_time()
    service = Service.open(served, data)
    position = service.summary("default")["position"]  # a stream is loaded when it is asked for
    taken = time.perf_counter() - began[0], time.process_time() - began[1]
    if position < samples:
        raise RuntimeError("samples are missing after the replay")
    service.close()
    return taken


def _row(kind: str, method: str, server: str, rounds: Rounds) -> Row:
    """All latencies, and the medians of the other figures."""
    loads = [one[method, server] for one in rounds]
    latencies = Load(0, np.concatenate([load.seconds for load in loads]))
    return {
        "input": kind,
        "method": method,
        "server": server,
        "clients": "",
        "answers_per_second": round(statistics.median(load.per_second for load in loads), 1),
        "p50_ms": round(latencies.ms(50), 2),
        "p99_ms": round(latencies.ms(99), 2),
        "cpu_ms_per_request": round(statistics.median(load.cpu_ms for load in loads), 3),
        "mean_group": round(statistics.median(load.group for load in loads), 1) or "",
        "of_naive_durable": "",
        "of_zero_shot": "",
        "least": "",
        "most": "",
        "goal": "",
        "fsync_ms": "",
        "hardware": hardware(),
    }


def _share(column: str, rounds: Rounds, name: Name, of: Name) -> Row:
    """The rate of a server divided by that of another one in the same round."""
    ratios = [one[name].per_second / one[of].per_second for one in rounds]
    least, median, most = (round(one, 3) for one in (min(ratios), statistics.median(ratios), max(ratios)))
    return {column: median, "least": least, "most": most}


def _figure(what: str, value: float, unit: str, goal: str = "", method: str = "pta") -> Row:
    rounded = float(f"{value:.4g}")
    return {"what": what, "method": method, "value": rounded, "unit": unit, "goal": goal, "hardware": hardware()}


def _png(image: np.ndarray) -> bytes:
    """A picture as an element of a binary BYTES tensor: its length, then its bytes."""
    file = io.BytesIO()
    Image.fromarray(image).save(file, "PNG")
    return struct.pack("<I", file.tell()) + file.getvalue()


def main() -> None:
    """Measure and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--only", choices=("latency", "journal"), help="write one of the two tables")
    parser.add_argument("--seconds", type=float, default=5.0, help="of one measurement")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--folder", type=Path, help="where the journals are written: a folder on the disk in question")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        benchmark = Benchmark(Path(folder), arguments.seconds, arguments.rounds)
        if arguments.only != "journal":
            write(arguments.out / "serve-latency.csv", benchmark.latency())
        if arguments.only != "latency":
            write(arguments.out / "serve-journal.csv", benchmark.journal())


if __name__ == "__main__":
    main()

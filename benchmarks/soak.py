"""A million samples through one service of 200 streams, of which few fit into memory: does it grow?

    python benchmarks/soak.py                      writes benchmarks/results/serve-soak.csv
    python benchmarks/soak.py --samples 100000 --every 10000 --out /tmp     the short form

C = 1000 classes, d = 512. Requests have 64 samples. Each connection sends a few of them to one stream before it goes on
to the next, because a stream that is not in memory is replayed first. Every fourth request has an id, and every
sixteenth is sent again later: it is learned once. At the end the samples of all streams are counted.
"""

import argparse
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from result_file import RESULTS, Row, write
from serve_load import Server, has_option, infer, send_all
from synthetic import clip_like

from pta.measure.provenance import hardware

CLASSES, DIM, VARIETY = 1000, 512, 4096
STREAMS, BATCH = 200, 64
BURST = 16  # requests that a stream gets before the next one has its turn
PROCESSES, CONNECTIONS = 2, 2  # of clients, and connections of each
WITH_ID, SENT_AGAIN = 4, 16  # one request in so many
WARM_UP = 0.25  # of all samples: caches and the journal's log are full by then
GOAL = "at most 1.02"


class Soak:
    """A service, and the requests that it is sent, by their numbers."""

    def __init__(self, folder: Path, method: str, memory: str) -> None:
        self.classifier, features = clip_like(CLASSES, DIM, VARIETY)
        self.features = features.numpy()
        file = folder / "synthetic.npz"
        texts, names = self.classifier.anchors.numpy(), np.array(self.classifier.class_names)
        np.savez(file, image_features=self.features[:1], text_features=texts, classnames=names)
        self.arguments = ["--features-only", str(file), "--method", method, "--auto-create", str(STREAMS + 1)]
        if has_option("stream-memory"):
            self.arguments += ["--stream-memory", memory]
        self.folder = folder

    def request(self, number: int) -> bytes:
        """The same request whenever it is made."""
        random = np.random.default_rng([1, number])
        rows = self.features[random.integers(VARIETY, size=BATCH)]
        stream = f"camera-{number // BURST % STREAMS}"
        id = None if number % WITH_ID else f"request-{number}"
        return infer("FP32", "features", rows.shape, rows.tobytes(), id=id, stream=stream, source=f"door-{number % 3}")

    def requests(self, numbers: range) -> Iterator[bytes]:
        """Some requests, and some of the last burst again."""
        for number in numbers:
            yield self.request(number)
            if number % SENT_AGAIN == 0 and number >= BURST:
                yield self.request(number - BURST)

    def send(self, server: Server, first: int, last: int) -> float:
        """Send the requests between two numbers; the seconds that it took.

        Each process has bursts of its own, so that a stream's requests come one after another.
        """
        bursts = [range(start, min(start + BURST, last)) for start in range(first, last, BURST)]
        began = time.perf_counter()
        with multiprocessing.get_context("fork").Pool(PROCESSES) as pool:
            shares = [bursts[one::PROCESSES] for one in range(PROCESSES)]
            pool.map(partial(self._send, server.port), shares, chunksize=1)
        return time.perf_counter() - began

    def _send(self, port: int, bursts: list[range]) -> None:
        send_all(port, (one for burst in bursts for one in self.requests(burst)), CONNECTIONS)


def all_rows(soak: Soak, samples: int, every: int) -> Iterator[Row]:
    """The rows of serve-soak.csv."""
    settled = 0
    ends = [round(end / BATCH / BURST) * BURST for end in range(every, samples + 1, every)]  # requests
    with Server(soak.folder / "service", *soak.arguments) as server:
        for first, last in zip([0, *ends], ends, strict=False):
            seconds = soak.send(server, first, last)
            memory, loaded = server.memory(), server.metric("pta_streams_loaded")
            if not settled and last >= WARM_UP * ends[-1]:
                settled = memory
            print(f"{BATCH * last:,} samples", file=sys.stderr, flush=True)
            yield {
                "samples": BATCH * last,
                "samples_per_second": round(BATCH * (last - first) / seconds),
                "memory_bytes": memory,
                "of_memory_after_warm_up": round(memory / settled, 3) if settled else "",
                "goal": GOAL if last == ends[-1] else "",
                "streams_loaded": "" if loaded is None else round(loaded),
                "journal_bytes": sum(path.stat().st_size for path in server.data.glob("journal.sqlite*")),
                "hardware": hardware(),
            }
        learned = sum(stream["position"] for stream in server.ask("GET", "/streams")["streams"])
        if learned != BATCH * ends[-1]:
            raise SystemExit(f"{learned:,} samples were learned, and {BATCH * ends[-1]:,} were sent")
        print(f"closed in {server.close():.1f} s", file=sys.stderr)


def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--every", type=int, default=50_000, help="samples between two measurements")
    parser.add_argument("--method", default="pta")
    parser.add_argument("--stream-memory", default="64M", help="of the service, if it has this option")
    parser.add_argument("--folder", type=Path, help="where the data is written: a folder on the disk in question")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        soak = Soak(Path(folder), arguments.method, arguments.stream_memory)
        write(arguments.out / "serve-soak.csv", all_rows(soak, arguments.samples, arguments.every))


if __name__ == "__main__":
    main()

"""How much memory and time does the driver need to list 100 million samples?

    python benchmarks/cluster_listing.py [--samples 100000000]    writes results/cluster-listing.csv

Parquet files of 10 million rows each, with paths that are listed and never opened. Every line is a process of its own:
its largest resident memory, and what of that it had before it began to list. Time includes cutting into blocks, and
not writing them.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from result_file import RESULTS, Row, write

from pta.cluster.ray.listing import number_samples
from pta.core.modality import IMAGES
from pta.data.sources.table import list_samples
from pta.measure.provenance import hardware

PER_FILE, PER_GROUP, STREAMS = 10**7, 10**6, 10_000
KINDS = ("paths", "numbers", "streams", "csv")
CSV_ROWS = 200_000  # of what is listed one by one


def write_source(folder: Path, kind: str, samples: int) -> Path:
    """Paths, with numbers in another order or with streams that alternate."""
    if kind == "csv":
        (folder / "list.csv").write_text("path\n" + "\n".join(f"photos/{row:09d}.jpg" for row in range(CSV_ROWS)))
        return folder / "list.csv"
    cameras = pa.array([f"camera {number:05d}" for number in range(STREAMS)])
    for first in range(0, samples, PER_FILE):
        rows = np.arange(first, min(first + PER_FILE, samples))
        columns = {"path": pc.binary_join_element_wise("photos", pa.array(rows).cast(pa.string()), "/")}
        if "numbers" in kind:
            columns["number"] = pa.array((rows * 7_919_993) % samples)  # a prime: each number once
        if "streams" in kind:
            columns["camera"] = cameras.take(pa.array(rows % STREAMS))
        pq.write_table(pa.table(columns), folder / f"{first:012d}.parquet", row_group_size=PER_GROUP)
    return folder


def measured(source: Path, by: str | None) -> str:
    """List a source in this process: bytes before, bytes at most, seconds, samples, blocks."""
    before, began = _largest(), time.perf_counter()
    listing = number_samples(list_samples(str(source), IMAGES, by), None, labelled=False)
    listing = listing.cut(listing.block_size(1000))
    return f"{before} {_largest()} {time.perf_counter() - began:.1f} {len(listing)} {len(listing.blocks)}"


def _largest() -> int:
    """Of this program; `getrusage` would give that of the process that started it."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def lines(samples: int) -> Iterator[Row]:
    """A line for every kind of source."""
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as place:
            source = write_source(Path(place), kind, samples)
            call = [sys.executable, __file__, "--measure", str(source), "camera" if "streams" in kind else ""]
            said = subprocess.run(call, check=True, capture_output=True, text=True).stdout.split()
        before, largest, count = int(said[0]), int(said[1]), int(said[3])
        yield {
            "source": kind if kind == "csv" else f"parquet, {kind}",
            "samples": count,
            "largest_bytes": largest,
            "before_bytes": before,
            "bytes_per_sample": round((largest - before) / count, 1),
            "seconds": said[2],
            "blocks": said[4],
            "hardware": hardware(),
        }


def main() -> None:
    """Measure and write, or measure in this process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=10**8)
    parser.add_argument("--out", type=Path, default=RESULTS / "cluster-listing.csv")
    parser.add_argument("--measure", nargs=2, metavar=("SOURCE", "BY"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(measured(Path(given.measure[0]), given.measure[1] or None))
    else:
        write(given.out, lines(given.samples))


if __name__ == "__main__":
    main()

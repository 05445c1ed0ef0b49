"""Classes that come one after the other, or unevenly: StatA's protocol, batches of 128 and the last one dropped."""

from collections.abc import Iterator
from pathlib import Path
from statistics import stdev
from typing import Any

from result_file import Row

from finding.table import feature_files, mean
from pta import create_adapter
from pta.measure.stream import Stream
from pta.measure.stream_run import run_stream

SEEDS, BATCH = tuple(range(1, 11)), 128
STREAMS: dict[str, dict[str, Any]] = {
    "iid": {},
    "dirichlet 0.1": {"kind": "dirichlet", "gamma": 0.1},
    "dirichlet 0.01": {"kind": "dirichlet", "gamma": 0.01},
    "dirichlet 0.001": {"kind": "dirichlet", "gamma": 0.001},
    "separate": {"kind": "separate"},
}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "clip": ("clip", {}),
    "pta": ("pta", {}),
    "pta, h=1000, w=0.001": ("pta", {"h": 1000.0, "w": 0.001}),
    "tda": ("tda", {}),
}


def measure(folder: Path) -> Iterator[Row]:
    """Every stream and method, answering sample by sample and after a whole batch was learned."""
    for data in feature_files(folder):
        for name, own in STREAMS.items():
            stream = Stream(**own, drop_last=True)
            orders = [stream.order(data, seed, BATCH) for seed in SEEDS]
            for title, (method, parameters) in METHODS.items():
                for lookahead in (False, True):
                    found = []
                    for order in orders:
                        adapter = create_adapter(method, data.classifier, **parameters)
                        how: dict[str, Any] = {"batch": BATCH, "drop_last": True, "lookahead": lookahead}
                        found.append(run_stream(adapter, data.samples, data.labels, order, **how).accuracy or 0.0)
                    yield {
                        "dataset": data.name,
                        "stream": name,
                        "method": title,
                        "lookahead": "yes" if lookahead else "no",
                        "accuracy": mean(found),
                        "deviation": f"{stdev(found):.2f}",
                        "seeds": len(found),
                    }

"""Classes that come one after the other, or unevenly: StatA's protocol, batches of 128 and the last one dropped."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import stdev
from typing import Any

from result_file import Row

from finding.table import STREAMS, feature_files, mean, runs

SEEDS = tuple(range(1, 11))
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
            for title, method in METHODS.items():
                for lookahead in (False, True):
                    stream = replace(own, drop_last=True, lookahead=lookahead)
                    found = [run.accuracy or 0.0 for run in runs(data, *method, SEEDS, stream)]
                    yield {
                        "dataset": data.name,
                        "stream": name,
                        "method": title,
                        "lookahead": "yes" if lookahead else "no",
                        "accuracy": mean(found),
                        "deviation": f"{stdev(found):.2f}",
                        "seeds": len(found),
                    }

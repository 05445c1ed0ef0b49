"""What operators see of requests: one log line each, never with a token, a feature or a pixel, and Prometheus metrics.

The names of the metrics are documented in docs/serve.md and stay as they are.
"""

import asyncio
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from traceback import extract_tb
from typing import Any

import orjson
import torch
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pta import __version__
from pta.door.safe_text import printable
from pta.monitor.alarms import KINDS
from pta.serve.http.security import LogFormat
from pta.serve.requests import Result
from pta.serve.streams.service import Service

_LONGEST_PATH = 200


class AccessLog:
    """Writes lines to stderr, those of one turn of the event loop together."""

    def __init__(self, form: LogFormat) -> None:
        self._form = form
        self._lines: list[str] = []  # that are not written yet

    def request(self, number: int, method: str, path: str, stream: str | None, status: int, seconds: float) -> None:
        """A request was answered."""
        if self._form == "none":
            return
        fields = {"request": number, "method": method, "path": path[:_LONGEST_PATH], "stream": stream, "status": status}
        self._write({**fields, "ms": round(1000 * seconds, 3)})

    def failure(self, number: int, error: BaseException) -> None:
        """What went wrong inside, by its kind and places; its message could quote what a client sent."""
        places = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in extract_tb(error.__traceback__)]
        self._write({"request": number, "failure": type(error).__name__, "at": " ".join(places[-8:])})

    def _write(self, fields: dict[str, Any]) -> None:
        now = time.time()
        if self._form == "json":
            line = orjson.dumps({"time": round(now, 3), **fields}).decode()
        else:
            told = [f"{name}={value}" for name, value in fields.items() if value is not None]
            line = printable(f"{_clock(int(now))} {' '.join(told)}")
        if not self._lines:
            asyncio.get_running_loop().call_soon(self._flush)
        self._lines.append(f"{line}\n")

    def _flush(self) -> None:
        lines, self._lines = self._lines, []
        with suppress(OSError):  # nobody reads it any more
            sys.stderr.write("".join(lines))


@lru_cache(maxsize=1)
def _clock(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(second))


_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_SAMPLES = tuple(2**power for power in range(9))

MOST_STREAMS = 100
"""That are named, those with the most samples."""
_OF_STREAMS = {
    "pta_stream_position": ("position", "Learned samples in force."),
    "pta_stream_changed_ratio": ("changed", "Answers of the window that differ from zero-shot's."),
    "pta_stream_zero_shot_confidence": ("zero_shot_confidence", "Mean confidence of zero-shot in the window."),
    "pta_stream_answer_entropy_ratio": (
        "answer_entropy_ratio",
        "Entropy of the mean answer of the window, divided by that of zero-shot's.",
    ),
    "pta_stream_order": ("order", "Order statistic: about 1 for a shuffled stream."),
}


class _Registry(CollectorRegistry):
    """Without the series `_created`, which prometheus_client switches for the whole process alone."""

    def collect(self) -> Iterator[Metric]:
        for family in super().collect():
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family


class Metrics(Collector):
    """Counts requests, samples and commits in a registry of its own; the service is asked when they are read."""

    def __init__(self, service: Service, *, per_stream: bool = False) -> None:
        self._service, self._per_stream = service, per_stream
        self._registry = own = _Registry()
        ProcessCollector(registry=own)
        requests = Counter("pta_requests", "Requests answered.", ("route", "status"), registry=own)
        seconds = Histogram("pta_request_seconds", "Seconds per request.", ("route",), registry=own, buckets=_BUCKETS)
        samples = Counter("pta_samples", "Samples answered.", ("outcome",), registry=own)
        self._rejected = Counter("pta_rejected", "Answers marked as rejected.", registry=own)
        self._commits = Histogram(
            "pta_commit_seconds",
            "Seconds per commit of the journal.",
            registry=own,
            buckets=(0.00025, 0.0005, *_BUCKETS),
        )
        self._groups = Histogram("pta_group_samples", "Samples per commit.", registry=own, buckets=_SAMPLES)
        service.observe_commits(self._commit)
        # Looking a child up takes longer than counting.
        self._requests = cache(requests.labels)
        self._seconds = cache(seconds.labels)
        self._samples = cache(samples.labels)
        own.register(self)

    def request(self, route: str, status: int, seconds: float) -> None:
        """A request was answered; `route` is the pattern of its path."""
        self._requests(route, str(status)).inc()
        self._seconds(route).observe(seconds)

    def reply(self, reply: Result) -> None:
        """Samples were answered."""
        sequences = reply.outputs["sequence"].tolist()
        learned = len(sequences) - sequences.count(-1)
        if learned:
            self._samples("repeated" if reply.repeated else "learned").inc(learned)
        if learned < len(sequences):
            self._samples("not_learned").inc(len(sequences) - learned)
        if "rejected" in reply.outputs:
            self._rejected.inc(int(reply.outputs["rejected"].sum()))

    def _commit(self, seconds: float, samples: int) -> None:
        self._commits.observe(seconds)
        self._groups.observe(samples)

    def text(self) -> bytes:
        """Everything, as Prometheus reads it."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """What the service has now."""
        service = self._service
        yield GaugeMetricFamily("pta_ready", "1 if requests are taken.", value=service.ready)
        yield GaugeMetricFamily("pta_learning", "1 unless the service is read-only.", value=service.reason is None)
        yield GaugeMetricFamily("pta_queued_samples", "Samples that wait or are being answered.", value=service.queued)
        yield GaugeMetricFamily("pta_streams", "Streams.", value=service.streams_known)
        yield GaugeMetricFamily("pta_streams_loaded", "Streams in memory.", value=service.streams_loaded)
        yield GaugeMetricFamily("pta_journal_bytes", "Size of the journal.", value=service.journal_bytes)
        if (age := service.snapshot_age) is not None:
            yield GaugeMetricFamily("pta_snapshot_age_seconds", "Seconds since the newest snapshot.", value=age)
        build = {"version": __version__, "torch": torch.__version__, "python": platform.python_version()}
        build["method"] = service.shape.method
        info = GaugeMetricFamily("pta_build_info", "1; the labels say what runs.", labels=[*build])
        info.add_metric([*build.values()], 1)
        yield info
        if self._per_stream:
            yield from _stream_metrics(service.health(MOST_STREAMS))


def _stream_metrics(streams: list[dict[str, Any]]) -> Iterator[GaugeMetricFamily]:
    for name, (number, says) in _OF_STREAMS.items():
        family = GaugeMetricFamily(name, says, labels=("stream",))
        for stream in streams:
            family.add_metric((stream["name"],), stream[number])
        yield family
    standing = GaugeMetricFamily("pta_stream_alarm", "1 while the alarm stands.", labels=("stream", "kind"))
    for stream in streams:
        for kind in KINDS:
            standing.add_metric((stream["name"], kind), kind in stream["alarms"])
    yield standing

"""Service: named streams that share an encoder and a classifier; the state of each is the replay of its journal."""

import logging
import math
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import torch

from pta.door.files import exists, load_tensors
from pta.errors import StateMismatch, UserMistake, naming
from pta.methods.classes import require_growing
from pta.methods.state_file import ANCHORS
from pta.serve.journal.data_folder import keep_private
from pta.serve.journal.journal import Journal, JournalLike, written_identity
from pta.serve.journal.rows import NoJournal
from pta.serve.requests import Refused, Request, Result
from pta.serve.streams.alarm_rows import Clock
from pta.serve.streams.corrections import Corrections
from pta.serve.streams.live_stream import brief_summary, full_summary
from pta.serve.streams.operating import Operating
from pta.serve.streams.past import imported_adapter
from pta.serve.streams.pending import PendingRequests
from pta.serve.streams.pipeline import Pipeline
from pta.serve.streams.row_export import rows_after
from pta.serve.streams.served_model import ServedModel, ServiceSettings, Shape
from pta.serve.streams.stream_set import StreamSet

_log = logging.getLogger("pta.serve")
_ROUNDING = 1e-4  # of a unit vector: float32 text towers differ by some 1e-6 between processors


class Service(AbstractContextManager["Service"]):
    """Answers requests about samples, learns from them once they are in the journal, and undoes what was learned."""

    def __init__(self, served: ServedModel, journal: JournalLike, settings: ServiceSettings) -> None:
        names = served.classifier.class_names
        encoder = served.encoder
        fixed = settings.name, served.method, encoder is not None, settings.batch, journal.is_durable
        rejects = settings.reject_below is not None
        self.shape = Shape(served.classifier.dim, names, *fixed, rejects)
        self._journal, self._draining = journal, False
        self._end = math.inf  # of the time to save what was measured
        self._pending = PendingRequests(settings.queue)
        self._streams = StreamSet(served, journal, settings)
        self._pipeline = Pipeline(served, settings, journal, self._pending, self._streams)
        self._saving = self._pipeline.saving
        self._corrections = Corrections(journal, self._pipeline, self._streams)
        self._clock = Clock(settings.silent_after, self._streams, self._pipeline.look_at)
        shared = self._streams, self._pipeline, self._saving, self._corrections
        self._operating = partial(Operating, served, journal, *shared)

    @classmethod
    def open(cls, served: ServedModel, folder: Path | None, settings: ServiceSettings | None = None) -> "Service":
        """Recover the streams of a data folder; without a folder nothing is durable."""
        settings = settings or ServiceSettings()
        if folder is None:
            return cls(served, NoJournal(), settings)
        if written := written_identity(folder):
            served = served.as_written(written)
        journal = Journal.open(folder, served.identity, repair=settings.repair)
        try:
            _keep_classifier(served, journal, folder / "classifier.safetensors")
            return cls(served, journal, settings)
        except BaseException:
            journal.close()
            raise

    # -- samples ----------------------------------------------------------------------------------------------------

    def submit(self, request: Request) -> "Future[Result]":
        """Queue a request; never blocks. The future gives the reply or raises what is wrong (`Refused`)."""
        self._require_running()
        self._streams.require_usable(request.stream)
        future, job = self._pending.admit(request)
        if job is not None:
            self._pipeline.put(job)
        return future

    @property
    def ready(self) -> bool:
        """Whether requests are taken."""
        return not self._draining

    @property
    def reason(self) -> str | None:
        """Why requests are not taken, or why nothing is learned."""
        return "the service is shutting down" if self._draining else self._journal.read_only

    @property
    def queued(self) -> int:
        """How many samples wait or are being answered."""
        return self._pending.queued

    # -- streams ----------------------------------------------------------------------------------------------------

    def streams(self) -> list[dict[str, Any]]:
        """Name, sequence, position and whether it is frozen, of every stream."""
        return self._streams.summaries()

    def summary(self, name: str) -> dict[str, Any]:
        """What the page shows of a stream."""
        with self._streams.using(name) as stream:
            return full_summary(stream, self._journal.read_only)

    def health(self, most: int) -> list[dict[str, Any]]:
        """What is measured of the streams with the most samples, with the names of the alarms that stand.

        Those that were not loaded since the start are not among them.
        """
        return sorted(self._streams.measured(), key=lambda one: -one["position"])[:most]

    @property
    def streams_known(self) -> int:
        """How many streams there are."""
        return len(self._streams)

    @property
    def streams_loaded(self) -> int:
        """How many of them can be used without a replay."""
        return self._streams.in_memory

    @property
    def journal_bytes(self) -> int:
        """The size of the journal on the disk."""
        return self._journal.bytes_on_disk() if isinstance(self._journal, Journal) else 0

    @property
    def snapshot_age(self) -> float | None:
        """The seconds since this process has written a snapshot."""
        written = None if self._saving is None else self._saving.written
        return None if written is None else time.monotonic() - written

    def observe_commits(self, observe: Callable[[float, int], object]) -> None:
        """Tell of every commit how long it took, and how many samples it had."""
        self._pipeline.on_commit = observe

    def version(self, name: str) -> int:
        """A number that changes with every group and operation."""
        return self._streams.version(name)

    def create(self, name: str) -> dict[str, Any]:
        """Make a stream, unless it is there."""
        self._require_running()
        self._pipeline.between(lambda: self._streams.create(name))
        with self._streams.using(name) as stream:
            return brief_summary(stream)

    def operate(self, name: str, operation: str, *, dry_run: bool = False, **argument: Any) -> dict[str, Any]:
        """Change a stream by an operation of `pta.serve.operations`, while no other is under way on it.

        Gives {"stream", "operation", "samples", "sequence"}: how many samples it concerns, and its row. With `dry_run`
        the samples are only counted.
        """
        with self._streams.using(name) as stream, stream.changing:
            self._require_running()
            return self._operating(stream, operation, dry_run).operate(argument)

    def rows(self, name: str, after: int, limit: int) -> dict[str, Any]:
        """Learned samples after a sequence number, with their answers: `rows`, and `next` to go on after."""
        with self._streams.using(name) as stream:
            return rows_after(stream, self._pipeline.last_answers, self.shape.class_names, after, limit)

    def export(self, name: str) -> bytes:
        """The state as a file that `pta.load_adapter` and `--state` read."""
        with self._streams.using(name) as stream:
            with stream.lock:
                adapter = stream.state.adapter.clone()
            return adapter.to_bytes()

    # -- the end ----------------------------------------------------------------------------------------------------

    def drain(self, seconds: float) -> bool:
        """Take no more requests and wait for those that are queued; whether all were answered in time."""
        self._draining, self._end = True, time.monotonic() + seconds
        return self._pending.wait_until_empty(seconds)

    def close(self) -> None:
        """Answer what is queued, finish operations that are under way, and end.

        What was learned is in the journal. What was measured is saved as far as the time of `drain` reaches. Labels
        that no replay has reached are learned when their stream is used again.
        """
        self._draining = True
        for stream in self._streams.loaded():
            with stream.changing:
                pass
        self._corrections.close()
        self._clock.close()
        if self._saving is not None:
            self._saving.stop_dropping()
        self._pipeline.close()
        self._streams.close()
        if self._saving is not None:
            self._saving.close(self._end)
        self._journal.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _require_running(self) -> None:
        if self._draining:
            raise Refused("the service is shutting down; try again soon", 503, 1)


def _keep_classifier(served: ServedModel, journal: Journal, path: Path) -> None:
    """Refuse a data folder of another class list or model, and add classes that come after those it has.

    A new folder is marked with the classifier.
    """
    if not exists(path):
        _mark(served, path)
        return
    try:
        before = served.first(_shared_classes(served, path))
        imported_adapter(path, before)
        saved = load_tensors(path, "state", only=[ANCHORS])[0][ANCHORS]
        anchors = before.classifier.anchors.cpu().double()
        precision = torch.float32 if served.encoder is None else served.encoder.dtype
        rounding = max(_ROUNDING, 8 * torch.finfo(precision).eps)
        if (distance := float((anchors - saved.double()).norm(dim=1).max())) > rounding:
            raise StateMismatch(
                f"its anchors differ by up to {distance:.1e} of their length, and rounding by at most "
                f"{rounding:.1e}; use the same model, templates and features, or another data folder"
            )
    except UserMistake as error:
        raise type(error)(f"the data folder {path.parent} belongs to another service: {error}") from None
    if before is not served:
        with naming(f"the data folder {path.parent} has fewer classes"):
            require_growing(before.fresh())
        _add_classes(before, served, journal)
        for measured in path.parent.glob("streams/*/monitor/*.safetensors"):
            measured.unlink()  # of other classes
        _mark(served, path)


def _shared_classes(served: ServedModel, path: Path) -> int:
    """How many classes a data folder has if they are the first of those that are served; all otherwise."""
    names, own = load_tensors(path, "state", only=[])[1].get("class_names"), served.classifier.class_names
    count = len(names) if isinstance(names, list) else 0
    return count if 2 <= count <= len(own) and names == list(own[:count]) else len(own)


def _add_classes(before: ServedModel, served: ServedModel, journal: Journal) -> None:
    """Write a row in every stream, unless a killed process has."""
    first, names = before.classifier.classes, served.classifier.class_names
    argument = {"before": first, "count": len(names), "names": names[first:]}
    for number in journal.streams().values():
        if all(row.kind != "classes" or row.argument["count"] < len(names) for row in journal.operations(number)):
            journal.operate(number, "classes", argument)
    _log.info("classes were added: %s", ", ".join(names[first:]))


def _mark(served: ServedModel, path: Path) -> None:
    served.fresh().save(path)
    keep_private(path)

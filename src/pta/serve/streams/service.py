"""Service: named streams that share an encoder and a classifier; the state of each is the replay of its journal."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import torch

from pta.door.files import exists, load_tensors
from pta.errors import StateMismatch, UserMistake
from pta.methods.state_file import ANCHORS
from pta.serve.journal.journal import Journal
from pta.serve.journal.no_journal import NoJournal
from pta.serve.journal.private import keep_private
from pta.serve.open_files import require_free_files
from pta.serve.refusals import Refused
from pta.serve.requests import Reply, Request
from pta.serve.streams.admission import Admission
from pta.serve.streams.live_stream import LiveStream
from pta.serve.streams.operating import Operating
from pta.serve.streams.past import imported_adapter
from pta.serve.streams.pipeline import Change, Pipeline
from pta.serve.streams.saving import Saving
from pta.serve.streams.served import Served, ServiceSettings, Shape
from pta.serve.streams.stage import one_thread
from pta.serve.streams.stream_set import StreamSet
from pta.serve.streams.summary import brief_summary, full_summary

_ROUNDING = 1e-4  # of a unit vector: float32 text towers differ by some 1e-6 between processors


class Service:
    """Answers requests about samples, learns from them once they are in the journal, and undoes what was learned.

    Operations give {"stream", "operation", "samples", "sequence"}: how many samples they concern, and their row. With
    `dry_run` they only count.
    """

    def __init__(
        self, served: Served, journal: Journal | NoJournal, folder: Path | None, settings: ServiceSettings
    ) -> None:
        names, encoder = served.classifier.class_names, served.encoder
        fixed = settings.name, served.method, encoder is not None, settings.batch, isinstance(journal, Journal)
        self.shape = Shape(served.classifier.dim, names, *fixed)
        self._journal, self._draining = journal, False
        self._admission = Admission(settings.queue)
        with one_thread("recover") as alone:  # a replay has the bits of what was learned on one thread
            self._streams = alone.submit(StreamSet, served, journal, folder, settings.auto_create).result()
        self._saving: Saving | None = None
        self._pipeline = Pipeline(served, settings, journal, self._admission, self._streams, self._save_if_due)
        if isinstance(journal, Journal):
            self._saving = Saving(settings, journal, self._streams, self._write)
            self._saving.save_replayed()
        self._operating = Operating(served, journal, self._pipeline, self._saving)

    @classmethod
    def open(cls, served: Served, folder: Path | None, settings: ServiceSettings | None = None) -> "Service":
        """Recover the streams of a data folder; without a folder nothing is durable."""
        settings = settings or ServiceSettings()
        if folder is None:
            return cls(served, NoJournal(), None, settings)
        journal = Journal.open(folder, served.identity, repair=settings.repair)
        try:
            _require_same_classifier(served, folder / "classifier.safetensors")
            return cls(served, journal, folder, settings)
        except BaseException:
            journal.close()
            raise

    # -- samples ----------------------------------------------------------------------------------------------------

    def submit(self, request: Request) -> "Future[Reply]":
        """Queue a request; never blocks. The future gives the reply or raises what is wrong (`Refused`)."""
        self._require_running()
        if request.pictures is not None and not self.shape.takes_pictures:
            raise Refused(422, "this service has no model for pictures; send features")
        self._streams.require_usable(request.stream)
        future, job = self._admission.admit(request)
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
        return self._admission.queued

    # -- streams ----------------------------------------------------------------------------------------------------

    def streams(self) -> list[dict[str, Any]]:
        """Name, sequence, position and whether it is frozen, of every stream."""
        return [brief_summary(stream) for stream in self._streams]

    def summary(self, name: str) -> dict[str, Any]:
        """What the page shows of a stream."""
        return full_summary(self._streams.require(name), self._journal)

    def version(self, name: str) -> int:
        """A number that changes with every group and operation."""
        return self._streams.require(name).version

    def create(self, name: str) -> dict[str, Any]:
        """Make a stream, unless it is there."""
        self._require_running()
        self._write(lambda: self._streams.create(name))
        return brief_summary(self._streams.require(name))

    def delete(self, name: str, *, dry_run: bool = False) -> dict[str, Any]:
        """Erase a stream with all its files; the default one is empty then."""
        with self._changing(name) as stream:
            done = {"stream": name, "operation": "delete", "samples": stream.state.adapter.position, "sequence": None}
            if not dry_run:
                require_free_files()
                self._write(lambda: self._streams.forget(stream))
                self._pipeline.last_answers.forget(stream.number)
                self._write(lambda: self._streams.erase(stream))
        return done

    def freeze(self, name: str, *, dry_run: bool = False) -> dict[str, Any]:
        """Learn nothing more until `thaw`."""
        with self._changing(name) as stream:
            return self._operating.freeze(stream, True, dry_run)

    def thaw(self, name: str, *, dry_run: bool = False) -> dict[str, Any]:
        """Learn again."""
        with self._changing(name) as stream:
            return self._operating.freeze(stream, False, dry_run)

    def reset(self, name: str, classes: Sequence[int] | None = None, *, dry_run: bool = False) -> dict[str, Any]:
        """Forget everything, or what was learned about some classes."""
        with self._changing(name) as stream:
            return self._operating.reset(stream, classes, dry_run)

    def rewind(
        self, name: str, *, to_sequence: int | None = None, to_time: float | None = None, dry_run: bool = False
    ) -> dict[str, Any]:
        """Go back to a moment, given as a sequence number or as seconds since 1970."""
        with self._changing(name) as stream:
            return self._operating.rewind(stream, to_sequence, to_time, dry_run)

    def unlearn(self, name: str, source: str, *, erase: bool = False, dry_run: bool = False) -> dict[str, Any]:
        """Be as if the samples of a source had never come; with `erase`, also remove them from the files."""
        with self._changing(name) as stream:
            return self._operating.unlearn(stream, source, erase, dry_run)

    def undo(self, name: str, *, dry_run: bool = False) -> dict[str, Any]:
        """Lift the last operation in force."""
        with self._changing(name) as stream:
            return self._operating.undo(stream, dry_run)

    def import_(self, name: str, content: bytes, *, dry_run: bool = False) -> dict[str, Any]:
        """Go on from an exported state."""
        with self._changing(name) as stream:
            return self._operating.import_(stream, content, dry_run)

    def export(self, name: str) -> bytes:
        """The state as a file that `pta.load_adapter` and `--state` read."""
        stream = self._streams.require(name)
        with stream.lock:
            adapter = stream.state.adapter.clone()
        return adapter.to_bytes()

    # -- the end ----------------------------------------------------------------------------------------------------

    def drain(self, seconds: float) -> bool:
        """Take no more requests and wait for those that are queued; whether all were answered in time."""
        self._draining = True
        return self._admission.wait_until_empty(seconds)

    def close(self) -> None:
        """Answer what is queued, finish operations that are under way, save a snapshot of every stream, and end."""
        self._draining = True
        for stream in self._streams:
            with stream.changing:
                pass
        if self._saving is not None:
            self._saving.stop_dropping()
        self._pipeline.close()
        if self._saving is not None:
            self._saving.close()
        self._journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _changing(self, name: str) -> Iterator[LiveStream]:
        """A stream while no other operation is under way on it."""
        stream = self._streams.require(name)
        with stream.changing:
            self._require_running()
            yield stream

    def _require_running(self) -> None:
        if self._draining:
            raise Refused(503, "the service is shutting down; try again soon", 1)

    def _write(self, work: Callable[[], object]) -> None:
        """Do something in the thread that writes the journal, and wait until what came before it is learned."""
        change = Change(work, lambda written: None)
        self._pipeline.put(change)
        change.future.result()

    def _save_if_due(self, stream: LiveStream) -> None:
        if self._saving is not None:
            self._saving.save_if_due(stream)


def _require_same_classifier(served: Served, path: Path) -> None:
    """Refuse a data folder of another class list or model; a new folder is marked with the classifier."""
    if exists(path):
        try:
            imported_adapter(path, served)
            saved = load_tensors(path, "state", only=[ANCHORS])[0][ANCHORS]
            if saved.dtype != torch.float16:  # as older versions wrote them; in full they are written below
                _require_close_anchors(served, saved)
                return
        except UserMistake as error:
            raise type(error)(f"the data folder {path.parent} belongs to another service: {error}") from None
    served.fresh().save(path)
    keep_private(path)


def _require_close_anchors(served: Served, saved: torch.Tensor) -> None:
    """Refuse anchors that differ by more than rounding."""
    anchors = served.classifier.anchors.cpu().double()
    precision = torch.float32 if served.encoder is None else served.encoder.dtype
    rounding = max(_ROUNDING, 8 * torch.finfo(precision).eps)
    if (distance := float((anchors - saved.double()).norm(dim=1).max())) > rounding:
        raise StateMismatch(
            f"its anchors differ by up to {distance:.1e} of their length, and rounding by at most {rounding:.1e}; "
            "use the same model, templates and features, or another data folder"
        )

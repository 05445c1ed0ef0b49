"""Requests on their way through the service: which wait, their replies, and answers that are not written yet."""

import secrets
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import cache
from itertools import count
from threading import Condition
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pta.serve.journal.rows import ANSWER, Answers, Found, StoredAnswers
from pta.serve.requests import USUAL_OUTPUTS, Refused, Request, Result, id_hash
from pta.serve.streams.answering import Answered, Scored
from pta.serve.streams.live_stream import LiveStream

Outputs = dict[str, NDArray[Any]]


_PROCESS, _numbers = secrets.token_hex(10), count()  # for ids that nobody else has
_NOWHERE = np.zeros(0, np.int64)


@cache
def _places(count: int) -> NDArray[np.int64]:
    places = np.arange(count)
    places.flags.writeable = False
    return places


class PendingRequest:
    """A request on its way through the service."""

    features: NDArray[np.float32]  # B×d; of pictures, once they are encoded
    group: Scored  # that its samples were scored with, from the row `start` on
    start: int

    def __init__(self, request: Request) -> None:
        self.request = request
        self.id = f"{_PROCESS}{next(_numbers):012x}" if request.id is None else request.id
        self.id_hash = id_hash(self.id)
        self.began = time.perf_counter()
        self.future: Future[Result] = Future()
        self.future.set_running_or_notify_cancel()  # a client that goes away does not undo what is learned
        self.stream: LiveStream | None = None  # which is in use until the reply; None before it is made
        self.same: list[Future[Result]] = []  # of requests with the same id that came meanwhile
        if request.features is not None:
            self.features = request.features
        self.held = np.zeros(len(request), dtype=bool)  # samples that are not learned, whatever happens to the others
        self._some_held = False
        self.found: Found | None = None  # the others, if they were learned before
        self.first: int | None = None  # sequence number of its first learned sample, once it is in the journal
        self.sequences = np.full(len(request), -1)  # of its samples; −1 where they are not learned
        self.is_to_learn = False  # as the writing thread decides
        self.reason: str | None = None  # why it is not learned, or why some samples are not
        self.parts: list[tuple[NDArray[np.int64], Outputs]] = []  # places of answered samples, and their answers

    @property
    def its_stream(self) -> LiveStream:
        """The stream, once it is there."""
        assert self.stream is not None
        return self.stream

    @property
    def scored(self) -> Scored:
        """What the classifier alone says of its samples."""
        return self.group.of(slice(self.start, self.start + len(self)))

    @property
    def kept(self) -> NDArray[np.int64]:
        """The places of its samples that are not held."""
        return np.flatnonzero(~self.held) if self._some_held else _places(len(self))

    def number_from(self, first: int) -> None:
        """Its samples that are not held are in the journal, with sequence numbers from this one on."""
        self.first = first
        self.sequences = np.full(len(self), -1)
        self.sequences[self.kept] = first + _places(len(self.kept))

    def places(self, *, learn: bool) -> NDArray[np.int64]:
        """The places of its samples that are learned now, or of those that are answered now without learning."""
        if learn:
            return _NOWHERE if self.first is None else self.kept
        if self.first is None and self.found is None:
            return _places(len(self))
        return np.flatnonzero(self.held) if self._some_held else _NOWHERE

    def take_found(self, found: Found) -> None:
        """Some of its samples were learned before; the others are answered now."""
        self.found = found
        self.held, self._some_held = ~np.isin(np.arange(len(self)), found.places), True
        self.reason = f"{len(self) - len(found.places)} of {len(self)} samples were not learned"

    def hold(self, samples: NDArray[np.bool_], why: str) -> None:
        """Do not learn some of its samples."""
        if samples.any():
            self.held, self._some_held = self.held | samples, True
            said = f"{np.count_nonzero(samples)} of {len(self)} samples not learned: {why}"
            self.reason = said if self.reason is None else f"{self.reason}; {said}"

    def __len__(self) -> int:
        return len(self.request)


class PendingRequests:
    """Takes requests from any thread while there is room, and gives each its reply once."""

    def __init__(self, most: int) -> None:
        self._most, self.queued = most, 0
        self._in_flight: dict[tuple[str, str], PendingRequest] = {}
        self._changed = Condition()

    def admit(self, request: Request) -> tuple["Future[Result]", PendingRequest | None]:
        """The future of a request, and what is to be done for it; nothing if its id is on its way already."""
        job = PendingRequest(request)
        key = request.stream, job.id
        with self._changed:
            first = self._in_flight.get(key) if request.learn != "false" else None
            if first is not None:
                require_same(first.request.digest, request)
                first.same.append(job.future)
                return job.future, None
            if self.queued + len(job) > self._most:
                raise Refused(f"{self.queued} samples wait and at most {self._most} may; try again soon", 429, 1)
            self.queued += len(job)
            if request.learn != "false":
                self._in_flight[key] = job
        return job.future, job

    def finish(self, job: PendingRequest, outcome: Result | BaseException) -> None:
        """Give a request its reply, or what is wrong with it."""
        with self._changed:
            self.queued -= len(job)
            if job.request.learn != "false":
                del self._in_flight[job.request.stream, job.id]
            self._changed.notify_all()
        if isinstance(outcome, BaseException):
            for future in (job.future, *job.same):
                future.set_exception(outcome)
            return
        job.future.set_result(outcome)
        if not job.same:
            return
        stored = {name: column for name, column in outcome.outputs.items() if name in USUAL_OUTPUTS}
        again = replace(outcome, repeated=outcome.learned, outputs=stored)
        for future in job.same:
            future.set_result(again)

    def wait_until_empty(self, seconds: float) -> bool:
        """Whether everything was answered within these seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: self.queued == 0, seconds)


def require_same(digest: bytes, request: Request) -> None:
    """Refuse a request whose id was given to another."""
    if digest != request.digest:
        raise Refused(
            f"the id {request.id!r} was given to another request of stream {request.stream}; use a new id", 409
        )


class Replies:
    """Makes replies with the names of the classes."""

    def __init__(self, class_names: Sequence[str], reject_below: float | None = None) -> None:
        self._names, self._reject_below = np.array(class_names, dtype=object), reject_below

    def add_parts(
        self,
        jobs: Sequence[PendingRequest],
        places: Sequence[NDArray[np.int64]],
        answered: Answered,
        given: Answered,
        is_zero_shot: bool,
    ) -> None:
        """The samples at some places of requests are a batch; top classes and logits are from `given`."""
        sequences = np.concatenate([job.sequences[own] for job, own in zip(jobs, places, strict=True)])
        whole = self._outputs(answered.answers, sequences, is_zero_shot)
        start = 0
        for job, own in zip(jobs, places, strict=True):
            rows = slice(start, start := start + len(own))
            outputs = {name: column[rows] for name, column in whole.items()}
            if job.request.top or job.request.logits:
                outputs |= self._scores(job.request, given, rows)
            job.parts.append((own, outputs))

    def _scores(self, request: Request, given: Answered, rows: slice) -> Outputs:
        outputs, logits = Outputs(), given.logits[rows]
        if request.top:
            best = logits.topk(min(request.top, len(self._names)), dim=1).indices.numpy()
            outputs["top_label"] = self._names[best]
            outputs["top_probability"] = np.take_along_axis(given.chances[rows], best, axis=1).astype(np.float32)
        if request.logits:
            outputs["logits"] = logits.float().numpy()
        return outputs

    def first(self, job: PendingRequest) -> Result:
        """The reply to a request whose samples are answered."""
        return Result(job.id, job.request.stream, job.first is not None, False, job.reason, _in_order(job.parts))

    def repeated(self, job: PendingRequest, found: Found, answers: Answers, is_zero_shot: bool) -> Result:
        """The reply that an id was given first, as far as it is stored; samples that were held are answered now."""
        parts = [(found.places, self._outputs(answers, found.sequences, is_zero_shot)), *job.parts]
        return Result(job.id, job.request.stream, True, True, job.reason, _in_order(parts))

    def _outputs(self, answers: Answers, sequences: NDArray[np.int64], is_zero_shot: bool) -> Outputs:
        labels = {name: self._names[answers[name]] for name in ("label", "zero_shot_label")}
        numbers = {name: answers[name] for name in ("probability", "zero_shot_probability", "entropy")}
        labels["adapted_label"] = labels["label"]
        if is_zero_shot:
            labels["label"] = labels["zero_shot_label"]
            numbers |= {name: answers[f"zero_shot_{name}"] for name in ("probability", "entropy")}
        if self._reject_below is not None:
            numbers["rejected"] = numbers["probability"] < self._reject_below
        return {**labels, **numbers, "sequence": sequences}


def _in_order(parts: Sequence[tuple[NDArray[np.int64], Outputs]]) -> Outputs:
    """The answers to all samples of a request, as far as each part has them."""
    if len(parts) == 1:
        return parts[0][1]
    order = np.argsort(np.concatenate([places for places, _ in parts]))
    return {name: np.concatenate([outputs[name] for _, outputs in parts])[order] for name in parts[0][1]}


_NONE: Answers = np.empty(0, ANSWER)


class LastAnswers:
    """Threads that learn add the answers of a group, the writing thread takes them, and a repeated id finds them."""

    def __init__(self) -> None:
        self.groups: deque[tuple[int, dict[int, tuple[int, Answers]]]] = deque()

    def add(self, group: int, answers: Mapping[int, tuple[int, Answers]]) -> None:
        """For each stream of a group its first row and its answers, in order of sequence."""
        self.groups.append((group, dict(answers)))

    def oldest(self) -> StoredAnswers | None:
        """What is to be written next."""
        if not self.groups:
            return None
        group, streams = self.groups[0]
        return StoredAnswers(group, {stream: answers for stream, (_, answers) in list(streams.items())})  # see `forget`

    def find(self, stream: int, sequences: NDArray[np.int64]) -> Answers | None:
        """The answers of the rows of a request."""
        for _, streams in list(self.groups):
            first, answers = streams.get(stream, (0, _NONE))
            start = int(sequences[0]) - first
            if 0 <= start < len(answers):
                return answers[start : start + len(sequences)]
        return None

    def of_stream(self, stream: int) -> dict[int, Answers]:
        """The answers of its batches, by their first rows."""
        return dict(streams[stream] for _, streams in list(self.groups) if stream in streams)

    def forget(self, stream: int) -> None:
        """The stream is deleted; another thread than the writing one calls it."""
        for _, streams in list(self.groups):
            streams.pop(stream, None)

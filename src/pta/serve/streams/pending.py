"""PendingRequests: how many samples may wait, and which ids are on their way."""

import hashlib
import secrets
import time
from concurrent.futures import Future
from dataclasses import replace
from threading import Condition

import numpy as np
from numpy.typing import NDArray

from pta.serve.requests import Refused, Reply, Request
from pta.serve.streams.answering import Scored
from pta.serve.streams.live_stream import LiveStream


class PendingRequest:
    """A request on its way through the service."""

    features: NDArray[np.float32]  # B×d; of pictures, once they are encoded
    scored: Scored  # after the first stage
    stream: LiveStream  # after the second

    def __init__(self, request: Request) -> None:
        self.request, self.count = request, len(request)
        self.id = secrets.token_hex(16) if request.id is None else request.id
        self.id_hash = hashlib.blake2b(self.id.encode(), digest_size=16).digest()
        self.began = time.perf_counter()
        self.future: Future[Reply] = Future()
        self.future.set_running_or_notify_cancel()  # a client that goes away does not undo what is learned
        self.same: list[Future[Reply]] = []  # of requests with the same id that came meanwhile
        if request.features is not None:
            self.features = request.features
        self.first: int | None = None  # sequence number of its first sample, once it is in the journal
        self.reason: str | None = None  # why it is not learned

    @property
    def sequences(self) -> NDArray[np.int64]:
        """The sequence numbers of its samples, −1 where they are not learned."""
        return np.full(self.count, -1) if self.first is None else np.arange(self.first, self.first + self.count)

    def __len__(self) -> int:
        return self.count


class PendingRequests:
    """Takes requests from any thread while there is room, and gives each its reply once."""

    def __init__(self, most: int) -> None:
        self._most, self.queued = most, 0
        self._in_flight: dict[tuple[str, str], PendingRequest] = {}
        self._changed = Condition()

    def admit(self, request: Request) -> tuple["Future[Reply]", PendingRequest | None]:
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
                raise Refused(429, f"{self.queued} samples wait and at most {self._most} may; try again soon", 1)
            self.queued += len(job)
            if request.learn != "false":
                self._in_flight[key] = job
        return job.future, job

    def finish(self, job: PendingRequest, outcome: Reply | BaseException) -> None:
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
        again = replace(outcome, repeated=outcome.learned, top_labels=None, top_probabilities=None, logits=None)
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
            409, f"the id {request.id!r} was given to another request of stream {request.stream}; use a new id"
        )

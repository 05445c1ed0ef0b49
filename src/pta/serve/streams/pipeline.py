"""The path of a sample: encoded (pictures), scored without a state, written to the journal, learned, answered."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pta.errors import MachineFailure, PtaError, UserMistake
from pta.serve.journal.journal import Journal
from pta.serve.journal.no_journal import NoJournal
from pta.serve.journal.rows import Found, NewRequest
from pta.serve.refusals import Refused
from pta.serve.streams.admission import Admission, Job, require_same
from pta.serve.streams.answering import Answered, Scored, answer, rounded, score, warm_up
from pta.serve.streams.last_answers import LastAnswers
from pta.serve.streams.live_stream import LiveStream
from pta.serve.streams.picture_encoder import PictureEncoder
from pta.serve.streams.replying import Replies
from pta.serve.streams.served import Served, ServiceSettings, rule_of
from pta.serve.streams.stage import Stage, one_thread
from pta.serve.streams.stream_set import StreamSet

_log = logging.getLogger("pta.serve")


class Change:
    """Work between two groups: `write` in the thread that writes the journal, then `apply` in the one that learns."""

    def __init__(self, write: Callable[[], Any], apply: Callable[[Any], Any]) -> None:
        self.write, self.apply = write, apply
        self.written: Any = None
        self.future: Future[Any] = Future()

    def __len__(self) -> int:
        return 0


class Group:
    """Jobs that were committed together, those that learn and those that do not."""

    def __init__(self, number: int, time: float, jobs: list[Job]) -> None:
        self.number, self.time, self.jobs = number, time, jobs

    def __len__(self) -> int:
        return sum(map(len, self.jobs))


class Pipeline:
    """Three threads: while one group is synced, the next is scored and the last is learned.

    Without a journal all this is one thread. Pictures become features beside it, so that nothing else waits for them.
    """

    def __init__(
        self,
        served: Served,
        settings: ServiceSettings,
        journal: Journal | NoJournal,
        admission: Admission,
        streams: StreamSet,
        after_group: Callable[[LiveStream], None],
    ) -> None:
        self._journal, self._admission, self._quota = journal, admission, settings.quota
        self._streams, self._after_group = streams, after_group
        adapter = served.fresh()
        warm_up(adapter)
        self._classifier, self._rule = adapter.classifier, rule_of(adapter)
        self._replies = Replies(served.classifier.class_names)
        self._pictures: PictureEncoder | None = None
        if served.encoder is not None:
            limits = settings.limits, settings.max_request_pixels
            self._pictures = PictureEncoder(served.encoder, *limits, threads=torch.get_num_threads())
        self.last_answers = LastAnswers()
        self.beside = one_thread("replay")
        self._stages: list[Stage[Any]] = []
        self._hand_to_learning = self._hand_to(self._learn, own_thread=isinstance(journal, Journal))
        self._hand_to_writing = self._hand_to(self._write, own_thread=bool(self._stages))
        self._hand_to_scoring = self._hand_to(self._score, own_thread=True)

    def put(self, item: Job | Change) -> None:
        """Begin with a request, or with work between two groups."""
        if isinstance(item, Change) or item.request.pictures is None:
            self._hand_to_scoring([item])
        else:
            assert self._pictures is not None  # as `Service.submit` refuses them otherwise
            known, done = partial(self._is_answered, item), partial(self._encoded, item)
            self._pictures.put(item.request.pictures, known, done)

    def close(self) -> None:
        """Answer what is queued, write the answers, and end."""
        if self._pictures is not None:
            self._pictures.close()
        for stage in reversed(self._stages):
            stage.close()
        self.beside.shutdown()
        with suppress(MachineFailure):  # they are computed again when somebody asks
            while self.last_answers:
                self._commit([])

    def _hand_to(self, work: Callable[[Sequence[Any]], None], *, own_thread: bool) -> Callable[[Sequence[Any]], None]:
        """How items go on to a stage, in a thread of its own or in that of the stage before."""
        if not own_thread:
            return work
        stage: Stage[Any] = Stage(work.__name__.strip("_"), work, self._fail)
        self._stages.append(stage)
        return stage.put

    def _fail(self, items: Sequence[Job | Change | Group], error: Exception) -> None:
        for item in items:
            if isinstance(item, Group):
                self._fail(item.jobs, error)
            elif isinstance(item, Change):
                item.future.set_exception(error)
            elif not item.future.done():
                self._admission.finish(item, error)

    # -- score ------------------------------------------------------------------------------------------------------

    def _encoded(self, job: Job, outcome: NDArray[np.float32] | Exception) -> None:
        """The pictures of a request are features now, or one of them cannot be."""
        if isinstance(outcome, Exception):
            self._admission.finish(job, Refused(422, str(outcome)) if isinstance(outcome, UserMistake) else outcome)
        else:
            job.features = outcome
            self._hand_to_scoring([job])

    def _score(self, items: Sequence[Job | Change]) -> None:
        """Score all jobs in one batch; operations keep their place among them."""
        ready: list[tuple[Job, NDArray[np.float32]]] = []
        for item in items:
            if isinstance(item, Job) and (item.request.pictures is not None or not self._is_answered(item)):
                assert item.features is not None  # as pictures come here once they are encoded
                ready.append((item, item.features))
        if ready:
            scored = score(rounded(np.concatenate([features for _, features in ready])), self._classifier, self._rule)
            for job, rows in _slices([job for job, _ in ready]):
                job.scored = scored.of(rows)
        self._hand_to_writing([item for item in items if isinstance(item, Change) or item.scored is not None])

    def _is_answered(self, job: Job) -> bool:
        """Whether a request with this id was learned before; it is then answered as it was."""
        request, stream = job.request, self._streams.get(job.request.stream)
        if request.id is None or request.learn == "false" or stream is None:
            return False
        found = self._journal.find(stream.number, job.id_hash)
        if found is None:
            return False
        try:
            require_same(found.digest, request)
        except Refused as refused:
            self._admission.finish(job, refused)
            return True
        answers = self._answers(stream, found)
        if answers is not None:
            self._admission.finish(job, self._replies.repeated(job, found, answers))
        else:
            self.beside.submit(self._recall, job, stream)
        return True

    def _answers(self, stream: LiveStream, found: Found) -> NDArray[np.void] | None:
        return self.last_answers.find(stream.number, found.sequences) if found.answers is None else found.answers

    def _recall(self, job: Job, stream: LiveStream) -> None:
        """Answer a request whose answers a killed process did not write, and write those of its batch."""
        assert stream.past is not None  # as something was found
        assert isinstance(self._journal, Journal)
        try:
            found = self._journal.find(stream.number, job.id_hash)
            if found is None:
                raise Refused(409, "the sample was erased while it was looked for; send it again to learn it")
            answers = self._answers(stream, found)  # another request may have had the same batch
            if answers is None:
                batch = self._journal.batch_of(stream.number, int(found.sequences[0]))
                answers = stream.past.answers_of(stream.operations, batch)
                self.last_answers.add(batch.group, {stream.number: (batch.first, answers)})
                answers = answers[found.sequences - batch.first]
                self.put(Change(lambda: self._commit([]), lambda committed: None))
            self._admission.finish(job, self._replies.repeated(job, found, answers))
        except Exception as error:
            self._admission.finish(job, error)

    # -- write ------------------------------------------------------------------------------------------------------

    def _write(self, items: Sequence[Job | Change]) -> None:
        """Commit jobs as one group; what an operation writes comes between two groups."""
        for kind, some in groupby(items, type):
            if kind is Job:
                self._write_group([item for item in some if isinstance(item, Job)])
                continue
            for change in some:
                assert isinstance(change, Change)
                try:
                    change.written = change.write()
                except Exception as error:
                    change.future.set_exception(error)
                else:
                    self._hand_to_learning([change])

    def _write_group(self, jobs: list[Job]) -> None:
        going_on = []
        for job in jobs:
            try:
                self._decide(job)
                going_on.append(job)
            except PtaError as error:
                self._admission.finish(job, error)
        learning = [job for job in going_on if job.request.learn != "false" and job.reason is None]
        group = Group(0, 0.0, going_on)
        if learning:
            try:
                group.number, group.time, firsts = self._commit(learning)
                for job, first in zip(learning, firsts, strict=True):
                    job.sequences = np.arange(first, first + len(job))
            except MachineFailure as error:
                for job in learning:
                    job.reason = str(error)
                    if job.request.learn == "true":
                        group.jobs.remove(job)
                        self._admission.finish(job, Refused(503, f"nothing was learned: {error}"))
        if group.jobs:
            self._hand_to_learning([group])

    def _commit(self, learning: list[Job]) -> tuple[int, float, tuple[int, ...]]:
        """One transaction, with the oldest answers that are not written yet."""
        answers = self.last_answers.oldest()
        committed = self._journal.commit([_row(job) for job in learning], answers)
        self.last_answers.written(answers)
        return committed.group, committed.time, committed.firsts

    def _decide(self, job: Job) -> None:
        """Whether a job is learned, and if not, why."""
        request = job.request
        stream = job.stream = self._streams.get(request.stream) or self._created(request.stream)
        if request.learn == "false":
            return
        broken = stream.failed or self._journal.read_only
        if stream.frozen:
            refused = Refused(409, f"stream {stream.name} is frozen; thaw it, or send learn=try")
        elif broken:
            refused = Refused(503, f"nothing is learned until the service is started again: {broken}")
        elif self._quota is not None and not stream.within_quota(len(job), self._quota):
            refused = Refused(429, f"stream {stream.name} may learn {self._quota} samples per minute", 60)
        else:
            return
        if request.learn == "true":
            raise refused
        job.reason = str(refused)

    def _created(self, name: str) -> LiveStream:
        self._streams.require_usable(name)
        return self._streams.create(name)

    # -- learn and answer -------------------------------------------------------------------------------------------

    def _learn(self, items: Sequence[Group | Change]) -> None:
        for item in items:
            if isinstance(item, Change):
                try:
                    item.future.set_result(item.apply(item.written))
                except Exception as error:
                    item.future.set_exception(error)
            else:
                self._learn_group(item)

    def _learn_group(self, group: Group) -> None:
        """One batch per stream; the answers are kept until the next commit."""
        stored, replies = {}, []
        streams: dict[LiveStream, list[Job]] = {}
        for job in group.jobs:
            assert job.stream is not None  # as `_decide` found it
            streams.setdefault(job.stream, []).append(job)
        for stream, jobs in streams.items():
            for learn in (True, False):
                some = [job for job in jobs if (job.sequences is not None) is learn]
                if not some:
                    continue
                try:
                    with stream.lock:
                        answered = self._answer(stream, some, learn)
                        if learn:
                            stored[stream.number] = int(_rows(some[0])[0]), answered.stored()
                            stream.time = group.time
                            stream.since_snapshot += len(answered.labels)
                        now = time.perf_counter()
                        stream.statistics.add(answered, learn, [now - job.began for job in some])
                        stream.version += 1
                        replies += [(job, self._replies.first(job, answered, rows)) for job, rows in _slices(some)]
                except Exception as error:  # the other streams of the group still learn what is in the journal
                    _log.exception("a request could not be answered")
                    self._fail(some, error)
        if stored:
            self.last_answers.add(group.number, stored)
        for job, reply in replies:
            self._admission.finish(job, reply)
        for stream in streams:
            self._after_group(stream)

    def _answer(self, stream: LiveStream, jobs: list[Job], learn: bool) -> Answered:
        scored = Scored.joined([job.scored for job in jobs if job.scored is not None])
        if not learn:
            return answer(stream.state.adapter, scored, learn=False)
        try:
            return stream.state.learn(scored, int(_rows(jobs[-1])[-1]))
        except Exception as error:
            stream.failed = f"stream {stream.name} could not learn what is in the journal: {error}"
            raise


def _slices(jobs: Sequence[Job]) -> Iterator[tuple[Job, slice]]:
    """Jobs with their rows in a batch of all of them."""
    start = 0
    for job in jobs:
        yield job, slice(start, start + len(job))
        start += len(job)


def _rows(job: Job) -> NDArray[np.int64]:
    assert job.sequences is not None  # as it is in the journal
    return job.sequences


def _row(job: Job) -> NewRequest:
    assert job.stream is not None
    assert job.scored is not None  # as it was encoded
    request, scored = job.request, job.scored
    return NewRequest(job.stream.number, job.id_hash, request.digest, request.source, scored.features, scored.touches)

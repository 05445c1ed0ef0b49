"""The path of a sample: encoded (pictures), scored without a state, written to the journal, learned, answered."""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from threading import Lock
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from pta.errors import MachineFailure, UserMistake
from pta.serve.journal.journal import Journal, JournalLike
from pta.serve.journal.rows import Answers, Committed, Found, NewRequest
from pta.serve.requests import Refused, Result
from pta.serve.streams.alarm_rows import write_alarms
from pta.serve.streams.answering import Answered, Scored, answer, answer_zero_shot, rounded, score, warm_up
from pta.serve.streams.health import AlarmRow
from pta.serve.streams.live_stream import LiveStream
from pta.serve.streams.pending import LastAnswers, PendingRequest, PendingRequests, Replies, require_same
from pta.serve.streams.picture_encoder import PictureEncoder
from pta.serve.streams.saving import Saving
from pta.serve.streams.served_model import ServedModel, ServiceSettings, rule_of
from pta.serve.streams.stage import Stage, errors_told_to, one_thread
from pta.serve.streams.stream_set import StreamSet

T = TypeVar("T")
_log = logging.getLogger("pta.serve")


@dataclass(eq=False)
class Change:
    """Work between two groups."""

    work: Callable[[], Any]
    future: Future[Any] = field(default_factory=Future)

    def __len__(self) -> int:
        return 0


class Pipeline:
    """One thread that scores a group, writes it and learns it; what came meanwhile is the next group.

    Requests that do not learn go around it, in a thread of their own, and pictures become features beside both.
    """

    def __init__(
        self,
        served: ServedModel,
        settings: ServiceSettings,
        journal: JournalLike,
        pending: PendingRequests,
        streams: StreamSet,
    ) -> None:
        self._journal = journal
        self._pending = pending
        self._quota, self._reject_holds = settings.quota, settings.reject_holds
        self._streams = streams
        self.saving = Saving(served, settings, journal, streams, self.between) if isinstance(journal, Journal) else None
        streams.on_load = self._begin
        adapter = served.fresh()
        warm_up(adapter)
        self._classifier = adapter.classifier
        self._rule = rule_of(adapter)
        self._replies = Replies(served.classifier.class_names, settings.reject_below)
        self._pictures: PictureEncoder | None = None
        if served.encoder is not None:
            limits = settings.limits, settings.max_request_pixels
            self._pictures = PictureEncoder(served.encoder, *limits, threads=torch.get_num_threads())
        self._lock = Lock()
        self._for_streams: dict[str, list[PendingRequest]] = {}  # requests that wait for a stream to be loaded
        self.last_answers = LastAnswers()
        self.beside = one_thread("replay")
        self.on_commit: Callable[[float, int], object] = lambda seconds, samples: None
        self._learning = Stage("learn", self._learn, self._fail)
        self._answering = Stage("answer", self._answer, self._fail)

    def put(self, job: PendingRequest) -> None:
        """Begin with a request, by finding its stream, which may have to be loaded or made first; never blocks."""
        name = job.request.stream
        with self._lock:
            if name in self._for_streams:
                self._for_streams[name].append(job)
                return
            job.stream = self._streams.use_if_loaded(name)
            if job.stream is not None or name not in self._streams:
                self._encode(job)
                return
            self._for_streams[name] = [job]
        self._streams.load(name, partial(self._loaded, name))

    def between(self, work: Callable[[], T]) -> T:
        """Do something between two groups, in the thread that writes and learns, and wait for it."""
        change = Change(work)
        self._learning.put([change])
        return change.future.result()

    def _begin(self, stream: LiveStream) -> None:
        """A stream was loaded: another reaction may be chosen than before, and its replay may have taken long."""
        self.look_at(stream)
        if self.saving is not None:
            self.saving.save_if_due(stream)

    def look_at(self, stream: LiveStream) -> None:
        """Have the rows of alarms written that are due without a sample."""
        with stream.lock:
            self._raise(stream, stream.health.look())

    def _raise(self, stream: LiveStream, rows: Sequence[AlarmRow]) -> None:
        """Have rows of alarms written, after what is on its way; they take effect then. Under the stream's lock."""
        if rows:
            self._streams.keep(stream)
            self._learning.put([Change(partial(self._write_alarms, stream, rows))])

    def _write_alarms(self, stream: LiveStream, rows: Sequence[AlarmRow]) -> None:
        try:
            write_alarms(self._journal, stream, rows)
            if self.saving is not None:
                self.saving.save_measured(stream)  # with what ends the alarm
        finally:
            self._streams.done(stream)

    def close(self) -> None:
        """Answer what is queued, write the answers, and end."""
        self._streams.finish_loading()
        if self._pictures is not None:
            self._pictures.close()
        self._answering.close()
        for _ in range(2):  # the groups that are queued, then the rows of their alarms
            self.between(lambda: None)
        self._learning.close()
        self.beside.shutdown()
        with suppress(MachineFailure):  # they are computed again when somebody asks
            while self.last_answers.groups:
                self._commit([])

    def _fail(self, items: Sequence[PendingRequest | Change], error: Exception) -> None:
        _log.error("a request could not be answered", exc_info=error)
        for item in items:
            if not item.future.done():
                if isinstance(item, Change):
                    item.future.set_exception(error)
                else:
                    self._finish(item, error)

    def _finish(self, job: PendingRequest, outcome: Result | BaseException) -> None:
        """Give a request its reply, or what is wrong with it; its stream may rest then."""
        if job.stream is not None:
            self._streams.done(job.stream)
        self._pending.finish(job, outcome)

    # -- features ---------------------------------------------------------------------------------------------------

    def _loaded(self, name: str, loading: "Future[LiveStream]") -> None:
        """A stream is loaded, or cannot be; requests that have waited for it go on in their order."""
        error = loading.exception()
        with self._lock:
            for job in self._for_streams.pop(name):
                if error is None:
                    job.stream = loading.result()
                    self._streams.keep(job.stream)
                    self._encode(job)
                else:
                    self._finish(job, error)
        if error is None:
            self._streams.done(loading.result())

    def _encode(self, job: PendingRequest) -> None:
        """Have features made of pictures, and hand the request over."""
        pictures = job.request.pictures
        if pictures is None or self._pictures is None:
            self._hand_over(job)
        else:
            self._pictures.put(pictures, partial(self._is_answered, job), partial(self._encoded, job))

    def _encoded(self, job: PendingRequest, outcome: NDArray[np.float32] | Exception) -> None:
        """The pictures of a request are features now, or one of them cannot be."""
        if isinstance(outcome, Exception):
            self._finish(job, Refused(str(outcome)) if isinstance(outcome, UserMistake) else outcome)
        else:
            job.features = outcome
            self._hand_over(job)

    def _hand_over(self, job: PendingRequest) -> None:
        only_answers = job.request.learn == "false" and job.stream is not None
        (self._answering if only_answers else self._learning).put([job])

    def _score(self, jobs: Sequence[PendingRequest]) -> None:
        """What the classifier alone says of all samples, in one batch."""
        if jobs:
            features = np.concatenate([job.features for job in jobs])
            scored = score(rounded(features), self._classifier, self._rule)
            start = 0
            for job in jobs:
                job.group, job.start = scored, start
                start += len(job)

    # -- answered before --------------------------------------------------------------------------------------------

    def _is_answered(self, job: PendingRequest) -> bool:
        """Whether a request with this id was learned before; it is then answered as it was.

        If some of its samples were held, these are answered first, as any that are not learned.
        """
        request, number = job.request, self._streams.number(job.request.stream)
        if request.id is None or request.learn == "false" or number is None:
            return False
        found = self._journal.find(number, job.id_hash)
        if found is None:
            return False
        with errors_told_to(partial(self._finish, job)):
            require_same(found.digest, request)
            if len(found.places) < len(job):
                job.take_found(found)
                return False
            self._repeat(job, found)
        return True

    def _repeat(self, job: PendingRequest, found: Found) -> None:
        """Answer a request that was learned before, once the samples that were held are answered."""
        answers = self._stored(job, found)
        if answers is not None:
            self._finish(job, self._repeated(job, found, answers))
        else:
            self.beside.submit(self._recall, job)

    def _stored(self, job: PendingRequest, found: Found) -> Answers | None:
        return (
            self.last_answers.find(job.its_stream.number, found.sequences) if found.answers is None else found.answers
        )

    def _recall(self, job: PendingRequest) -> None:
        """Answer a request whose answers a killed process did not write, and write those of its batch."""
        stream = job.its_stream
        assert stream.past is not None  # as something was found
        with errors_told_to(partial(self._finish, job)):
            found = self._journal.find(stream.number, job.id_hash)
            if found is None:
                raise Refused("the sample was erased while it was looked for; send it again to learn it", 409)
            answers = self._stored(job, found)  # another request may have had the same batch
            if answers is None:
                batch = stream.past.journal.batch_of(stream.number, int(found.sequences[0]))
                answers = stream.past.answers_of(stream.operations, batch)
                self.last_answers.add(batch.group, {stream.number: (batch.first, answers)})
                answers = answers[found.sequences - batch.first]
                self._learning.put([Change(partial(self._commit, []))])
            self._finish(job, self._repeated(job, found, answers))

    def _repeated(self, job: PendingRequest, found: Found, answers: Answers) -> Result:
        is_zero_shot = bool(job.its_stream.history.was_zero_shot(found.sequences[:1])[0])
        return self._replies.repeated(job, found, answers, is_zero_shot)

    # -- write ------------------------------------------------------------------------------------------------------

    def _learn(self, items: Sequence[PendingRequest | Change]) -> None:
        """Write and learn requests as one group; changes come between two groups."""
        for is_change, some in groupby(items, lambda item: isinstance(item, Change)):
            if not is_change:
                self._learn_group([item for item in some if isinstance(item, PendingRequest)])
                continue
            for change in some:
                assert isinstance(change, Change)
                with errors_told_to(change.future.set_exception):
                    change.future.set_result(change.work())

    def _learn_group(self, jobs: list[PendingRequest]) -> None:
        new = [job for job in jobs if self._has_stream(job) and not self._was_answered(job)]
        self._score(new)
        group = list[PendingRequest]()
        for job in new:
            with errors_told_to(partial(self._finish, job)):
                self._decide(job, group)
                group.append(job)
        learning = [job for job in group if job.is_to_learn]
        if learning:
            try:
                committed = self._commit(learning)
            except MachineFailure as error:
                self._learn_nothing(learning, error)
            else:
                for job, first in zip(learning, committed.firsts, strict=True):
                    job.number_from(first)
                self._learn_and_answer(group, committed)
                return
        self._answer_all([job for job in group if not job.future.done()])

    def _has_stream(self, job: PendingRequest) -> bool:
        """Whether its stream is loaded; one that is deleted or was never there may come into being."""
        if job.stream is not None and not job.stream.gone:
            return True
        if job.stream is not None:
            self._streams.done(job.stream)
            job.stream = None
        name = job.request.stream
        with errors_told_to(partial(self._finish, job)):
            self._streams.require_usable(name)
            self._streams.create(name)
            job.stream = self._streams.use_if_loaded(name)
            if job.stream is not None:
                return True
            self.put(job)
        return False

    def _was_answered(self, job: PendingRequest) -> bool:
        return job.request.pictures is None and self._is_answered(job)  # for pictures it was asked before

    def _learn_nothing(self, jobs: Sequence[PendingRequest], error: MachineFailure) -> None:
        for job in jobs:
            job.reason = str(error)
            job.is_to_learn = False
            if job.request.learn == "true":
                self._finish(job, Refused(f"nothing was learned: {error}", 503))

    def _commit(self, learning: list[PendingRequest]) -> Committed:
        """One transaction, with the oldest answers that are not written yet."""
        answers, began = self.last_answers.oldest(), time.perf_counter()
        committed = self._journal.commit([_row_of(job) for job in learning], answers)
        if answers is not None:
            self.last_answers.groups.popleft()
        if learning:
            self.on_commit(time.perf_counter() - began, sum(map(len, learning)))
        return committed

    def _decide(self, job: PendingRequest, before: Sequence[PendingRequest]) -> None:
        """Whether a job is learned, after others of its group, and if not, why."""
        request, stream = job.request, job.its_stream
        if request.learn == "false" or job.found is not None:
            return
        broken = stream.failed or self._journal.read_only
        if stream.frozen:
            refused = Refused(f"stream {stream.name} is frozen; thaw it, or send learn=try", 409)
        elif broken:
            refused = Refused(f"nothing is learned until the service is started again: {broken}", 503)
        elif holding := [kind for kind, reaction in stream.reactions.items() if reaction == "hold"]:
            job.reason = f"stream {stream.name} holds while the alarm {holding[0]} stands"
            return
        else:
            if (least := self._reject_holds) is not None:
                is_low = job.scored.answers["zero_shot_probability"] < least
                job.hold(is_low, f"their zero-shot probability is below {least:g} (--reject-holds)")
            if "cap" in stream.reactions.values():
                self._cap(job, before)
            count = len(job.kept)
            if self._quota is None or stream.statistics.within_quota(count, self._quota):
                job.is_to_learn = count > 0
                return
            refused = Refused(f"stream {stream.name} may learn {self._quota} samples per minute", 429, 60)
        if request.learn == "true":
            raise refused
        job.reason = str(refused)

    def _cap(self, job: PendingRequest, before: Sequence[PendingRequest]) -> None:
        """Hold samples above the share of their source; those of its group before it count, and all groups before."""
        jobs = [one for one in before if one.stream is job.stream and one.is_to_learn]
        zero_shot = np.concatenate([one.scored.zero_shot[one.kept] for one in (*jobs, job)])
        sources = [one.request.source or "" for one in (*jobs, job) for _ in one.kept]
        with job.its_stream.lock:
            is_below = job.its_stream.health.below_cap(zero_shot, sources)
        above = np.zeros(len(job), dtype=bool)
        above[job.kept] = ~is_below[len(sources) - len(job.kept) :]
        job.hold(above, "their source gives more than its share of a class (--on one-source=cap)")

    # -- learn and answer -------------------------------------------------------------------------------------------

    def _learn_and_answer(self, jobs: list[PendingRequest], committed: Committed) -> None:
        """One batch per stream; the answers are kept until the next commit."""
        stored = {}
        for stream, its_jobs in _by_stream(jobs):
            learned = [job for job in its_jobs if job.first is not None]
            # The other streams of the group still learn what is in the journal.
            with errors_told_to(partial(self._fail, learned)), stream.lock:
                if learned:
                    stream.time = committed.time
                    answers = self._answer_batch(stream, learned, learn=True)
                    stored[stream.number] = learned[0].first or 0, answers
        if stored:
            self.last_answers.add(committed.group, stored)
        streams = {job.its_stream for job in jobs}
        for stream in streams:
            self._streams.keep(stream)  # also after the last reply
        try:
            self._answer_all([job for job in jobs if not job.future.done()])
            if self.saving is not None:
                for stream in streams:
                    self.saving.save_if_due(stream)
        finally:
            for stream in streams:
                self._streams.done(stream)

    def _answer(self, jobs: Sequence[PendingRequest]) -> None:
        """Answer requests that do not learn."""
        self._score(jobs)
        self._answer_all(jobs)

    def _answer_all(self, jobs: Sequence[PendingRequest]) -> None:
        """Answer what is not learned of requests, and finish them."""
        for stream, its_jobs in _by_stream(jobs):
            rest = [job for job in its_jobs if len(job.places(learn=False))]
            with errors_told_to(partial(self._fail, rest)), stream.lock:
                if rest:
                    self._answer_batch(stream, rest, learn=False)
        for job in jobs:
            if job.future.done():
                continue
            if job.found is None:
                self._finish(job, self._replies.first(job))
            else:
                with errors_told_to(partial(self._finish, job)):
                    self._repeat(job, job.found)

    def _answer_batch(self, stream: LiveStream, jobs: Sequence[PendingRequest], *, learn: bool) -> Answers:
        """Answer samples of one stream, learned or not; under its lock."""
        places = [job.places(learn=learn) for job in jobs]
        scored = jobs[0].group.take(np.concatenate([job.start + own for job, own in zip(jobs, places, strict=True)]))
        if learn:
            answered = self._learn_batch(stream, scored, int(jobs[-1].sequences[places[-1][-1]]))
        else:
            answered = answer(stream.state.adapter, scored, learn=False)
        shadowing = stream.history.answers == "zero-shot"
        given = answered
        if shadowing and any(job.request.top or job.request.logits for job in jobs):
            given = answer_zero_shot(self._classifier, scored)
        now = time.perf_counter()
        stream.statistics.add(answered, learn, [now - job.began for job in jobs])
        stream.version += 1
        self._replies.add_parts(jobs, places, answered, given, shadowing)
        sources = [job.request.source or "" for job, own in zip(jobs, places, strict=True) for _ in own]
        self._raise(stream, stream.health.add(scored, answered, learn, sources, stream.state.adapter))
        return answered.answers

    def _learn_batch(self, stream: LiveStream, scored: Scored, last: int) -> Answered:
        state, began = stream.state, time.thread_time()
        try:
            answered = state.learn(scored, last)
        except Exception as error:
            stream.failed = f"stream {stream.name} could not learn what is in the journal: {error}"
            raise
        state.unsaved += len(answered.answers)
        state.unsaved_seconds += time.thread_time() - began
        return answered


def _by_stream(jobs: Iterable[PendingRequest]) -> Iterable[tuple[LiveStream, list[PendingRequest]]]:
    streams: dict[LiveStream, list[PendingRequest]] = {}
    for job in jobs:
        streams.setdefault(job.its_stream, []).append(job)
    return streams.items()


def _row_of(job: PendingRequest) -> NewRequest:
    """What is written of a request: the samples that are not held."""
    asked, kept = job.request, job.kept
    scored = job.group.take(job.start + kept)
    marks = None if len(kept) == len(job) else ~job.held
    return NewRequest(
        job.its_stream.number, job.id_hash, asked.digest, asked.source, scored.features, scored.touches, marks
    )

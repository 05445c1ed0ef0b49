"""The path of a sample: encoded (pictures), scored without a state, written to the journal, learned, answered."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from pta.errors import MachineFailure, UserMistake
from pta.serve.journal.rows import Answers, Committed, Found, JournalLike, NewRequest, OperationRow
from pta.serve.requests import Refused, Result
from pta.serve.streams.alarm_rows import apply_alarms, write_alarms
from pta.serve.streams.answering import Answered, Scored, answer, answer_zero_shot, rounded, score, warm_up
from pta.serve.streams.health import AlarmRow
from pta.serve.streams.live_stream import LiveStream
from pta.serve.streams.pending import LastAnswers, PendingRequest, PendingRequests, Replies, require_same
from pta.serve.streams.picture_encoder import PictureEncoder
from pta.serve.streams.served_model import ServedModel, ServiceSettings, rule_of
from pta.serve.streams.stage import Stage, errors_told_to, one_thread
from pta.serve.streams.stream_set import Saving, StreamSet

T = TypeVar("T")
_log = logging.getLogger("pta.serve")


@dataclass(eq=False)
class Change:
    """Work between two groups: `write` in the thread that writes the journal, then `apply` in the one that learns."""

    write: Callable[[], Any]
    apply: Callable[[Any], object]
    written: Any = None
    future: Future[None] = field(default_factory=Future)

    def __len__(self) -> int:
        return 0


@dataclass(eq=False)
class CommittedGroup:
    """Requests that were committed together, those that learn and those that do not."""

    jobs: list[PendingRequest]
    number: int = 0
    time: float = 0.0

    def __len__(self) -> int:
        return sum(map(len, self.jobs))


class Pipeline:
    """Three threads: while one group is synced, the next is scored and the last is learned.

    Without a journal all this is one thread. Pictures become features beside it, so that nothing else waits for them.
    """

    def __init__(
        self,
        served: ServedModel,
        settings: ServiceSettings,
        journal: JournalLike,
        pending: PendingRequests,
        streams: StreamSet,
        saving: Callable[[], Saving | None],
    ) -> None:
        self._journal = journal
        self._pending = pending
        self._quota, self._reject_holds = settings.quota, settings.reject_holds
        self._streams, self._saving = streams, saving
        adapter = served.fresh()
        warm_up(adapter)
        self._classifier = adapter.classifier
        self._rule = rule_of(adapter)
        self._replies = Replies(served.classifier.class_names, settings.reject_below)
        self._pictures: PictureEncoder | None = None
        if served.encoder is not None:
            limits = settings.limits, settings.max_request_pixels
            self._pictures = PictureEncoder(served.encoder, *limits, threads=torch.get_num_threads())
        self.last_answers = LastAnswers()
        self.beside = one_thread("replay")
        self._stages: list[Stage] = []
        self._hand_to_learning = self._hand_to(self._learn, own_thread=journal.is_durable)
        self._hand_to_writing = self._hand_to(self._write, own_thread=bool(self._stages))
        self._hand_to_scoring = self._hand_to(self._score, own_thread=True)

    def put(self, item: PendingRequest | Change) -> None:
        """Begin with a request, or with work between two groups."""
        if isinstance(item, Change) or item.request.pictures is None or self._pictures is None:
            self._hand_to_scoring([item])
        else:
            known = partial(self._is_answered, item)
            done = partial(self._encoded, item)
            self._pictures.put(item.request.pictures, known, done)

    def write(self, work: Callable[[], T], apply: Callable[[T], object] = lambda written: None) -> T:
        """Do something in the thread that writes the journal; wait until it and what came before it are applied."""
        change = Change(work, apply)
        self.put(change)
        change.future.result()
        return change.written

    def look_at(self, stream: LiveStream) -> None:
        """Have the rows of alarms written that are due without a sample."""
        with stream.lock:
            self._raise(stream, stream.health.look())

    def _raise(self, stream: LiveStream, rows: Sequence[AlarmRow]) -> None:
        """Have rows of alarms written, after what is on its way; they take effect then. Under the stream's lock."""
        if rows:
            self.put(Change(partial(write_alarms, self._journal, stream, rows), partial(self._apply_alarms, stream)))

    def _apply_alarms(self, stream: LiveStream, written: Sequence[OperationRow]) -> None:
        apply_alarms(stream, written)
        if (saving := self._saving()) is not None:
            saving.save_if_due(stream)

    def close(self) -> None:
        """Answer what is queued, write the answers, and end."""
        if self._pictures is not None:
            self._pictures.close()
        for _ in range(2):  # the groups that are queued, then the rows of their alarms
            self.write(lambda: None)
        for stage in reversed(self._stages):
            stage.close()
        self.beside.shutdown()
        with suppress(MachineFailure):  # they are computed again when somebody asks
            while self.last_answers.groups:
                self._commit([])

    def _hand_to(self, work: Callable[[Sequence[Any]], None], *, own_thread: bool) -> Callable[[Sequence[Any]], None]:
        """How items go on to a stage, in a thread of its own or in that of the stage before."""
        if not own_thread:
            return work
        stage = Stage(work.__name__.strip("_"), work, self._fail)
        self._stages.append(stage)
        return stage.put

    def _fail(self, items: Sequence[PendingRequest | Change | CommittedGroup], error: Exception) -> None:
        _log.error("a request could not be answered", exc_info=error)
        for item in items:
            if isinstance(item, Change):
                item.future.set_exception(error)
                continue
            for job in item.jobs if isinstance(item, CommittedGroup) else [item]:
                if not job.future.done():
                    self._pending.finish(job, error)

    # -- score ------------------------------------------------------------------------------------------------------

    def _encoded(self, job: PendingRequest, outcome: NDArray[np.float32] | Exception) -> None:
        """The pictures of a request are features now, or one of them cannot be."""
        if isinstance(outcome, Exception):
            self._pending.finish(job, Refused(str(outcome)) if isinstance(outcome, UserMistake) else outcome)
        else:
            job.features = outcome
            self._hand_to_scoring([job])

    def _score(self, items: Sequence[PendingRequest | Change]) -> None:
        """Score all jobs in one batch; operations keep their place among them."""
        rest = [
            item  # whether pictures are answered was asked before
            for item in items
            if isinstance(item, Change) or item.request.pictures is not None or not self._is_answered(item)
        ]
        jobs = [item for item in rest if isinstance(item, PendingRequest)]
        if jobs:
            features = np.concatenate([job.features for job in jobs])
            scored = score(rounded(features), self._classifier, self._rule)
            for job, rows in _slices(jobs):
                job.scored = scored.of(rows)
        self._hand_to_writing(rest)

    def _is_answered(self, job: PendingRequest) -> bool:
        """Whether a request with this id was learned before; it is then answered as it was.

        If some of its samples were held, these are answered first, as any that are not learned.
        """
        request = job.request
        stream = self._streams.by_name.get(job.request.stream)
        if request.id is None or request.learn == "false" or stream is None:
            return False
        found = self._journal.find(stream.number, job.id_hash)
        if found is None:
            return False
        with errors_told_to(partial(self._pending.finish, job)):
            require_same(found.digest, request)
            if len(found.places) < len(job):
                job.take_found(found)
                return False
            self._repeat(job, stream, found)
        return True

    def _repeat(self, job: PendingRequest, stream: LiveStream, found: Found) -> None:
        """Answer a request that was learned before, once the samples that were held are answered."""
        answers = self._answers(stream, found)
        if answers is not None:
            self._pending.finish(job, self._repeated(stream, job, found, answers))
        else:
            self.beside.submit(self._recall, job, stream)

    def _answers(self, stream: LiveStream, found: Found) -> Answers | None:
        return self.last_answers.find(stream.number, found.sequences) if found.answers is None else found.answers

    def _recall(self, job: PendingRequest, stream: LiveStream) -> None:
        """Answer a request whose answers a killed process did not write, and write those of its batch."""
        assert stream.past is not None  # as something was found
        with errors_told_to(partial(self._pending.finish, job)):
            found = self._journal.find(stream.number, job.id_hash)
            if found is None:
                raise Refused("the sample was erased while it was looked for; send it again to learn it", 409)
            answers = self._answers(stream, found)  # another request may have had the same batch
            if answers is None:
                batch = stream.past.journal.batch_of(stream.number, int(found.sequences[0]))
                answers = stream.past.answers_of(stream.operations, batch)
                self.last_answers.add(batch.group, {stream.number: (batch.first, answers)})
                answers = answers[found.sequences - batch.first]
                self.put(Change(lambda: self._commit([]), lambda committed: None))
            self._pending.finish(job, self._repeated(stream, job, found, answers))

    def _repeated(self, stream: LiveStream, job: PendingRequest, found: Found, answers: Answers) -> Result:
        is_zero_shot = bool(stream.history.was_zero_shot(found.sequences[:1])[0])
        return self._replies.repeated(job, found, answers, is_zero_shot)

    # -- write ------------------------------------------------------------------------------------------------------

    def _write(self, items: Sequence[PendingRequest | Change]) -> None:
        """Commit jobs as one group; what an operation writes comes between two groups."""
        for kind, some in groupby(items, type):
            if kind is PendingRequest:
                self._write_group([item for item in some if isinstance(item, PendingRequest)])
                continue
            for change in some:
                assert isinstance(change, Change)
                with errors_told_to(change.future.set_exception):
                    change.written = change.write()
                    self._hand_to_learning([change])

    def _write_group(self, jobs: list[PendingRequest]) -> None:
        going_on = list[PendingRequest]()
        for job in jobs:
            with errors_told_to(partial(self._pending.finish, job)):
                self._decide(job, going_on)
                going_on.append(job)
        learning = [job for job in going_on if job.is_to_learn]
        group = CommittedGroup(going_on)
        if learning:
            try:
                committed = self._commit(learning)
                group.number = committed.group
                group.time = committed.time
                for job, first in zip(learning, committed.firsts, strict=True):
                    job.first = first
            except MachineFailure as error:
                for job in learning:
                    job.reason = str(error)
                    job.is_to_learn = False
                    if job.request.learn == "true":
                        group.jobs.remove(job)
                        self._pending.finish(job, Refused(f"nothing was learned: {error}", 503))
        if group.jobs:
            self._hand_to_learning([group])

    def _commit(self, learning: list[PendingRequest]) -> Committed:
        """One transaction, with the oldest answers that are not written yet."""
        answers = self.last_answers.oldest()
        committed = self._journal.commit([_row_of(job) for job in learning], answers)
        if answers is not None:
            self.last_answers.groups.popleft()
        return committed

    def _decide(self, job: PendingRequest, before: Sequence[PendingRequest]) -> None:
        """Whether a job is learned, after others of its group, and if not, why."""
        request = job.request
        stream = job.stream = self._streams.get_or_create(request.stream)
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
            count = int(np.count_nonzero(~job.held))
            if self._quota is None or stream.within_quota(count, self._quota):
                job.is_to_learn = count > 0
                return
            refused = Refused(f"stream {stream.name} may learn {self._quota} samples per minute", 429, 60)
        if request.learn == "true":
            raise refused
        job.reason = str(refused)

    def _cap(self, job: PendingRequest, before: Sequence[PendingRequest]) -> None:
        """Hold samples above the share of their source; those of its group before it count, and all groups before."""
        jobs = [one for one in before if one.stream is job.stream and one.is_to_learn]
        if not jobs:
            learned = Change(lambda: None, lambda written: None)
            self._hand_to_learning([learned])
            learned.future.result()
        zero_shot = np.concatenate([one.scored.zero_shot[~one.held] for one in (*jobs, job)])
        sources = [one.request.source or "" for one in (*jobs, job) for _ in range(np.count_nonzero(~one.held))]
        with job.stream.lock:
            is_below = job.stream.health.below_cap(zero_shot, sources)
        above = np.zeros(len(job), dtype=bool)
        above[~job.held] = ~is_below[len(sources) - np.count_nonzero(~job.held) :]
        job.hold(above, "their source gives more than its share of a class (--on one-source=cap)")

    # -- learn and answer -------------------------------------------------------------------------------------------

    def _learn(self, items: Sequence[CommittedGroup | Change]) -> None:
        for item in items:
            if isinstance(item, Change):
                with errors_told_to(item.future.set_exception):
                    item.apply(item.written)
                    item.future.set_result(None)
            else:
                self._learn_group(item)

    def _learn_group(self, group: CommittedGroup) -> None:
        """One batch per stream; the answers are kept until the next commit."""
        stored = {}
        streams: dict[LiveStream, list[PendingRequest]] = {}
        for job in group.jobs:
            streams.setdefault(job.stream, []).append(job)
        for stream, jobs in streams.items():
            for learn in (True, False):
                some = [job for job in jobs if job.chosen(learn=learn).any() and not job.future.done()]
                if not some:
                    continue
                # The other streams of the group still learn what is in the journal.
                with errors_told_to(partial(self._fail, some)), stream.lock:
                    chosen = [job.chosen(learn=learn) for job in some]
                    parts = [job.scored.among(one) for job, one in zip(some, chosen, strict=True)]
                    scored = Scored.joined(parts)
                    answered = self._answer(stream, some, scored, learn)
                    shadowing = stream.history.answers == "zero-shot"
                    given = answered
                    if shadowing and any(job.request.top or job.request.logits for job in some):
                        given = answer_zero_shot(self._classifier, scored)
                    if learn:
                        stored[stream.number] = int(some[0].sequences[chosen[0]][0]), answered.answers
                        stream.time = group.time
                        stream.since_snapshot += len(answered.answers)
                    now = time.perf_counter()
                    stream.statistics.add(answered, learn, [now - job.began for job in some])
                    stream.version += 1
                    places = [np.flatnonzero(one) for one in chosen]
                    for job, own, rows in zip(some, places, _consecutive(map(len, places)), strict=True):
                        self._replies.add_part(job, own, answered, given, rows, shadowing)
                    sources = [job.request.source or "" for job, own in zip(some, places, strict=True) for _ in own]
                    self._raise(stream, stream.health.add(scored, answered, learn, sources, stream.state.adapter))
        if stored:
            self.last_answers.add(group.number, stored)
        for job in group.jobs:
            if job.future.done():
                continue
            if job.found is None:
                self._pending.finish(job, self._replies.first(job))
            else:
                with errors_told_to(partial(self._pending.finish, job)):
                    self._repeat(job, job.stream, job.found)
        if (saving := self._saving()) is not None:
            for stream in streams:
                saving.save_if_due(stream)

    def _answer(self, stream: LiveStream, jobs: list[PendingRequest], scored: Scored, learn: bool) -> Answered:
        if not learn:
            return answer(stream.state.adapter, scored, learn=False)
        try:
            return stream.state.learn(scored, int(jobs[-1].sequences.max()))
        except Exception as error:
            stream.failed = f"stream {stream.name} could not learn what is in the journal: {error}"
            raise


def _slices(jobs: Sequence[PendingRequest]) -> Iterator[tuple[PendingRequest, slice]]:
    """Jobs with their rows in a batch of all of them."""
    return zip(jobs, _consecutive(map(len, jobs)), strict=True)


def _consecutive(lengths: Iterable[int]) -> Iterator[slice]:
    start = 0
    for length in lengths:
        yield slice(start, start + length)
        start += length


def _row_of(job: PendingRequest) -> NewRequest:
    """What is written of a request: the samples that are not held."""
    asked, learned = job.request, ~job.held
    scored = job.scored.among(learned)
    marks = None if learned.all() else learned
    return NewRequest(
        job.stream.number, job.id_hash, asked.digest, asked.source, scored.features, scored.touches, marks
    )

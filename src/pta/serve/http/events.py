"""Server-sent events of a stream: what changed of its summary, at most four times per second.

The first event of a connection is the whole summary, later ones are events `patch` (`pta.serve.http.patches`). An alarm
that is raised, or is over, is an event `alarm` of its own, after the summary that has it.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from pta.serve.http.patches import NotPatchable, difference
from pta.serve.requests import Refused
from pta.serve.streams.service import Service

_SECONDS_BETWEEN = 0.25
_SECONDS_UNCHANGED = 5.0  # after which the rate has changed although nothing came
_MOST_PATCHES = 8  # that are kept; who is further behind gets the whole summary


class _Feed:
    """The last summary of a stream that is watched, and the events that led to it."""

    def __init__(self) -> None:
        self.watchers = 0
        self.updating = asyncio.Lock()
        self.moment: tuple[int, float] | None = None  # the version of the stream, and which interval of seconds it is
        self.made = 0.0
        self.number = 0  # of the last event
        self.alarms: list[dict[str, Any]] = []
        self._summary: Any = None  # as it is in JSON
        self._whole = b""
        self._patches: deque[bytes] = deque(maxlen=_MOST_PATCHES)

    def take(self, summary: dict[str, Any]) -> None:
        """Make the event that leads to a new summary."""
        text = orjson.dumps(summary, option=orjson.OPT_SERIALIZE_NUMPY)
        before, self._summary = self._summary, orjson.loads(text)
        self._whole = b"data: %b\n\n" % text
        if before is not None:
            try:
                self._patches.append(b"event: patch\ndata: %b\n\n" % orjson.dumps(difference(before, self._summary)))
            except NotPatchable:
                self._patches.append(self._whole)
        self.alarms = self._summary["health"]["alarm_rows"]
        self.number += 1

    def since(self, number: int | None) -> list[bytes]:
        """The events after one that a watcher has had."""
        behind = 0 if number is None else self.number - number
        if number is None or behind > len(self._patches):
            return [self._whole]
        return list(self._patches)[len(self._patches) - behind :]


class Events:
    """Summaries for all who watch; a stream is summarised and compared once for all of them.

    Args:
        most: how many may watch at the same time.
    """

    def __init__(self, service: Service, most: int) -> None:
        self._service = service
        self.most = most
        self.watching = 0
        self._feeds: dict[str, _Feed] = {}  # by the name of the stream

    def answer(self, name: str) -> StreamingResponse:
        """The answer to one who watches."""
        self._service.version(name)  # refuses a stream that is not there
        return _Watching(self, self.watch(name))

    async def watch(self, name: str) -> AsyncIterator[bytes]:
        """Events as long as the service takes requests."""
        feed = self._feeds.setdefault(name, _Feed())
        feed.watchers += 1
        last: int | None = None
        told = 0  # the row of the last alarm
        try:
            while self._service.ready:
                await self._update(name, feed)
                alarms = [row for row in feed.alarms if row["sequence"] > told]
                events = feed.since(last)
                if last is not None:
                    events += [b"event: alarm\ndata: %b\n\n" % orjson.dumps(row) for row in alarms]
                last, told = feed.number, max([told, *(row["sequence"] for row in alarms)])
                for event in events:
                    yield event
                await asyncio.sleep(_SECONDS_BETWEEN)
        except Refused:  # the stream was deleted
            yield b"event: gone\ndata: {}\n\n"
        finally:
            feed.watchers -= 1
            if not feed.watchers:
                del self._feeds[name]

    async def _update(self, name: str, feed: _Feed) -> None:
        """Summarise the stream if it has changed, and the last summary is not of just now."""
        async with feed.updating:
            now = time.monotonic()
            moment = self._service.version(name), now // _SECONDS_UNCHANGED
            if moment != feed.moment and now - feed.made >= _SECONDS_BETWEEN:
                await run_in_threadpool(lambda: feed.take(self._service.summary(name)))
                feed.moment, feed.made = moment, now


class _Watching(StreamingResponse):
    """Takes a place as long as it lasts."""

    def __init__(self, events: Events, content: AsyncIterator[bytes]) -> None:
        super().__init__(content, media_type="text/event-stream")
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        events = self._events
        if events.watching >= events.most:
            raise Refused(f"{events.watching} connections watch events, half of --connections; try again later", 503, 5)
        events.watching += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            events.watching -= 1

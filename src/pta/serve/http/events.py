"""Server-sent events of a stream: its summary whenever it has changed, at most four times per second.

An alarm that is raised, or is over, is an event `alarm` of its own, after the summary that has it.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from pta.serve.requests import Refused
from pta.serve.streams.service import Service

_SECONDS_BETWEEN = 0.25
_SECONDS_UNCHANGED = 5.0  # after which the rate has changed although nothing came

_Moment = tuple[int, float]  # the version of the stream, and which interval of unchanged seconds it is


class Events:
    """Summaries for all who watch; each moment of a stream is summarised once.

    Args:
        most: how many may watch at the same time.
    """

    def __init__(self, service: Service, most: int) -> None:
        self._service = service
        self.most = most
        self.watching = 0
        self._latest: dict[str, tuple[_Moment, bytes, list[dict[str, Any]]]] = {}  # by the name of the stream

    def answer(self, name: str, seen: str | None) -> StreamingResponse:
        """The answer to one who watches."""
        self._service.version(name)  # refuses a stream that is not there
        return _Watching(self, self.watch(name, seen, ended=lambda: not self._service.ready))

    async def watch(self, name: str, seen: str | None, ended: Callable[[], bool]) -> AsyncIterator[bytes]:
        """Events until `ended`; `seen` is the last one that a watcher who comes back had, its `Last-Event-ID`."""
        last: _Moment | None = None
        told = 0  # the row of the last alarm
        while not ended():
            try:
                moment = self._service.version(name), time.monotonic() // _SECONDS_UNCHANGED
                if moment != last:
                    event, alarms = await self._event(name, moment)
                    if last is not None or not event.startswith(f"id: {seen}\n".encode()):
                        yield event
                    for row in alarms:
                        if last is not None and row["sequence"] > told:
                            yield b"event: alarm\ndata: %b\n\n" % orjson.dumps(row)
                    told = max([told, *(row["sequence"] for row in alarms)])
                    last = moment
            except Refused:  # the stream was deleted
                self._latest.pop(name, None)
                yield b"event: gone\ndata: {}\n\n"
                return
            await asyncio.sleep(_SECONDS_BETWEEN)

    async def _event(self, name: str, moment: _Moment) -> tuple[bytes, list[dict[str, Any]]]:
        """The event of the summary, and the rows of alarms in it."""
        known = self._latest.get(name)
        if known is None or known[0] != moment:
            summary = await run_in_threadpool(self._service.summary, name)
            alarms = summary["health"]["alarm_rows"]
            text = orjson.dumps(summary, option=orjson.OPT_SERIALIZE_NUMPY)
            known = self._latest[name] = moment, b"id: %d\ndata: %b\n\n" % (summary["sequence"], text), alarms
        return known[1:]


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

"""Server-sent events of a stream: its summary whenever it has changed, at most four times per second."""

import asyncio
from collections.abc import AsyncIterator, Callable

import orjson
from starlette.concurrency import run_in_threadpool

from pta.serve.refusals import Refused
from pta.serve.service import Service

_SECONDS_BETWEEN = 0.25
_SECONDS_OF_SILENCE = 15.0  # after which a comment shows that the connection still stands


class Events:
    """Summaries for all who watch; each version of a stream is summarised once."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._latest: dict[str, tuple[int, bytes]] = {}  # version and event, by the name of the stream

    async def watch(self, name: str, seen: str | None, ended: Callable[[], bool]) -> AsyncIterator[bytes]:
        """Events until `ended`; `seen` is the last one that a watcher who comes back had, its `Last-Event-ID`."""
        version, silent = None, 0.0
        while not ended():
            try:
                if (now := self._service.version(name)) != version:
                    event = await self._event(name, now)
                    if version is not None or not event.startswith(f"id: {seen}\n".encode()):
                        yield event
                    version, silent = now, 0.0
            except Refused:  # the stream was deleted
                yield b"event: gone\ndata: {}\n\n"
                return
            if silent >= _SECONDS_OF_SILENCE:
                yield b": still here\n\n"
                silent = 0.0
            await asyncio.sleep(_SECONDS_BETWEEN)
            silent += _SECONDS_BETWEEN

    async def _event(self, name: str, version: int) -> bytes:
        known = self._latest.get(name)
        if known is None or known[0] != version:
            summary = await run_in_threadpool(self._service.summary, name)
            text = orjson.dumps(summary, option=orjson.OPT_SERIALIZE_NUMPY)
            known = version, b"id: %d\ndata: %b\n\n" % (summary["sequence"], text)
            self._latest[name] = known
        return known[1]
